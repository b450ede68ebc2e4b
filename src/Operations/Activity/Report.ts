/** Puts the activity of the service together: of its nodes, and of what the store holds. */
import { Clock, Context, Effect, Layer, Option } from "effect"
import * as SingleFlight from "../../base/SingleFlight.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import type { TenantCount } from "../../Client/Model.ts"
import { Store, type StoreUnavailable } from "../../Kv/Store.ts"
import {
  type Activity,
  type Holdings,
  intervalMs,
  keptMs,
  maxNodes,
  maxSamples,
  type SessionCounts,
  type TenantNumber
} from "./Model.ts"
import { Recorder } from "./Recorder.ts"
import { type SessionsOfTenant, Sources, type SourcesShape } from "./Sources.ts"

/** The sessions and the tenants that are counted. Counting them takes some milliseconds of the event loop. */
const maxSessions = 20_000
const maxTenants = 10_000
const pageTenants = 1000

/** The tenants of each list of the largest. */
const maxLargest = 5

/** How long numbers are shared among callers, and how long a caller waits for them, in milliseconds. */
const sharedMs = 5000
const patienceMs = 2000

/** How many nodes are asked at once. */
const concurrency = 16

type StoreService = Context.Tag.Service<Store>

const tenantsOf = (
  store: StoreService,
  tenant: string
): Effect.Effect<{ readonly counts: ReadonlyArray<TenantCount>; readonly isComplete: boolean }, StoreUnavailable> =>
  Effect.gen(function* () {
    const counts: Array<TenantCount> = []
    let after: string | undefined
    for (;;) {
      const position = after === undefined ? {} : { after }
      const page = yield* store.tenants({ prefix: "", ...position, limit: pageTenants, tenant })
      counts.push(...page.tenants)
      after = page.tenants.at(-1)?.tenant
      const isAtEnd = !page.more || after === undefined
      if (isAtEnd || counts.length >= maxTenants) return { counts, isComplete: isAtEnd }
    }
  })

const largest = (numbers: Iterable<readonly [tenant: string, count: number]>): ReadonlyArray<TenantNumber> =>
  [...numbers]
    .map(([tenant, count]) => ({ tenant, count }))
    .filter(({ count, tenant }) => tenant !== "" && count > 0)
    .sort((a, b) => b.count - a.count)
    .slice(0, maxLargest)

const sessionsOf = (found: ReadonlyArray<SessionsOfTenant>): SessionCounts => {
  const sum = (isWanted: (sessions: SessionsOfTenant) => boolean) =>
    found.reduce((all, sessions) => (isWanted(sessions) ? all + sessions.count : all), 0)
  const total = sum(() => true)
  return {
    total,
    running: sum(({ running, waiting }) => running && !waiting),
    waiting: sum(({ waiting }) => waiting),
    failed: sum(({ failed }) => failed),
    isComplete: total < maxSessions
  }
}

const totalsOf = (found: ReadonlyArray<SessionsOfTenant>): ReadonlyMap<string, number> => {
  const totals = new Map<string, number>()
  for (const { count, tenant } of found) totals.set(tenant, (totals.get(tenant) ?? 0) + count)
  return totals
}

/** What the store holds of all tenants, or of one. */
const holdingsOf = (
  store: StoreService,
  { sessions }: SourcesShape,
  tenant?: string
): Effect.Effect<Holdings, StoreUnavailable> =>
  Effect.gen(function* () {
    const { counts, isComplete } = yield* tenantsOf(store, tenant ?? "")
    const found = sessions === undefined ? undefined : yield* sessions(maxSessions, tenant)
    const isOfOne = tenant !== undefined
    return {
      entries: counts.reduce((sum, { entries }) => sum + entries, 0),
      namespaces: counts.reduce((sum, { namespaces }) => sum + namespaces, 0),
      tenants: counts.filter(({ tenant }) => tenant !== "").length,
      isComplete,
      sessions: found === undefined ? null : sessionsOf(found),
      largest: {
        entries: isOfOne ? [] : largest(counts.map(({ entries, tenant }) => [tenant, entries])),
        namespaces: isOfOne ? [] : largest(counts.map(({ namespaces, tenant }) => [tenant, namespaces])),
        sessions: isOfOne ? [] : largest(totalsOf(found ?? []))
      }
    }
  })

/** The activity of the service. */
export class ActivityReport extends Context.Tag("causeway/ActivityReport")<
  ActivityReport,
  {
    /**
     * The samples of the last `lastMs` milliseconds of each node, and what the store holds. It takes little more than two
     * seconds, also if the store or a node does not answer. With a tenant, only what the store holds of this one.
     */
    readonly read: (options: {
      readonly lastMs?: number | undefined
      readonly tenant?: string | undefined
    }) => Effect.Effect<Activity>
  }
>() {}

const make = Effect.gen(function* () {
  const recorder = yield* Recorder
  const sources = yield* Sources
  const store = yield* Store
  const ofAll = yield* SingleFlight.sharedFor(sharedMs, Monotonic.millis, holdingsOf(store, sources))
  const patient = (holdings: Effect.Effect<Holdings, StoreUnavailable>): Effect.Effect<Holdings | null> =>
    holdings.pipe(
      Effect.timeout(patienceMs),
      Effect.orElseSucceed(() => null)
    )

  const nodesOf = (lastMs: number) =>
    Effect.gen(function* () {
      const { count, others, self } = yield* sources.nodes
      const asked = others.slice(0, maxNodes - 1)
      const wanted = { lastMs, most: Math.floor(maxSamples / (asked.length + 1)) }
      const own = Effect.map(recorder.read(wanted), recorded => ({
        ...{ id: self, isAnswering: true },
        ...Option.getOrUndefined(recorded)
      }))
      const nodes = yield* Effect.all([own, ...asked.map(ask => ask(wanted))], { concurrency })
      return { nodes, unlisted: Math.max(0, count - nodes.length) }
    })

  return ActivityReport.of({
    read: ({ lastMs = keptMs, tenant }) =>
      Effect.gen(function* () {
        const at = Math.trunc(yield* Clock.currentTimeMillis)
        if (tenant !== undefined) {
          const holdings = yield* patient(holdingsOf(store, sources, tenant))
          return { at, intervalMs, nodes: [], unlisted: 0, agents: [], holdings }
        }
        const [nodes, holdings] = yield* Effect.all([nodesOf(lastMs), patient(ofAll)], { concurrency: 2 })
        return { at, intervalMs, ...nodes, agents: sources.agents, holdings }
      })
  })
})

/** Reads the recorder, the store, and what the gateway adds. */
export const layer: Layer.Layer<ActivityReport, never, Store> = Layer.scoped(ActivityReport, make)
