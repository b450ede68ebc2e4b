/** Loads the cities of the world into a running service: `npm run load:cities -- --help`. */
import type { Teardown } from "@effect/platform/Runtime"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Console, Effect, Exit, Option, Ref } from "effect"
import { WrongArguments } from "./CommandLine.ts"
import * as Arguments from "./load/Arguments.ts"
import * as Cities from "./load/Cities.ts"
import * as Load from "./load/Load.ts"
import * as ProgressBar from "./load/ProgressBar.ts"

const fill = ({ url, key, namespace, concurrency, batch, count }: Arguments.Arguments) =>
  Effect.gen(function* () {
    const { entries, duplicates } = Cities.entriesOf(yield* Cities.readCities)
    if (duplicates > 0) yield* Console.error(`${duplicates} records are left out: another has the same key.`)
    const wanted = entries.slice(0, count)
    const bar = yield* ProgressBar.make(wanted.length)
    const isUnavailable = yield* Ref.make(false)
    return yield* Load.load({
      entries: wanted,
      url,
      key,
      namespace,
      actor: "load-cities",
      concurrency,
      bounds: { operations: batch },
      onProgress: by => Effect.zipRight(Ref.set(isUnavailable, false), bar.advance(by)),
      // One line for each outage, not for each batch.
      onAway: line =>
        Effect.flatMap(Ref.getAndSet(isUnavailable, true), wasUnavailable =>
          wasUnavailable ? Effect.void : Console.error(line)
        )
    })
  }).pipe(
    Effect.scoped,
    Effect.flatMap(summary => Console.log(Load.describe(summary)))
  )

const main = Arguments.read(process.argv.slice(2), process.env).pipe(
  Effect.flatMap(given => (given === "help" ? Console.log(Arguments.help()) : fill(given))),
  Effect.provide(NodeFileSystem.layer),
  Effect.tapErrorCause(cause =>
    Option.match(Cause.failureOption(cause), {
      onSome: error => Console.error(error.message),
      onNone: () => (Cause.isInterruptedOnly(cause) ? Effect.void : Console.error(Cause.pretty(cause)))
    })
  )
)

/** 2 for invalid arguments, 130 after a signal (128 + SIGINT), 1 for any other failure. */
const teardown: Teardown = (exit, onExit) => {
  if (Exit.isSuccess(exit)) return onExit(0)
  if (Cause.isInterruptedOnly(exit.cause)) return onExit(130)
  const error = Option.getOrUndefined(Cause.failureOption(exit.cause))
  onExit(error instanceof WrongArguments ? 2 : 1)
}

NodeRuntime.runMain(main, { disableErrorReporting: true, disablePrettyLogger: true, teardown })
