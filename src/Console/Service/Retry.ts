/** Work that is tried again while the service cannot do it at present. */
import { ConnectionFailed, isClientError } from "../../Client/Errors.ts"
import { isTransient } from "../../Client/Retry.ts"
import { RequestRefused } from "../../Client/SessionErrors.ts"
import { messageOf } from "./Failure.ts"
import { pause } from "./Pause.ts"

/** Milliseconds between two tries: somebody looks at the page. */
const pauseMs = 2000

/** Whether another try may do better. */
export const mayDoBetter = (error: unknown): boolean =>
  error instanceof RequestRefused ? error.retryable : isClientError(error) && isTransient(error)

/** Waits until the next try. Fails where the signal has ended the work. */
export const untilNextTry = async (ended: AbortSignal): Promise<void> => {
  await pause(pauseMs, ended)
  ended.throwIfAborted()
}

/** Tries until it succeeds. `onProblem` is told why a try has failed, and `""` where one has succeeded. */
export const persist = async <A>(
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
      if (!mayDoBetter(error)) throw error
      // Of a service that is away the frame of the page says that it is asked again.
      onProblem(error instanceof ConnectionFailed ? messageOf(error) : `${messageOf(error)}. Trying again…`)
    }
    await untilNextTry(ended)
  }
}
