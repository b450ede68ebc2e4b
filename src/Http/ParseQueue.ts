/**
 * Limits the bytes of large bodies that are parsed in one iteration of the event loop, so that other requests are served
 * in between.
 */

/** Bytes up to which a body is parsed without queueing, which would take as long. */
export const small = 32 * 1024

/** Bytes that are parsed in one iteration, unless a single body has more. */
const mostBytes = 1024 * 1024

interface Waiting {
  readonly bytes: number
  readonly parse: () => void
}

const waiting: Array<Waiting> = []
/** Bytes that were parsed in this iteration. */
let parsed = 0
let isScheduled = false

/** Parses a body: at once if this iteration has room for its bytes, else behind those that wait. */
export const add = (bytes: number, parse: () => void): void => {
  if (waiting.length > 0 || (parsed > 0 && parsed + bytes > mostBytes)) {
    waiting.push({ bytes, parse })
    return
  }
  parsed += bytes
  if (!isScheduled) {
    isScheduled = true
    setImmediate(onIteration)
  }
  parse()
}

const onIteration = (): void => {
  parsed = 0
  isScheduled = waiting.length > 0
  // First, so that the queue goes on if a parse throws.
  if (isScheduled) setImmediate(onIteration)
  while (waiting.length > 0 && (parsed === 0 || parsed + waiting[0]!.bytes <= mostBytes)) {
    const { bytes, parse } = waiting.shift()!
    parsed += bytes
    parse()
  }
}
