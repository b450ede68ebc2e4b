/** Talks with an agent through the gateway: `npm run chat -- --help`. */
import type { Teardown } from "@effect/platform/Runtime"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Console, Effect, Exit, Option } from "effect"
import { WrongArguments } from "./CommandLine.ts"
import * as Arguments from "./chat/Arguments.ts"
import * as Chat from "./chat/Chat.ts"
import * as Terminal from "./chat/Terminal.ts"

type Failure = WrongArguments | Effect.Effect.Error<ReturnType<typeof Chat.run>>

const main: Effect.Effect<void, Failure> = Arguments.read(process.argv.slice(2), process.env).pipe(
  Effect.flatMap(given =>
    given === "help" ? Console.log(Arguments.help()) : Effect.provide(Chat.run(given), Terminal.layer)
  ),
  Effect.tapErrorCause(cause =>
    Option.match(Cause.failureOption(cause), {
      onSome: error => (error._tag === "Interrupted" ? Effect.void : Console.error(error.message)),
      onNone: () => (Cause.isInterruptedOnly(cause) ? Effect.void : Console.error(Cause.pretty(cause)))
    })
  )
)

/** 2 for invalid arguments, 130 after Ctrl-C or a signal (128 + SIGINT), 1 for any other failure. */
const teardown: Teardown = (exit, onExit) => {
  if (Exit.isSuccess(exit)) return onExit(0)
  if (Cause.isInterruptedOnly(exit.cause)) return onExit(130)
  const error = Option.getOrUndefined(Cause.failureOption(exit.cause))
  if (error instanceof Chat.Interrupted) return onExit(130)
  onExit(error instanceof WrongArguments ? 2 : 1)
}

NodeRuntime.runMain(main, { disableErrorReporting: true, disablePrettyLogger: true, teardown })
