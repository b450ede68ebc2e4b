/**
 * The read side of the Durable Streams protocol: offsets, cursors, and the headers and control events of its answers.
 * Pure.
 *
 * @see https://github.com/durable-streams/durable-streams/blob/main/PROTOCOL.md
 */
import { Either } from "effect"

/** A position in the history of a session. */
export interface Position {
  readonly epoch: string
  /** The last event before the position. */
  readonly seq: number
}

/** Where a read starts: at the first event that is kept, after the newest one, or after a known one. */
export type Start = "first" | "now" | Position

/** The digits of a `seq`, so that the offsets of one history sort as its events do. */
const digits = 16

/** Opaque for clients: 16 digits of the `seq`, and the epoch. The epoch contains only what is allowed in an offset. */
export const offsetOf = ({ epoch, seq }: Position): string =>
  `${String(seq).padStart(digits, "0")}_${encodeURIComponent(epoch)}`

const pattern = /^(\d{16})_([^,&=?/]{1,200})$/

/** Parses the query parameter `offset`. */
export const startOf = (offset: string | undefined): Either.Either<Start, string> => {
  if (offset === undefined || offset === "-1") return Either.right("first")
  if (offset === "now") return Either.right("now")
  const [, seq, epoch = ""] = pattern.exec(offset) ?? []
  const position = { epoch: decoded(epoch), seq: Number(seq) }
  return seq !== undefined && Number.isSafeInteger(position.seq) && offsetOf(position) === offset
    ? Either.right(position)
    : Either.left("offset must be -1, now or the offset of an earlier answer")
}

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text)
  } catch {
    return ""
  }
}

/** Cursors count intervals of 20 seconds from this time, in epoch milliseconds. */
const cursorEpoch = Date.UTC(2024, 9, 9)
const cursorMillis = 20_000

const intervalOf = (now: number): number => Math.max(0, Math.floor((now - cursorEpoch) / cursorMillis))

/** The largest step of a cursor that would stand still, in intervals: an hour. */
const longestStep = 180

/**
 * The cursor of live answers, by which caches distinguish polls. It is greater than that of the client, and never
 * decreases.
 */
export class Cursor {
  private readonly least: number

  /**
   * @param now epoch milliseconds
   * @param client the cursor of the client
   * @param random from 0 to 1
   */
  constructor(now: number, client: string | undefined, random: () => number) {
    const last = client !== undefined && /^\d{1,15}$/.test(client) ? Number(client) : -1
    this.least = last < intervalOf(now) ? 0 : last + 1 + Math.floor(random() * longestStep)
  }

  /** @param now epoch milliseconds */
  at(now: number): string {
    return String(Math.max(this.least, intervalOf(now)))
  }
}

/** The end of an answer. */
export interface End {
  readonly position: Position
  /** Whether it has the newest event. */
  readonly isUpToDate: boolean
  /** Whether there can be no further events. */
  readonly isClosed: boolean
  /** Only for live answers. */
  readonly cursor?: string | undefined
}

/** The headers of an answer, names in lower case. */
export const headersOf = ({ cursor, isClosed, isUpToDate, position }: End): Readonly<Record<string, string>> => ({
  "stream-next-offset": offsetOf(position),
  ...(isUpToDate ? { "stream-up-to-date": "true" } : {}),
  ...(isClosed ? { "stream-closed": "true" } : {}),
  ...(cursor === undefined ? {} : { "stream-cursor": cursor })
})

/** The entity tag of an answer with the events between two positions. */
export const etagOf = (from: Position, { isClosed, position }: End): string =>
  `"${offsetOf(from)}:${position.seq}${isClosed ? ":c" : ""}"`

/** The `control` event after data, or at the start of a stream that is up to date. */
export const controlEvent = ({ cursor, isClosed, isUpToDate, position }: End): string =>
  `event: control\ndata: ${JSON.stringify({
    streamNextOffset: offsetOf(position),
    ...(cursor === undefined || isClosed ? {} : { streamCursor: cursor }),
    ...(isUpToDate ? { upToDate: true } : {}),
    ...(isClosed ? { streamClosed: true } : {})
  })}\n\n`

/** Bytes between others: those of JSON arrays, and of events whose data they are. */
const [open, comma, close, eventOpen, eventClose] = ["[", ",", "]", "event: data\ndata: [", "]\n\n"].map(text =>
  new TextEncoder().encode(text)
) as [Uint8Array, Uint8Array, Uint8Array, Uint8Array, Uint8Array]

const joined = (before: Uint8Array, texts: ReadonlyArray<Uint8Array>, after: ReadonlyArray<Uint8Array>): Buffer => {
  const parts = [before]
  for (const text of texts) {
    if (parts.length > 1) parts.push(comma)
    parts.push(text)
  }
  return Buffer.concat([...parts, ...after])
}

/** The JSON array of the texts of events. */
export const arrayOf = (texts: ReadonlyArray<Uint8Array>): Buffer => joined(open, texts, [close])

/** A `data` event with the texts of events, if there are any, and the `control` event after it. */
export const eventsOf = (texts: ReadonlyArray<Uint8Array>, end: End): Buffer => {
  const control = Buffer.from(controlEvent(end))
  return texts.length === 0 ? control : joined(eventOpen, texts, [eventClose, control])
}
