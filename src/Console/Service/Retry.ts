/** Retries work while the service is unavailable. */
import { ConnectionFailed, isClientError, RequestRefused } from "../../Client/Errors.ts"
import { isTransient } from "../../Client/Retry.ts"
import { messageOf } from "./Failure.ts"
import { pause } from "./Pause.ts"

/** Milliseconds between two tries. They are short, because a user is waiting. */
const pauseMs = 2000

/** Whether another try may succeed. */
export const isRetryable = (error: unknown): boolean =>
  error instanceof RequestRefused ? error.retryable : isClientError(error) && isTransient(error)

/** Waits until the next try. Throws if the signal is aborted. */
export const untilNextTry = async (ended: AbortSignal): Promise<void> => {
  await pause(pauseMs, ended)
  ended.throwIfAborted()
}

/** Tries until it succeeds. `onProblem` receives the reason of a failure, and `""` after a success. */
export const retryUntilDone = async <A>(
  work: () => Promise<A>,
  ended: AbortSignal,
  onProblem: (message: string) => void
): Promise<A> => {
  for (;;) {
    try {
      const done = await work()
      onProblem("")
      return done
    } catch (error) {
      if (!isRetryable(error)) throw error
      // If the service is unreachable, the frame of the page reports the retry.
      onProblem(error instanceof ConnectionFailed ? messageOf(error) : `${messageOf(error)}. Trying again…`)
    }
    await untilNextTry(ended)
  }
}
