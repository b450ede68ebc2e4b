/**
 * The events of a session as the gateway streams them over HTTP: the read side of the Durable Streams protocol, with
 * Server-Sent Events.
 *
 * @see https://github.com/durable-streams/durable-streams/blob/main/PROTOCOL.md
 */
import { ConnectionFailed } from "../Errors.ts"
import { readEvents } from "../EventStream.ts"
import { parse, type Requests } from "../Requests.ts"
import type { Position, SessionEvent } from "../SessionModel.ts"
import { isNumbered } from "./Link.ts"

/** The offset before the first event that is kept. */
export const firstOffset = "-1"

/** The offset after an event. No history has an epoch with a lone surrogate: all its events are needed. */
export const offsetOf = ({ epoch, seq }: Position): string => {
  try {
    return `${String(seq).padStart(16, "0")}_${encodeURIComponent(epoch)}`
  } catch {
    return firstOffset
  }
}

const epochOf = (offset: string): string => decodeURIComponent(offset.slice(offset.indexOf("_") + 1))

/** Consecutive events, and the position after them. */
export interface EventPage {
  readonly events: ReadonlyArray<SessionEvent>
  /** The size of each event in bytes, on average. */
  readonly eventBytes: number
  readonly offset: string
  readonly epoch: string
  /** The `seq` of the last event before the position. */
  readonly seq: number
  /** Whether the session is deleted. */
  readonly isClosed: boolean
}

/** What follows the events of a page. */
interface Control {
  readonly streamNextOffset: string
  readonly streamClosed?: boolean
}

const isControl = ({ streamNextOffset }: Control): boolean => /^\d{16}_/.test(streamNextOffset)

const pageOf = (data: string, control: string): EventPage => {
  const events = parse<ReadonlyArray<SessionEvent>>(data, events => events.every(isNumbered), JSON)
  const end = parse<Control>(control, isControl, JSON)
  if (events === undefined || end === undefined) {
    throw new ConnectionFailed("An event is not what the gateway sends", false)
  }
  const { streamClosed = false, streamNextOffset: offset } = end
  const eventBytes = Math.ceil((2 * data.length) / Math.max(1, events.length))
  return {
    events,
    eventBytes,
    offset,
    epoch: epochOf(offset),
    seq: Number(offset.slice(0, 16)),
    isClosed: streamClosed
  }
}

/** The pages after an offset, while one event stream lasts. */
export async function* readPages(
  requests: Requests,
  path: string,
  offset: string,
  signal: AbortSignal
): AsyncGenerator<EventPage, void> {
  let data = "[]"
  const request = { path: `${path}/events`, query: { offset, live: "sse" } }
  for await (const events of readEvents(requests, request, signal)) {
    for (const event of events) {
      if (event.type === "data") data = event.data
      if (event.type !== "control") continue
      yield pageOf(data, event.data)
      data = "[]"
    }
  }
}
