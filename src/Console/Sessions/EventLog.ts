/** The events of a session that the page keeps, and a search of them. */
import type { SessionEvent } from "../../Client/Client.ts"

/** The limits of the log: events, and their characters as JSON text. The oldest events are removed first. */
const bounds = { events: 100_000, characters: 64 * 1024 * 1024 }

/** The share of the log that is removed together, because each removal moves all other events. */
const portion = 1 / 20

export class EventLog {
  readonly #events: Array<SessionEvent> = []
  readonly #sizes: Array<number> = []
  #characters = 0

  constructor(private readonly max = bounds) {}

  get events(): ReadonlyArray<SessionEvent> {
    return this.#events
  }

  add(event: SessionEvent): void {
    const size = JSON.stringify(event).length
    this.#events.push(event)
    this.#sizes.push(size)
    this.#characters += size
    const { characters, events } = this.max
    if (this.#events.length > events || this.#characters > characters) this.#removeOldest()
  }

  /** Adds events from before the others. Returns false if they have no room, or others are between them. */
  prepend(older: ReadonlyArray<SessionEvent>): boolean {
    const sizes = older.map(event => JSON.stringify(event).length)
    const characters = this.#characters + sizes.reduce((sum, size) => sum + size, 0)
    const [first] = this.#events
    const isNext = first === undefined || older.length === 0 || older.at(-1)!.seq + 1 === first.seq
    const { characters: maxCharacters, events } = this.max
    if (!isNext || characters > maxCharacters || older.length + this.#events.length > events) return false
    this.#events.unshift(...older)
    this.#sizes.unshift(...sizes)
    this.#characters = characters
    return true
  }

  /** Removes the oldest events, but never the newest one. */
  #removeOldest(): void {
    const events = this.max.events * (1 - portion)
    const characters = this.max.characters * (1 - portion)
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

/** An event without its envelope, as JSON text. */
const bodyOf = ({ seq, sessionId, timestamp, traceId, type, ...body }: SessionEvent): string => JSON.stringify(body)

/** The number of events in a portion of the search, which takes a few milliseconds. */
const portionSize = 2000

/** The index of the first event after a `seq`. */
const indexAfter = (events: ReadonlyArray<SessionEvent>, seq: number): number =>
  events.findLastIndex(event => event.seq <= seq) + 1

/**
 * Searches the types and contents of events for a text, ignoring case. It searches in portions: first those that it has
 * when it starts and newer ones, and then those that were added before them.
 */
export class EventSearch {
  readonly #found: Array<SessionEvent> = []
  readonly #text: string
  /** The numbers of the first and the last event that were searched. */
  #first: number | undefined
  #searched = 0

  constructor(text: string) {
    this.#text = text.toLowerCase()
  }

  get found(): ReadonlyArray<SessionEvent> {
    return this.#found
  }

  /** Searches the next portion. Returns whether all events have been searched. */
  search(events: ReadonlyArray<SessionEvent>): boolean {
    const oldest = events[0]?.seq ?? 0
    this.#removeBefore(oldest)
    const from = indexAfter(events, this.#searched)
    const to = Math.min(events.length, from + portionSize)
    if (from < to) {
      this.#found.push(...this.#matching(events, from, to))
      this.#first ??= events[from]!.seq
      this.#searched = events[to - 1]!.seq
    } else if (this.#first !== undefined && oldest < this.#first) {
      const end = indexAfter(events, this.#first - 1)
      const start = Math.max(0, end - portionSize)
      this.#found.unshift(...this.#matching(events, start, end))
      this.#first = events[start]!.seq
    }
    return to === events.length && (this.#first ?? 0) <= oldest
  }

  #matching(events: ReadonlyArray<SessionEvent>, from: number, to: number): ReadonlyArray<SessionEvent> {
    return events.slice(from, to).filter(event => this.#matches(event))
  }

  #matches(event: SessionEvent): boolean {
    return event.type.includes(this.#text) || bodyOf(event).toLowerCase().includes(this.#text)
  }

  #removeBefore(oldest: number): void {
    const removed = indexAfter(this.#found, oldest - 1)
    if (removed > 0) this.#found.splice(0, removed)
  }
}
