/**
 * Lines at level debug from code that is no effect, such as listeners of sockets and statements of a database.
 */
import { type Context, Effect, Fiber, FiberRef, LogLevel, Option, Runtime } from "effect"

/** Logs a line for the fiber at work, if there is one: the line has its annotations and its span. */
export type DebugLog = (message: string, detail: Readonly<Record<string, unknown>>) => void

/** Whether lines of a level are logged. To be asked once and not for each line. */
export const isLogged = (level: LogLevel.LogLevel): Effect.Effect<boolean> =>
  Effect.map(FiberRef.get(FiberRef.currentMinimumLogLevel), least => LogLevel.lessThanEqual(least, level))

/** The log, or nothing where `LOG_LEVEL` is above debug: then nothing is to be prepared for it either. */
export const make: Effect.Effect<DebugLog | undefined> = Effect.gen(function* () {
  if (!(yield* isLogged(LogLevel.Debug))) return undefined
  const runtime = yield* Effect.runtime<never>()
  return (message, detail) => {
    const fiber = Option.getOrUndefined(Fiber.getCurrentFiber())
    const own =
      fiber === undefined
        ? runtime
        : Runtime.make({
            context: fiber.getFiberRef(FiberRef.currentContext) as Context.Context<never>,
            runtimeFlags: runtime.runtimeFlags,
            fiberRefs: fiber.getFiberRefs()
          })
    Runtime.runFork(own)(Effect.annotateLogs(Effect.logDebug(message), detail))
  }
})
