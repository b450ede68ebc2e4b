import { useState } from "preact/hooks"
import { isAbort, messageOf } from "../Service/Failure.ts"

/** Something that the user tries, one time after the other, and what went wrong the last time. */
export interface Attempt {
  readonly isBusy: boolean
  readonly failure: string
  /** Tries it, unless it is being tried. */
  readonly run: (work: () => Promise<unknown>, explain?: (error: unknown) => string) => Promise<void>
  /** Takes back what is said of the last failure. */
  readonly forgive: () => void
}

export const useAttempt = (): Attempt => {
  const [isBusy, setBusy] = useState(false)
  const [failure, setFailure] = useState("")
  return {
    isBusy,
    failure,
    forgive: () => setFailure(""),
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
