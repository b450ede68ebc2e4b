/**
 * Histories of sessions that have none. A session gets its history when it is created, and lists by activity have only
 * sessions with one. It is missing after a loss of the session database, or if the entry was restored or imported.
 */
import { type Context, Effect, Option } from "effect"
import { type Store, StoreUnavailable } from "../../Kv/Store.ts"
import type { SessionEvents } from "../SessionEvents.ts"
import { isSessionId, keyOf, namespaceOf, randomId, type SessionRecords } from "./Session/SessionRecords.ts"

/** Sessions that are checked at a time. */
const pageSize = 500

/** Histories that are created at a time. Their writes share commits. */
const concurrency = 100

/** Maximum number of tenants that are known to be checked. */
const maxTenants = 10_000

/** Where sessions and histories are stored. */
interface Options {
  readonly store: Context.Tag.Service<Store>
  readonly events: Pick<Context.Tag.Service<SessionEvents>, "create" | "summaries">
  readonly records: Pick<SessionRecords, "find">
}

/** Creates the history of a session, unless its record is invalid or gone. It is as old as the record. */
const createHistory = ({ events, records }: Options, tenant: string, id: string) =>
  Effect.gen(function* () {
    const record = yield* records.find(tenant, id)
    if (Option.isNone(record)) return
    // Clients may have seen events in the epoch of the record.
    yield* events.create(keyOf(tenant, id), yield* randomId, record.value.updatedAt)
  }).pipe(Effect.catchTag("StoreBusy", () => new StoreUnavailable({ reason: "too many writes wait" })))

const createMissing = (options: Options, tenant: string): Effect.Effect<void, StoreUnavailable> =>
  Effect.gen(function* () {
    const { events, store } = options
    const query = { namespace: namespaceOf(tenant), prefix: "", limit: pageSize, keysOnly: true }
    for (let after = ""; ; ) {
      const page = yield* Effect.catchTag(store.list({ ...query, after }), "StoreBusy", Effect.die)
      const ids = page.entries.map(({ key }) => key).filter(isSessionId)
      const summaries = yield* events.summaries(ids.map(id => keyOf(tenant, id)))
      const missing = ids.filter((_, index) => summaries[index]?.headSeq === null)
      yield* Effect.forEach(missing, id => createHistory(options, tenant, id), { concurrency, discard: true })
      if (!page.more) return
      after = page.entries.at(-1)?.key ?? after
    }
  })

/** Creates the histories that the sessions of a tenant lack, with the first call for it. */
export const make = (options: Options): ((tenant: string) => Effect.Effect<void, StoreUnavailable>) => {
  const checked = new Set<string>()
  return tenant =>
    Effect.suspend(() => {
      if (checked.has(tenant)) return Effect.void
      return Effect.map(createMissing(options, tenant), () => {
        if (checked.size >= maxTenants) checked.clear()
        checked.add(tenant)
      })
    })
}
