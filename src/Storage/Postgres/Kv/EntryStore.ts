/** The port `Store` over the connections of a node. */
import { type Context, Effect, Exit, Option, Stream } from "effect"
import * as Direct from "../../../base/Direct.ts"
import { BackupRefused, EntriesTooLarge, type Selection, Store, type StoreUnavailable } from "../../../Kv/Store.ts"
import type * as StoreCommit from "../../Commit/StoreCommit.ts"
import type { EntryQuery } from "../../KeyOrder.ts"
import { bySystemClock, type DatabaseClock } from "../Database/DatabaseClock.ts"
import { answeredWithin } from "../Database/DatabaseError.ts"
import * as Pool from "../Database/Pool.ts"
import * as Snapshots from "../Database/Snapshots.ts"
import { EntryReads } from "./EntryReads.ts"
import * as ListQueries from "./ListQueries.ts"
import * as Queries from "./Queries.ts"
import type { WriteError } from "./Writer.ts"

/** The connections and the group commit of the store. */
export interface Options {
  readonly reads: Pool.Pool
  readonly lists: Pool.Pool
  /** The maximum number of whole lists at a time. */
  readonly maxLists: number
  readonly group: StoreCommit.StoreCommit<WriteError>
  readonly clock: DatabaseClock
}

const backupRefused = new BackupRefused({
  cause: "Unsupported",
  message:
    "The store is in PostgreSQL: back it up by pg_basebackup or pg_dump. causeway migrate-store copies it into SQLite"
})

/** The size of a portion of a whole list: small, so that a client with a slow connection reads one in time. */
const portionSize = { limit: 1000, size: 256 * 1024 }

/** The timeout of counting the entries of a list, in milliseconds. */
const countTimeoutMillis = 60_000

const countAll = (
  snapshot: Snapshots.Snapshot,
  selection: Selection,
  { due, readsRows }: ListQueries.Counting,
  now: number
): Effect.Effect<number, StoreUnavailable> =>
  Effect.gen(function* () {
    let total = readsRows ? 0 : -due
    for (let after: string | undefined = ""; after !== undefined; ) {
      // Each part has the timeout of a read, so that an unavailable database is noticed as soon as by other reads.
      const { count, last }: ListQueries.Part = yield* answeredWithin(Pool.readTimeout)(
        snapshot.run(ListQueries.part(selection, after, readsRows, now))
      )
      total += count
      after = last
    }
    return total
  }).pipe(answeredWithin(countTimeoutMillis), bySystemClock)

/** The lists of the port `Store`. A whole list is read from one snapshot, in portions. */
const makeLists = (
  reads: Pool.Pool,
  snapshot: Snapshots.TakeSnapshot,
  now: () => number
): Pick<Context.Tag.Service<Store>, "list" | "listAll"> => {
  /** The first page of a query in a snapshot, with the number of entries if the query requests it. */
  const firstPage = (snapshot: Snapshots.Snapshot, query: EntryQuery) =>
    Effect.gen(function* () {
      const { counting, ...page } = yield* snapshot
        .run(ListQueries.entries(query))
        .pipe(answeredWithin(Pool.readTimeout), bySystemClock)
      return counting === undefined ? page : { ...page, count: yield* countAll(snapshot, query, counting, query.now) }
    })

  return {
    list: query => {
      const page = Direct.suspend(() => reads.read(ListQueries.entries({ ...query, now: now() })))
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

/** The port `Store` over PostgreSQL. */
export const make = ({ clock, group, lists, maxLists, reads }: Options) => {
  const entries = new EntryReads(reads, clock.now)
  return Store.of({
    // No name has this character, which a statement cannot have.
    get: (namespace, key) =>
      `${namespace}${key}`.includes("\u0000")
        ? Effect.succeedNone
        : Direct.map(entries.get(namespace, key), Option.fromNullable),
    getMany: (addresses, maxBytes, keysOnly = false) =>
      Direct.flatMap(
        Direct.suspend(() => reads.read(Queries.getMany(addresses, maxBytes, keysOnly, clock.now()))),
        read => (read === undefined ? Exit.fail(new EntriesTooLarge({ limitBytes: maxBytes })) : Exit.succeed(read))
      ),
    ...makeLists(reads, Snapshots.make(lists, maxLists), clock.now),
    namespaces: query => Direct.suspend(() => reads.read(ListQueries.namespaces(query, clock.now()))),
    tenants: query => Direct.suspend(() => reads.read(ListQueries.tenants(query, clock.now()))),
    commit: group.commit,
    backup: backupRefused,
    now: clock.now,
    ready: Effect.suspend(() =>
      group.isStuck() ? Effect.succeed(false) : Effect.as(reads.read(Queries.history), true)
    ).pipe(
      Effect.timeoutTo({ duration: "1 second", onSuccess: answer => answer, onTimeout: () => false }),
      Effect.catchAll(() => Effect.succeed(false))
    )
  })
}
