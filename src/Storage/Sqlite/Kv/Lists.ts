/**
 * Lists: pages, and whole lists from a snapshot that lasts over several iterations of the event loop.
 */
import { Clock, type Context, Effect, Exit, Option, Stream } from "effect"
import * as Direct from "../../../Direct.ts"
import { yieldToEventLoop } from "../../../EventLoop.ts"
import { tenantOf } from "../../../Kv/Entry.ts"
import { type ListPage, type Selection, type Store, StoreUnavailable } from "../../../Kv/Store.ts"
import * as Monotonic from "../../../Monotonic.ts"
import type { EntryQuery } from "../../EntryRows.ts"
import type { Snapshot } from "../Database/Reader/Snapshots.ts"
import type { Reader } from "../Database/Reader.ts"
import type { Queries } from "./Queries.ts"

/** The size of a portion of a whole list. It is small, so that a client with a slow connection reads it in time. */
const portionSize = { limit: 1000, size: 256 * 1024 }

/**
 * The number of names in an index, or of rows, that are counted in one iteration of the event loop, which takes some
 * milliseconds.
 */
const namesAtOnce = 20_000
const rowsAtOnce = 4000

/** The timeout of a count. */
const countTimeoutMillis = 60_000

/** The maximum number of expired entries that are counted separately. */
const dueAtOnce = 2000

/** A page, and whether its entries must still be counted. */
const readPage = (queries: Queries, query: EntryQuery, epoch: string): ListPage & { readonly isCounting?: true } => {
  const { after, isCounted = false, now } = query
  const page = { ...queries.entries(query), lastSeq: queries.lastSeq(), epoch }
  if (!isCounted) return page
  if (after === "" && !page.more) return { ...page, count: page.entries.length }
  const due = queries.countDue(query, dueAtOnce, now)
  if (due === undefined) return { ...page, isCounting: true }
  const { count, next } = queries.countNames(query, namesAtOnce)
  return next === undefined ? { ...page, count: count - due } : { ...page, isCounting: true }
}

/** The number of entries of a selection, counted with other requests in between. */
const countAll = ({ snapshots }: Reader<Queries>, snapshot: Snapshot<Queries>, selection: Selection, now: number) =>
  Effect.gen(function* () {
    const startedAt = yield* Monotonic.millis
    const due = yield* snapshots.read(snapshot, queries => queries.countDue(selection, dueAtOnce, now))
    let total = due === undefined ? 0 : -due
    for (let from: string | undefined = ""; from !== undefined; ) {
      const start: string = from
      const { count, next } = yield* snapshots.read(snapshot, queries =>
        due === undefined
          ? queries.countVisible(selection, rowsAtOnce, now, start)
          : queries.countNames(selection, namesAtOnce, start)
      )
      total += count
      from = next
      yield* yieldToEventLoop
      if ((yield* Monotonic.millis) - startedAt > countTimeoutMillis) {
        return yield* new StoreUnavailable({ reason: `counting took longer than ${countTimeoutMillis} ms` })
      }
    }
    return total
  })

/** Reads pages. A count that is too large for one iteration takes a snapshot. */
export const page = (reader: Reader<Queries>, epoch: () => string): Context.Tag.Service<Store>["list"] => {
  const { snapshots } = reader
  return query => {
    const short = reader.read((queries, now) => queries.inSnapshot(() => readPage(queries, { ...query, now }, epoch())))
    if (query.isCounted !== true) return short
    return Direct.flatMap(short, ({ isCounting, ...page }) =>
      isCounting === undefined
        ? Exit.succeed(page)
        : Effect.scoped(
            Effect.gen(function* () {
              const now = yield* Clock.currentTimeMillis
              const snapshot = yield* snapshots.take(tenantOf(query.namespace))
              const { isCounting: _, ...page } = yield* snapshots.read(snapshot, queries =>
                readPage(queries, { ...query, now, isCounted: false }, epoch())
              )
              return { ...page, count: yield* countAll(reader, snapshot, query, now) }
            })
          )
    )
  }
}

/** Reads whole lists, in portions. */
export const whole =
  (reader: Reader<Queries>, epochNow: () => string): Context.Tag.Service<Store>["listAll"] =>
  query =>
    Effect.gen(function* () {
      const { snapshots } = reader
      const now = yield* Clock.currentTimeMillis
      const snapshot = yield* snapshots.take(tenantOf(query.namespace))
      const { epoch, lastSeq } = yield* snapshots.read(snapshot, queries => ({
        epoch: epochNow(),
        lastSeq: queries.lastSeq()
      }))
      const count = query.isCounted === true ? { count: yield* countAll(reader, snapshot, query, now) } : {}
      const portion = (after: string) =>
        snapshots.read(snapshot, queries => {
          const rows = queries.entries({ ...query, ...portionSize, after, now })
          // A list that was read to its end needs no snapshot, even if the scope lasts longer.
          if (!rows.more) snapshots.release(snapshot)
          return rows
        })
      const portions = Stream.paginateEffect("", after =>
        // A client on a fast connection takes each portion at once. Other requests must run in between.
        Effect.map(Effect.zipRight(yieldToEventLoop, portion(after)), ({ entries, more }) => [
          entries,
          more ? Option.some(entries.at(-1)!.key) : Option.none()
        ])
      )
      return { lastSeq, epoch, portions, ...count }
    })
