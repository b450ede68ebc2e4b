/**
 * Lists: pages, and whole ones from a snapshot that lasts over several iterations of the event loop.
 */
import { Clock, type Context, Effect, Option, Stream } from "effect"
import * as Direct from "../../../Direct.ts"
import { yieldToEventLoop } from "../../../EventLoop.ts"
import { type ListPage, type Selection, type Store, StoreUnavailable } from "../../../Kv/Store.ts"
import type { Reader } from "../Database/Reader.ts"
import type { Snapshot } from "../Database/Snapshots.ts"
import type { EntryQuery, Queries } from "./Queries.ts"

/** A portion of a whole list: small, so that a client with a slow connection reads one in time. */
const portionSize = { limit: 1000, size: 256 * 1024 }

/** Keys that are counted in one iteration of the event loop: some two milliseconds. */
const countedAtOnce = 20_000

/** A page, and how many entries its list has, or where to count on. */
const readPage = (queries: Queries, query: EntryQuery, epoch: string): ListPage & { readonly next?: string } => {
  const { after, isCounted = false, now } = query
  const page = { ...queries.entries(query), lastSeq: queries.lastSeq(), epoch }
  if (!isCounted) return page
  if (after === "" && !page.more) return { ...page, count: page.entries.length }
  const { count, next } = queries.count(query, countedAtOnce)
  return next === undefined ? { ...page, count: count - queries.countDue(query, now) } : { ...page, next }
}

/** How many entries a selection has, counted with other requests in between. */
const countAll = ({ snapshots }: Reader<Queries>, snapshot: Snapshot<Queries>, selection: Selection, now: number) =>
  Effect.gen(function* () {
    let total = 0
    for (let from: string | undefined = ""; from !== undefined; ) {
      const start: string = from
      const { count, next } = yield* snapshots.read(snapshot, queries => queries.count(selection, countedAtOnce, start))
      total += count
      from = next
      yield* yieldToEventLoop
    }
    return total - (yield* snapshots.read(snapshot, queries => queries.countDue(selection, now)))
  })

/** Reads pages. To count more entries than one iteration should takes a snapshot. */
export const page = (reader: Reader<Queries>, epoch: () => string): Context.Tag.Service<Store>["list"] => {
  const { snapshots } = reader
  return query => {
    const short = reader.read((queries, now) => queries.inSnapshot(() => readPage(queries, { ...query, now }, epoch())))
    if (query.isCounted !== true) return short
    return Direct.flatMap(short, ({ next, ...page }) =>
      next === undefined
        ? Effect.succeed(page)
        : Effect.scoped(
            Effect.gen(function* () {
              const now = yield* Clock.currentTimeMillis
              const snapshot = yield* snapshots.take
              const { next: _, ...page } = yield* snapshots.read(snapshot, queries =>
                readPage(queries, { ...query, now }, epoch())
              )
              return { ...page, count: yield* countAll(reader, snapshot, query, now) }
            })
          ).pipe(
            Effect.catchTag("StoreBusy", () => new StoreUnavailable({ reason: "no snapshot is free to count entries" }))
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
      const snapshot = yield* snapshots.take
      const { epoch, lastSeq } = yield* snapshots.read(snapshot, queries => ({
        epoch: epochNow(),
        lastSeq: queries.lastSeq()
      }))
      const count = query.isCounted === true ? { count: yield* countAll(reader, snapshot, query, now) } : {}
      const portion = (after: string) =>
        snapshots.read(snapshot, queries => {
          const rows = queries.entries({ ...query, ...portionSize, after, now })
          // A list that has been read to its end needs no snapshot, however long the scope lasts.
          if (!rows.more) snapshots.release(snapshot)
          return rows
        })
      const portions = Stream.paginateEffect("", after =>
        // A client on a fast connection takes each portion at once; other requests are served in between all the same.
        Effect.map(Effect.zipRight(yieldToEventLoop, portion(after)), ({ entries, more }) => [
          entries,
          more ? Option.some(entries.at(-1)!.key) : Option.none()
        ])
      )
      return { lastSeq, epoch, portions, ...count }
    })
