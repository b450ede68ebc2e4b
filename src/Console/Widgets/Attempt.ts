import { useState } from "preact/hooks"
import { isAbort, messageOf } from "../Service/Failure.ts"

/** An action of the user, and why it failed the last time. */
export interface Attempt {
  readonly isBusy: boolean
  /** `""` if it did not fail. */
  readonly failure: string
  /** Runs the action, unless it is running. `explain` makes the message of an error. */
  readonly run: (work: () => Promise<unknown>, explain?: (error: unknown) => string) => Promise<void>
  /** Removes the message. */
  readonly clearFailure: () => void
}

/** An action that runs once at a time and reports its failure. */
export const useAttempt = (): Attempt => {
  const [isBusy, setBusy] = useState(false)
  const [failure, setFailure] = useState("")
  return {
    isBusy,
    failure,
    clearFailure: () => setFailure(""),
    run: async (work, explain = messageOf) => {
      if (isBusy) return
      setBusy(true)
      setFailure("")
      try {
        await work()
      } catch (error) {
        if (!isAbort(error)) setFailure(explain(error))
      } finally {
        setBusy(false)
      }
    }
  }
}
