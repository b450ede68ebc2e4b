/** The command `causeway`: which parts it loads for its arguments, and how it exits. */
import type { Teardown } from "@effect/platform/Runtime"
import { Cause, Console, Effect, Exit, Option } from "effect"
import * as Threads from "../base/Process/Threads.ts"
import * as YoungGeneration from "../base/Process/YoungGeneration.ts"
import { version } from "../base/Version.ts"
import { CommandFailed, exitCodes, outputFailed } from "../CommandLine/CommandFailed.ts"
import { clean, failureText } from "../CommandLine/Terminal/Text.ts"

/** A closed pipe on standard output or standard error must not end the process. */
const ignoreClosedPipes = Effect.sync(() => {
  for (const output of [process.stdout, process.stderr]) output.on("error", () => undefined)
})

/** Fails if an output of the console of Node, or of `chat`, could not be written. */
const withOutput = <A>(command: Effect.Effect<A, CommandFailed>): Effect.Effect<A, CommandFailed> =>
  Effect.suspend(() => {
    let failure: CommandFailed | undefined
    process.stdout.on("error", error => {
      failure ??= outputFailed(error)
    })
    // A stream emits an error in a later turn of the event loop.
    const turn = Effect.async<void>(resume => void setImmediate(() => resume(Effect.void)))
    return Effect.tap(command, () => Effect.flatMap(turn, () => failure ?? Effect.void))
  })

/** The service and its configuration. No other command loads them. */
const service = Effect.promise(() => import("./Serve.ts"))

const serve = Effect.flatMap(service, ({ serve }) => serve)

const develop = (agentUrl?: string) => Effect.flatMap(service, ({ develop }) => develop(agentUrl))

/** The address in `dev --agent <address>`. */
const agentIn = ([command, option = "", value, ...others]: ReadonlyArray<string>): string | undefined => {
  if (command !== "dev" || others.length > 0) return undefined
  if (option === "--agent") return value
  return value === undefined && option.startsWith("--agent=") ? option.slice("--agent=".length) : undefined
}

const isServing = (args: ReadonlyArray<string>): boolean =>
  args.length === 0 || (args.length === 1 && (args[0] === "serve" || args[0] === "dev")) || agentIn(args) !== undefined

/** Loads the service if the arguments start it. */
export const load = (args: ReadonlyArray<string>): Promise<unknown> =>
  isServing(args) ? import("./Serve.ts") : Promise.resolve()

const isHelp = (argument: string): boolean => argument === "--help" || argument === "-h"

/** Runs a command. The service itself must not load the library of the commands. */
const runCommand = (args: ReadonlyArray<string>): Effect.Effect<void, CommandFailed> =>
  Effect.zipRight(
    ignoreClosedPipes,
    Effect.flatMap(
      Effect.promise(() => import("../CommandLine/Main.ts")),
      CommandLine => {
        YoungGeneration.release()
        return withOutput(CommandLine.run(args, { serve, develop, ...documents }))
      }
    )
  )

const documents = {
  openApi: Effect.map(
    Effect.promise(() => Promise.all([import("./Api.ts"), import("../Http/OpenApi/Document.ts")])),
    ([{ Api }, Document]) => Document.text(Api)
  ),
  asyncApi: Effect.map(
    Effect.promise(() => import("./AsyncApi.ts")),
    ({ text }) => text()
  )
}

export const run = (args: ReadonlyArray<string>): Effect.Effect<void, CommandFailed> => {
  const [option] = args
  if (isServing(args)) return Effect.zipRight(ignoreClosedPipes, option === "dev" ? develop(agentIn(args)) : serve)
  if (args.length === 1 && option === "--version")
    return Effect.zipRight(ignoreClosedPipes, withOutput(Console.log(version)))
  // The help of the service lists its variables, which the commands do not load.
  return (option === "serve" || option === "dev") && args.some(isHelp)
    ? Effect.zipRight(ignoreClosedPipes, withOutput(Effect.flatMap(service, ({ help }) => Console.log(help()))))
    : runCommand(args)
}

/** Runs the command. Prints a failure on standard error, with advice. */
export const main = (args: ReadonlyArray<string>): Effect.Effect<void, CommandFailed> =>
  Effect.tapErrorCause(run(args), cause =>
    Option.match(Cause.failureOption(cause), {
      onSome: failure => (failure.message === "" ? Effect.void : Console.error(failureText(failure))),
      // A defect is printed with its stack.
      onNone: () => (Cause.isInterruptedOnly(cause) ? Effect.void : Console.error(clean(Cause.pretty(cause))))
    })
  )

/** Ends the process by the default action of a signal. A shell shows 128 plus its number as the exit code. */
const endBySignal = (signal: NodeJS.Signals): void => {
  process.removeAllListeners(signal)
  process.kill(process.pid, signal)
}

/** Milliseconds that a thread has to return after an interrupt. Files of healthy disks answer within a few. */
const patience = 200

/** Waits until no thread is pending, for a short time, and returns whether there is none. */
const untilReturned = (done: (hasReturned: boolean) => void, waited = 0): void => {
  const isPending = Threads.pending().length > 0
  if (isPending && waited < patience) setTimeout(() => untilReturned(done, waited + 10), 10)
  else done(!isPending)
}

/**
 * Exit codes: those of `CommandFailed`; 1 for a defect. A signal ends the service with 0, and any other command with 128
 * and the signal's number. After the shutdown deadline or a second signal the service ends by SIGKILL.
 */
export const teardown = (args: ReadonlyArray<string>): Teardown => {
  let interrupted: number = isServing(args) ? 0 : exitCodes.interrupted
  if (!isServing(args)) {
    process.once("SIGTERM", () => {
      interrupted = exitCodes.terminated
    })
  }
  return (exit, onExit) => {
    if (Exit.isSuccess(exit)) return onExit(0)
    if (Cause.isInterruptedOnly(exit.cause)) {
      if (isServing(args)) return onExit(interrupted)
      const signal = interrupted === exitCodes.terminated ? "SIGTERM" : "SIGINT"
      // A thread that reads a large database, or a file that does not answer, cannot be interrupted.
      return untilReturned(hasReturned => (hasReturned ? onExit(interrupted) : endBySignal(signal)))
    }
    const error = Option.getOrUndefined(Cause.failureOption(exit.cause))
    onExit(error instanceof CommandFailed ? error.exitCode : exitCodes.failed)
  }
}
