/**
 * Large bodies are parsed a few at a time, so that many that arrive together do not hold up everybody else: whatever
 * is ready is served between two turns of the event loop.
 */

/** Bytes up to which a body is parsed as it arrives, which takes no longer than to queue it. */
export const small = 32 * 1024

/** Bytes that are parsed in one turn, unless a single body has more. */
const mostBytes = 1024 * 1024

interface Waiting {
  readonly bytes: number
  readonly parse: () => void
}

const waiting: Array<Waiting> = []
/** Bytes that were parsed in this turn. */
let parsed = 0
let isScheduled = false

/** Parses a body of so many bytes: now if this turn has time for it, else behind those that wait already. */
export const take = (bytes: number, parse: () => void): void => {
  if (waiting.length > 0 || (parsed > 0 && parsed + bytes > mostBytes)) {
    waiting.push({ bytes, parse })
    return
  }
  parsed += bytes
  if (!isScheduled) {
    isScheduled = true
    setImmediate(nextTurn)
  }
  parse()
}

const nextTurn = (): void => {
  parsed = 0
  isScheduled = waiting.length > 0
  // First, so that one that throws does not keep the others from their turn.
  if (isScheduled) setImmediate(nextTurn)
  while (waiting.length > 0 && (parsed === 0 || parsed + waiting[0]!.bytes <= mostBytes)) {
    const { bytes, parse } = waiting.shift()!
    parsed += bytes
    parse()
  }
}
