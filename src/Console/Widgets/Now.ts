/** The time as it is told beside things that happened some time ago. */
import { signal } from "@preact/signals"

const everyMs = 10_000

/** Epoch milliseconds, at most some seconds old. */
export const now = signal(Date.now())

setInterval(() => {
  if (!document.hidden) now.value = Date.now()
}, everyMs)
