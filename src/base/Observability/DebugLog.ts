/** Debug logging from code that is not an effect, such as listeners of sockets and database statements. */
import { type Context, Effect, Fiber, FiberRef, LogLevel, Option, Runtime } from "effect"

/** Logs a line with the annotations and the span of the current fiber, if there is one. */
export type DebugLog = (message: string, detail: Readonly<Record<string, unknown>>) => void

/** Whether lines of a level are logged. To be evaluated once, not for each line. */
export const isLogged = (level: LogLevel.LogLevel): Effect.Effect<boolean> =>
  Effect.map(FiberRef.get(FiberRef.currentMinimumLogLevel), least => LogLevel.lessThanEqual(least, level))

/** The log, or `undefined` if debug lines are not logged, so that callers need not format any. */
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
