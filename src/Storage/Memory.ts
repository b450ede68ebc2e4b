/**
 * A store in the memory of the process, for tests and examples. It behaves like the durable backends. Its size is only
 * limited by memory, except for idempotency records: entries and change records stay until they are deleted or trimmed.
 */

import { Context, Duration, Effect, Layer, Option, Stream } from "effect"
import * as Direct from "../base/Direct.ts"
import { Limits } from "../base/Limits.ts"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import { randomHex } from "../base/RandomHex.ts"
import { yieldToEventLoop } from "../base/Time/EventLoop.ts"
import { ChangeLog } from "../Kv/ChangeLog.ts"
import type * as Entry from "../Kv/Entry.ts"
import { BackupRefused, Store } from "../Kv/Store.ts"
import { idempotencyMetrics } from "./Commit/StoreCommit.ts"
import { encoderOf, State, takePage } from "./Memory/State.ts"

const portionEntries = 1000

const portionsOf = function* (
  entries: ReadonlyArray<Entry.StoredEntry>,
  encode: (entry: Entry.StoredEntry) => Entry.EncodedEntry
): Generator<ReadonlyArray<Entry.EncodedEntry>> {
  for (let start = 0; start < entries.length; ) {
    const { page } = takePage(entries.slice(start, start + portionEntries), portionEntries)
    yield page.map(encode)
    start += page.length
  }
}

const makeStore = (state: State, now: () => number): Context.Tag.Service<Store> => ({
  get: (namespace, key) => Direct.sync(() => Option.fromNullable(state.entries.get(namespace, key, now()))),
  getMany: (addresses, maxBytes, keysOnly = false) =>
    Direct.suspend(() => state.getMany(addresses, maxBytes, keysOnly, now())),
  list: query => Direct.sync(() => state.list(query, now())),
  // Entries are immutable, so that their references are a snapshot.
  listAll: query =>
    Direct.sync(() => {
      const { isCounted = false, isDescending = false } = query
      const entries = [...state.entries.select(query, "", isDescending, now())]
      const { epoch, lastSeq } = state
      const portions = Stream.tap(
        Stream.fromIteratorSucceed(portionsOf(entries, encoderOf(query)), 1),
        // Lets other requests run.
        () => yieldToEventLoop
      )
      return { lastSeq, epoch, portions, ...(isCounted ? { count: entries.length } : {}) }
    }),
  namespaces: query => Direct.sync(() => state.listNamespaces(query, now())),
  tenants: query => Direct.sync(() => state.listTenants(query, now())),
  commit: write => Direct.suspend(() => state.commit(write, now())),
  backup: new BackupRefused({
    cause: "Unsupported",
    message: "The store is in memory and has no backup; causeway export copies its entries"
  }),
  now,
  ready: Effect.succeed(true)
})

const makeChangeLog = (state: State, now: () => number): Context.Tag.Service<ChangeLog> => ({
  read: query => Direct.suspend(() => state.read(query)),
  history: Direct.sync(() => state.trims),
  lastSeq: Direct.sync(() => state.lastSeq),
  awaitPast: seq => state.end.awaitPast(seq),
  trim: age => Direct.sync(() => state.trim(now() - Duration.toMillis(age))),
  expire: Direct.sync(() => state.expire(now())),
  due: Direct.sync(() => state.due())
})

/** An empty store and its change log. Each build of the layer creates a separate store. */
export const layer: Layer.Layer<Store | ChangeLog> = Layer.effectContext(
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const { idempotencyBytes } = yield* Limits
    const onComparison = idempotencyMetrics(yield* MetricTags.current)
    const state = new State(yield* randomHex(2), idempotencyBytes, onComparison)
    const now = () => clock.unsafeCurrentTimeMillis()
    return Context.make(Store, makeStore(state, now)).pipe(Context.add(ChangeLog, makeChangeLog(state, now)))
  })
)
