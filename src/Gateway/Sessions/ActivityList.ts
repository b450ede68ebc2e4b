/**
 * Lists of a tenant's sessions by their activity, the last active first, in pages that skip no session.
 *
 * A session that becomes active while a client pages moves ahead of the sessions that the client has read. So a cursor
 * has a bound, from which the sessions that were active since the first page follow those of the order itself, the last
 * active last: those that move again are still ahead then. A session may be listed twice, with its newer state.
 */
import { Array as Arr, Clock, type Context, Duration, Effect, Option, Schema } from "effect"
import { decode } from "../../Kv/Entry.ts"
import type { Store, StoreUnavailable } from "../../Kv/Store.ts"
import { cursorChars } from "../Protocol/Limits.ts"
import type { ActivePosition, ActiveQuery, SessionEvents } from "../SessionEvents.ts"
import { InvalidCursor, type ListSessions } from "../Sessions.ts"
import { addressOf, isSessionId, keyOf, namespaceOf, readRecord, type SessionRecord } from "./Session/SessionRecords.ts"

/**
 * How much later than its timestamp an event may be stored, in milliseconds: the clocks of nodes differ, and appends wait
 * for the store. The bound is as much before the first page.
 */
const lateness = Duration.toMillis("1 minute")

/** Maximum bytes of the records of one read. */
const recordBytes = 1024 * 1024

/** Maximum number of reads of one page. Sessions without a valid record make several reads necessary. */
const maxReads = 4

type Filter = ActiveQuery["filter"]

/** Where a page begins. */
interface Position extends ActivePosition {
  /** Whether sessions follow that were active before the position, or after it. */
  readonly direction: "before" | "after"
  /** When the first page was read, minus the lateness. */
  readonly bound: number
}

const filters = ["running", "waiting", "failed"] as const

/** The filter of a request. Its members have one order, since cursors contain it. */
export const filterOf = (request: ListSessions): Filter =>
  Object.fromEntries(filters.flatMap(name => (request[name] === undefined ? [] : [[name, request[name]]])))

const CursorText = Schema.parseJson(
  Schema.Struct({
    at: Schema.Int,
    id: Schema.String.pipe(Schema.filter(id => id === "" || isSessionId(id))),
    direction: Schema.Literal("before", "after"),
    bound: Schema.Int
  })
)

/** No key of an entry has it, so that a cursor of another order is not one of this order. */
const mark = "\u0000"

const encodeCursor = ({ at, bound, direction, session }: Position, filter: Filter): string => {
  const [, id] = addressOf(session)
  return Buffer.from(mark + JSON.stringify({ at, id, direction, bound, filter })).toString("base64url")
}

const decodeText = Schema.decodeOption(CursorText)

/** The position of a cursor that was made for the same filter. */
const decodeCursor = (tenant: string, cursor: string, filter: Filter): Effect.Effect<Position, InvalidCursor> =>
  Effect.suspend(() => {
    const text = Buffer.from(cursor, "base64url").toString()
    const isOfOrder = cursor.length <= cursorChars && text.startsWith(mark)
    const decoded = isOfOrder ? Option.getOrUndefined(decodeText(text.slice(mark.length))) : undefined
    if (decoded === undefined) return new InvalidCursor()
    const { at, bound, direction, id } = decoded
    const position = { at, bound, direction, session: keyOf(tenant, id) }
    // The text has the filter too.
    return encodeCursor(position, filter) === cursor ? Effect.succeed(position) : new InvalidCursor()
  })

/** The records of sessions; none for one without a valid record. */
type Records = ReadonlyArray<Option.Option<SessionRecord>>

/** The records of as many of the sessions, in their order, as are read at a time; at least of the first. */
const recordsOf = (
  store: Context.Tag.Service<Store>,
  tenant: string,
  sessions: ReadonlyArray<ActivePosition>
): Effect.Effect<Records, StoreUnavailable> => {
  const ids = sessions.map(({ session }) => addressOf(session)[1])
  const addresses = ids.map(key => ({ namespace: namespaceOf(tenant), key }))
  return store.getMany(addresses, recordBytes).pipe(
    Effect.map(({ entries }) =>
      entries.map((entry, index) =>
        entry === undefined ? Option.none() : readRecord(tenant, ids[index]!, decode(entry).value)
      )
    ),
    // Clients of the key-value store can write large values. One of this size is no record.
    Effect.catchTag("EntriesTooLarge", () =>
      sessions.length === 1
        ? Effect.succeed([Option.none()])
        : recordsOf(store, tenant, sessions.slice(0, Math.ceil(sessions.length / 2)))
    )
  )
}

/** The sources of the list. */
interface Sources {
  readonly store: Context.Tag.Service<Store>
  readonly events: Pick<Context.Tag.Service<SessionEvents>, "active">
}

/** A page of records. A session whose record is gone is left out, so that a page may be short. */
export interface RecordPage {
  readonly records: ReadonlyArray<SessionRecord>
  /** Absent on the last page. */
  readonly cursor: string | undefined
}

/** Reads a page of the list. */
export const pageOf = (
  { events, store }: Sources,
  tenant: string,
  limit: number,
  { cursor, ...request }: ListSessions
): Effect.Effect<RecordPage, InvalidCursor | StoreUnavailable> =>
  Effect.gen(function* () {
    const filter = filterOf(request)
    const now = Math.trunc(yield* Clock.currentTimeMillis)
    const first: Position = {
      ...{ at: Number.MAX_SAFE_INTEGER, session: keyOf(tenant, "") },
      ...{ direction: "before", bound: now - lateness }
    }
    let position = cursor === undefined ? first : yield* decodeCursor(tenant, cursor, filter)
    const records = new Map<string, SessionRecord>()
    let isCut = false
    for (let reads = 0; reads < maxReads && records.size < limit && !isCut; reads++) {
      const { at, direction, session } = position
      const rest = limit - records.size
      const from = direction === "before" ? { before: { at, session } } : { after: { at, session } }
      const found = yield* events.active({ tenant, limit: rest + 1, from, filter })
      const sessions = found.slice(0, rest)
      const read = sessions.length === 0 ? [] : yield* recordsOf(store, tenant, sessions)
      for (const record of Arr.getSomes(read)) records.set(record.id, record)
      const isAtEnd = read.length === found.length
      isCut = read.length < sessions.length
      // One read is a snapshot, so that no session has moved.
      if (isAtEnd && (direction === "after" || position === first)) {
        return { records: [...records.values()], cursor: undefined }
      }
      position = isAtEnd
        ? { at: position.bound, session: keyOf(tenant, ""), direction: "after", bound: position.bound }
        : { ...position, ...sessions[read.length - 1]! }
    }
    return { records: [...records.values()], cursor: encodeCursor(position, filter) }
  })
