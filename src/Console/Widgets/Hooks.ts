/** State that components share the handling of: work, what is typed, and the current time. */
import { signal } from "@preact/signals"
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { guard } from "../Service/Navigation.ts"

/** Runs work until the inputs change or the component is removed, which aborts the signal. */
export const useWork = (
  work: (ended: AbortSignal) => Promise<unknown>,
  onFailure: (message: string) => void,
  inputs: ReadonlyArray<unknown>
): void =>
  useEffect(() => {
    const ended = new AbortController()
    work(ended.signal).catch((error: unknown) => {
      if (!isAbort(error)) onFailure(messageOf(error))
    })
    return () => ended.abort()
  }, inputs)

/** Calls `ask` before the user leaves the view, as long as `isNeeded`. */
export const useGuard = (isNeeded: boolean, ask: (leave: () => void) => void): void => {
  const latest = useRef(ask)
  latest.current = ask
  // A layout effect runs before the next event, which may leave the view.
  useLayoutEffect(() => (isNeeded ? guard(leave => latest.current(leave)) : undefined), [isNeeded])
}

/** An action of the user that runs once at a time, and why it failed the last time; `""` if it did not. */
export const useAttempt = () => {
  const [isBusy, setBusy] = useState(false)
  const [failure, setFailure] = useState("")
  /** Runs the action, unless it is running. `explain` makes the message of an error. */
  const run = async (work: () => Promise<unknown>, explain = messageOf): Promise<void> => {
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
  return { isBusy, failure, run, clearFailure: () => setFailure("") }
}

const delayMs = 200

/** A value after it has not changed for 200 ms, such as a text that is being typed. */
export const useDebounced = <A>(value: A): A => {
  const [debounced, setDebounced] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setDebounced(value), delayMs)
    return () => clearTimeout(timer)
  }, [value])
  return debounced
}

const everyMs = 10_000

/** Epoch milliseconds, updated every 10 seconds. */
export const now = signal(Date.now())

setInterval(() => {
  if (!document.hidden) now.value = Date.now()
}, everyMs)
