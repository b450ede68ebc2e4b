/** The events of a session that are kept to be shown, and those of them that a search finds. */
import type { SessionEvent } from "../../Client/Client.ts"

/** The bounds of what is kept; the oldest events make room. */
export interface Bounds {
  readonly events: number
  /** Characters of the events as JSON text. */
  readonly characters: number
}

export const bounds: Bounds = { events: 100_000, characters: 64 * 1024 * 1024 }

/** The share that is removed at once, so that not each event moves all others. */
const portion = 1 / 20

export class EventLog {
  readonly #events: Array<SessionEvent> = []
  readonly #sizes: Array<number> = []
  #characters = 0

  constructor(private readonly most: Bounds = bounds) {}

  /** In the order of their numbers. */
  get events(): ReadonlyArray<SessionEvent> {
    return this.#events
  }

  /** Returns the characters of the event as JSON text. */
  add(event: SessionEvent): number {
    const size = JSON.stringify(event).length
    this.#events.push(event)
    this.#sizes.push(size)
    this.#characters += size
    const { characters, events } = this.most
    if (this.#events.length > events || this.#characters > characters) this.#makeRoom()
    return size
  }

  /** Removes the oldest events. The newest one stays, whatever its size. */
  #makeRoom(): void {
    const events = this.most.events * (1 - portion)
    const characters = this.most.characters * (1 - portion)
    let removed = 0
    while (
      removed < this.#events.length - 1 &&
      (this.#events.length - removed > events || this.#characters > characters)
    ) {
      this.#characters -= this.#sizes[removed]!
      removed++
    }
    this.#events.splice(0, removed)
    this.#sizes.splice(0, removed)
  }
}

/** What an event has beside its envelope, as JSON text. */
const bodyOf = ({ seq, sessionId, timestamp, traceId, type, ...body }: SessionEvent): string => JSON.stringify(body)

/** Events that are searched at once: a few milliseconds. */
const searchedAtOnce = 2000

/** The place of the first event after a number. */
const indexAfter = (events: ReadonlyArray<SessionEvent>, seq: number): number => {
  let low = 0
  let high = events.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (events[middle]!.seq <= seq) low = middle + 1
    else high = middle
  }
  return low
}

/** The events whose type or content has a text in it, in any case. They are searched part by part, the oldest first. */
export class EventSearch {
  readonly #found: Array<SessionEvent> = []
  readonly #wanted: string
  #searched = 0

  constructor(text: string) {
    this.#wanted = text.toLowerCase()
  }

  /** The events that were found so far, in the order of their numbers. */
  get found(): ReadonlyArray<SessionEvent> {
    return this.#found
  }

  /** Searches more of what is kept. Returns whether all was searched. */
  search(events: ReadonlyArray<SessionEvent>): boolean {
    this.#forget(events[0]?.seq ?? 0)
    const from = indexAfter(events, this.#searched)
    const to = Math.min(events.length, from + searchedAtOnce)
    for (let index = from; index < to; index++) {
      const event = events[index]!
      if (this.#isWanted(event)) this.#found.push(event)
      this.#searched = event.seq
    }
    return to === events.length
  }

  #isWanted(event: SessionEvent): boolean {
    return event.type.includes(this.#wanted) || bodyOf(event).toLowerCase().includes(this.#wanted)
  }

  /** Forgets what is no longer kept. */
  #forget(oldest: number): void {
    const gone = indexAfter(this.#found, oldest - 1)
    if (gone > 0) this.#found.splice(0, gone)
  }
}
