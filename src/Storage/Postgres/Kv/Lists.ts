/**
 * Lists of entries: pages, and whole lists from a snapshot.
 */
import { type Context, Effect, Exit, Option, Stream } from "effect"
import * as Direct from "../../../Direct.ts"
import type { ListQuery, Selection, Store, StoreUnavailable } from "../../../Kv/Store.ts"
import type { EntryQuery } from "../../EntryRows.ts"
import { bySystemClock } from "../Database/DatabaseClock.ts"
import { answeredWithin } from "../Database/DatabaseError.ts"
import { type Pool, readTimeout } from "../Database/Pool.ts"
import type { Snapshot, TakeSnapshot } from "../Database/Snapshots.ts"
import * as ListQueries from "./ListQueries.ts"

/** The size of a portion of a whole list: small, so that a client with a slow connection reads one in time. */
const portionSize = { limit: 1000, size: 256 * 1024 }

/** The timeout of counting the entries of a list, in milliseconds. */
const countTimeoutMillis = 60_000

/** Counts the entries of a selection in a snapshot. */
const countAll = (
  snapshot: Snapshot,
  selection: Selection,
  { due, readsRows }: ListQueries.Counting,
  now: number
): Effect.Effect<number, StoreUnavailable> =>
  Effect.gen(function* () {
    let total = readsRows ? 0 : -due
    for (let after: string | undefined = ""; after !== undefined; ) {
      // Each part has the timeout of a read, so that an unavailable database is noticed as soon as by other reads.
      const { count, last }: ListQueries.Part = yield* answeredWithin(readTimeout)(
        snapshot.run(ListQueries.part(selection, after, readsRows, now))
      )
      total += count
      after = last
    }
    return total
  }).pipe(answeredWithin(countTimeoutMillis), bySystemClock)

/** The connections of lists, and the clock of expiry. */
export interface Options {
  readonly reads: Pool
  readonly snapshot: TakeSnapshot
  /** The time by which entries expire, in epoch milliseconds. */
  readonly now: () => number
}

/** The lists of the port `Store`. A whole list is read from one snapshot, in portions. */
export const make = ({ now, reads, snapshot }: Options): Pick<Context.Tag.Service<Store>, "list" | "listAll"> => {
  /** The first page of a query in a snapshot, with the number of entries if the query requests it. */
  const firstPage = (snapshot: Snapshot, query: EntryQuery) =>
    Effect.gen(function* () {
      const { counting, ...page } = yield* snapshot
        .run(ListQueries.entries(query))
        .pipe(answeredWithin(readTimeout), bySystemClock)
      return counting === undefined ? page : { ...page, count: yield* countAll(snapshot, query, counting, query.now) }
    })

  const list = (query: ListQuery) => {
    const { decode, statement, values } = ListQueries.entries({ ...query, now: now() })
    return reads.read(statement, values, decode)
  }

  return {
    list: query => {
      const page = Direct.suspend(() => list(query))
      if (query.isCounted !== true) return page
      return Direct.flatMap(page, ({ counting, ...page }) =>
        counting === undefined
          ? Exit.succeed(page)
          : Effect.scoped(Effect.flatMap(snapshot(query.namespace), held => firstPage(held, { ...query, now: now() })))
      )
    },
    listAll: query =>
      Effect.gen(function* () {
        const at = now()
        const held = yield* snapshot(query.namespace)
        const portionOf = { ...query, ...portionSize, now: at }
        /** A list that was read to its end needs no snapshot any longer, even if the scope stays open. */
        const endAfterLast = <A extends { readonly more: boolean }, E>(portion: Effect.Effect<A, E>) =>
          Effect.tap(portion, ({ more }) => (more ? Effect.void : held.end))
        const first = yield* endAfterLast(firstPage(held, { ...portionOf, after: "" }))
        const portion = (after: string) =>
          endAfterLast(held.run(ListQueries.entries({ ...portionOf, isCounted: false, after })))
        const portions = Stream.paginateEffect("", after =>
          Effect.map(after === "" ? Effect.succeed(first) : portion(after), ({ entries, more }) => [
            entries,
            more ? Option.some(entries.at(-1)!.key) : Option.none()
          ])
        )
        const { count, epoch, lastSeq } = first
        return { lastSeq, epoch, portions, ...(count === undefined ? {} : { count }) }
      })
  }
}
