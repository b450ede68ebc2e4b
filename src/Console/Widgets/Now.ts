/** The current time, for texts such as `5 min ago`. */
import { signal } from "@preact/signals"

const everyMs = 10_000

/** Epoch milliseconds, updated every 10 seconds. */
export const now = signal(Date.now())

setInterval(() => {
  if (!document.hidden) now.value = Date.now()
}, everyMs)
