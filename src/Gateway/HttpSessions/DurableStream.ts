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

/**
 * The offsets of a history, opaque for clients: 16 digits of the `seq`, and the epoch, with only what is allowed in an
 * offset and in JSON.
 */
export const offsetsOf = (epoch: string): ((seq: number) => string) => {
  const suffix = `_${encodeURIComponent(epoch)}`
  return seq => String(seq).padStart(digits, "0") + suffix
}

/** The offset of a position. */
export const offsetOf = ({ epoch, seq }: Position): string => offsetsOf(epoch)(seq)

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
  private interval = -1
  private text = ""

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
    const interval = intervalOf(now)
    if (interval !== this.interval) {
      this.interval = interval
      this.text = String(Math.max(this.least, interval))
    }
    return this.text
  }
}

/** The end of an answer. */
export interface End {
  /** That of the next request; see {@link offsetOf}. */
  readonly offset: string
  /** Whether it has the newest event. */
  readonly isUpToDate: boolean
  /** Whether there can be no further events. */
  readonly isClosed: boolean
  /** Only for live answers. */
  readonly cursor?: string | undefined
}

/** The headers of an answer, names in lower case. */
export const headersOf = ({ cursor, isClosed, isUpToDate, offset }: End): Readonly<Record<string, string>> => ({
  "stream-next-offset": offset,
  ...(isUpToDate ? { "stream-up-to-date": "true" } : {}),
  ...(isClosed ? { "stream-closed": "true" } : {}),
  ...(cursor === undefined ? {} : { "stream-cursor": cursor })
})

/** The entity tag of an answer with the events after an offset. */
export const etagOf = (from: string, { isClosed, offset }: End): string => `"${from}:${offset}${isClosed ? ":c" : ""}"`

/** Whether a client has the answer with a tag, by its `If-None-Match` (RFC 9110, 13.1.2): proxies make tags weak. */
export const isKnown = (ifNoneMatch: string | undefined, etag: string): boolean =>
  ifNoneMatch?.split(",").some(tag => ["*", etag, `W/${etag}`].includes(tag.trim())) === true

/** The `control` event after data, or at the start of a stream that is up to date. No part of it has to be escaped. */
export const controlEvent = ({ cursor, isClosed, isUpToDate, offset }: End): string =>
  `event: control\ndata: {"streamNextOffset":"${offset}"${
    cursor === undefined || isClosed ? "" : `,"streamCursor":"${cursor}"`
  }${isUpToDate ? ',"upToDate":true' : ""}${isClosed ? ',"streamClosed":true' : ""}}\n\n`

/** The texts of events between two others in ASCII, with commas. Each delivery makes one of them. */
const listed = (before: string, events: ReadonlyArray<{ readonly data: Uint8Array }>, after: string): Buffer => {
  let bytes = before.length + Math.max(0, events.length - 1) + after.length
  for (const { data } of events) bytes += data.length
  const list = Buffer.allocUnsafe(bytes)
  let at = list.write(before, 0, "latin1")
  for (let index = 0; index < events.length; index++) {
    const { data } = events[index]!
    if (index > 0) list[at++] = 0x2c
    list.set(data, at)
    at += data.length
  }
  list.write(after, at, "latin1")
  return list
}

/** The JSON array of events. */
export const arrayOf = (events: ReadonlyArray<{ readonly data: Uint8Array }>): Buffer => listed("[", events, "]")

/** A `data` event with events, if there are any, and the `control` event after it. */
export const eventsOf = (events: ReadonlyArray<{ readonly data: Uint8Array }>, end: End): Buffer => {
  const control = controlEvent(end)
  return events.length === 0 ? Buffer.from(control) : listed("event: data\ndata: [", events, `]\n\n${control}`)
}
