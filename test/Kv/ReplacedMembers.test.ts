/** A host may replace each member of a port. The replacement is what runs. */
import { describe, expect, it } from "@effect/vitest"
import { type Context, Duration, Effect, Fiber, Layer, Option, Stream } from "effect"
import { JsonText } from "../../src/base/Json/JsonText.ts"
import * as DrainingSignal from "../../src/Http/DrainingSignal.ts"
import * as Change from "../../src/Kv/Change.ts"
import * as ChangeFeed from "../../src/Kv/ChangeFeed.ts"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import * as Entry from "../../src/Kv/Entry.ts"
import { Store, StoreBusy, StoreUnavailable } from "../../src/Kv/Store.ts"
import * as Housekeeping from "../../src/Storage/Housekeeping.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import { stock } from "../Harness.ts"
import { edge, quickEdge } from "../Http/Edge/EdgeTransport.ts"
import { isLong } from "../Scale.ts"
import { temporaryLayer } from "../Storage/SqliteFixture.ts"
import { at, batch, call, get, listAt, put, Site, site } from "../suites/Http/Fixture.ts"
import { test } from "../Tests.ts"

type StoreShape = Context.Tag.Service<Store>
type LogShape = Context.Tag.Service<ChangeLog>

/** A replaced member, and a check at the socket that it ran. */
interface Replacement<Port> {
  readonly replace: (port: Port) => Partial<Port>
  readonly check: Effect.Effect<void, unknown, Site>
}

const wrapped = JsonText('"wrapped"')

const space = "tenant:t/x"

const wrapEntry = (entry: Entry.EncodedEntry) => Entry.encode({ ...Entry.decode(entry), value: wrapped })

const bodyOf = ({ text }: { readonly text: string }) => JSON.parse(text)

const store: { readonly [Member in keyof StoreShape]: Replacement<StoreShape> } = {
  get: {
    replace: ({ get }) => ({
      get: (namespace, key) =>
        Effect.map(
          get(namespace, key),
          Option.map(entry => ({ ...entry, value: wrapped }))
        )
    }),
    check: Effect.gen(function* () {
      yield* put(space, "k", 1)
      expect(bodyOf(yield* get(space, "k"))).toMatchObject({ value: "wrapped", version: 1 })
      expect((yield* get(space, "absent")).status).toBe(404)
    })
  },
  getMany: {
    replace: ({ getMany }) => ({
      getMany: (addresses, maxBytes) =>
        Effect.map(getMany(addresses, maxBytes), ({ entries, ...rest }) => ({
          ...rest,
          entries: entries.map(entry => entry && wrapEntry(entry))
        }))
    }),
    check: Effect.gen(function* () {
      yield* put(space, "k", 1)
      const keys = ["k", "absent"].map(key => ({ namespace: space, key }))
      const answer = bodyOf(yield* call("POST", "/api/v1/kv/read", { json: { keys } }))
      expect(answer).toMatchObject({ items: [{ key: "k", value: "wrapped" }, null] })
    })
  },
  list: {
    replace: ({ list }) => ({
      list: query => Effect.map(list(query), page => ({ ...page, entries: page.entries.map(wrapEntry) }))
    }),
    check: Effect.gen(function* () {
      yield* put(space, "k", 1)
      for (const target of [listAt(space), `${listAt(space)}?limit=1`]) {
        expect(bodyOf(yield* call("GET", target))).toMatchObject({ items: [{ key: "k", value: "wrapped" }] })
      }
    })
  },
  listAll: {
    replace: ({ listAll }) => ({
      listAll: selection =>
        Effect.map(listAll(selection), ({ portions, ...list }) => ({
          ...list,
          portions: Stream.map(portions, portion => portion.map(wrapEntry))
        }))
    }),
    check: Effect.gen(function* () {
      const operations = Array.from({ length: 1000 }, (_, n) => ({
        op: "set",
        namespace: space,
        key: `k${n}`,
        value: n
      }))
      yield* batch(operations)
      yield* put(space, "last", 1)
      const { items } = bodyOf(yield* call("GET", listAt(space)))
      expect(items).toHaveLength(1001)
      expect(items[1000]).toMatchObject({ value: "wrapped" })
    })
  },
  namespaces: {
    replace: ({ namespaces }) => ({
      namespaces: query =>
        Effect.map(namespaces(query), page => ({ ...page, namespaces: [{ namespace: "wrapped", count: 7 }] }))
    }),
    check: Effect.gen(function* () {
      expect(bodyOf(yield* call("GET", "/api/v1/kv"))).toEqual({ namespaces: [{ namespace: "wrapped", count: 7 }] })
    })
  },
  tenants: {
    replace: ({ tenants }) => ({
      tenants: query =>
        Effect.map(tenants(query), page => ({ ...page, tenants: [{ tenant: "wrapped", namespaces: 7, entries: 8 }] }))
    }),
    check: Effect.gen(function* () {
      const tenants = [{ tenant: "wrapped", namespaces: 7, entries: 8 }]
      expect(bodyOf(yield* call("GET", "/api/v1/tenants"))).toEqual({ tenants })
    })
  },
  commit: {
    replace: ({ commit }) => ({ commit: write => commit({ ...write, actor: "wrapped" }) }),
    check: Effect.gen(function* () {
      expect(bodyOf(yield* put(space, "k", 1))).toMatchObject({ value: 1, version: 1, updatedBy: "wrapped" })
      yield* batch([{ op: "set", namespace: space, key: "k", value: 2 }])
      expect(bodyOf(yield* get(space, "k"))).toMatchObject({ value: 2, version: 2, updatedBy: "wrapped" })
      yield* call("DELETE", at(space, "k"))
      const { changes } = bodyOf(yield* call("GET", "/api/v1/changes"))
      expect(changes).toMatchObject([{ actor: "wrapped" }, { actor: "wrapped" }, { op: "delete", actor: "wrapped" }])
    })
  },
  backup: {
    replace: () => ({ backup: new StoreBusy({ retryAfterSeconds: 7 }) }),
    check: Effect.gen(function* () {
      for (const method of ["GET", "HEAD"]) {
        const { headers, status } = yield* call(method, "/api/v1/backup")
        expect([status, headers["retry-after"]]).toEqual([503, "7"])
      }
    })
  },
  now: {
    replace: ({ now }) => ({ now: () => now() + 3_600_000 }),
    check: Effect.gen(function* () {
      const { expiresAt, updatedAt } = bodyOf(yield* call("PUT", at(space, "k"), { json: { value: 1, ttlMs: 1000 } }))
      expect(expiresAt - updatedAt).toBeGreaterThan(3_600_000)
    })
  },
  ready: {
    replace: () => ({ ready: Effect.succeed(false) }),
    check: Effect.gen(function* () {
      expect(bodyOf(yield* call("GET", "/api/v1/ready"))).toEqual({ ok: false })
      expect(bodyOf(yield* call("GET", "/api/v1/cluster/status"))).toMatchObject({ ok: false })
    })
  }
}

/** Counts the runs of replaced effects whose result does not show the replacement. */
let wrappedRuns = 0

const counted = <A, E>(effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.suspend(() => {
    wrappedRuns++
    return effect
  })

const log: { readonly [Member in keyof LogShape]: Replacement<LogShape> } = {
  read: {
    replace: ({ read }) => ({
      read: query =>
        Effect.map(read(query), page => ({
          ...page,
          changes: page.changes.map(change => Change.encode({ ...Change.decode(change), actor: "wrapped" }))
        }))
    }),
    check: Effect.gen(function* () {
      yield* put(space, "k", 1)
      for (const limit of ["", "?limit=1"]) {
        const { changes } = bodyOf(yield* call("GET", `/api/v1/changes${limit}`))
        expect(changes).toMatchObject([{ seq: 1, key: "k", value: 1, actor: "wrapped", tenantId: "t" }])
      }
    })
  },
  history: {
    replace: () => ({ history: Effect.fail(new StoreUnavailable({ reason: "wrapped" })) }),
    check: Effect.gen(function* () {
      expect((yield* call("GET", "/api/v1/changes")).status).toBe(503)
    })
  },
  lastSeq: {
    replace: ({ lastSeq }) => ({ lastSeq: Effect.map(lastSeq, seq => seq + 1000) }),
    check: Effect.gen(function* () {
      const { log } = yield* Site
      expect(yield* log.lastSeq).toBe(1000)
    })
  },
  awaitPast: {
    replace: ({ awaitPast }) => ({ awaitPast: seq => counted(awaitPast(seq)) }),
    check: Effect.gen(function* () {
      const before = wrappedRuns
      const poll = yield* Effect.fork(call("GET", "/api/v1/changes?wait=30"))
      yield* Effect.repeat(Effect.sleep("5 millis"), { until: () => wrappedRuns > before })
      yield* put(space, "k", 1)
      expect(bodyOf(yield* Fiber.join(poll))).toMatchObject({ lastSeq: 1 })
    })
  },
  trim: { replace: ({ trim }) => ({ trim: age => counted(trim(age)) }), check: Effect.suspend(() => housekeeping) },
  expire: { replace: ({ expire }) => ({ expire: counted(expire) }), check: Effect.suspend(() => housekeeping) },
  due: { replace: ({ due }) => ({ due: counted(due) }), check: Effect.suspend(() => housekeeping) }
}

/** Housekeeping does both of its tasks at its start. */
const housekeeping: Effect.Effect<void, unknown, Site> = Effect.gen(function* () {
  const { log } = yield* Site
  const before = wrappedRuns
  const layer = Layer.provide(Housekeeping.layer(Option.some(Duration.minutes(1))), Layer.succeed(ChangeLog, log))
  const until = Effect.repeat(Effect.sleep("1 millis"), { until: () => wrappedRuns > before })
  yield* Effect.provide(until, layer)
})

const backends: ReadonlyArray<readonly [string, Layer.Layer<Store | ChangeLog, unknown>]> = [
  ["memory", Memory.layer],
  ["sqlite", temporaryLayer("inline")]
]

/** Both ports, with members of one of them replaced. */
const replacing = <Id, Port extends object>(tag: Context.Tag<Id, Port>, replace: (port: Port) => Partial<Port>) =>
  Layer.merge(
    Layer.context<Store | ChangeLog>(),
    Layer.effect(
      tag,
      Effect.map(tag, port => ({ ...port, ...replace(port) }))
    )
  )

for (const [name, backend] of backends) {
  describe(`over ${name}, a replaced member is used:`, () => {
    it.scopedLive("each member of both ports is tested", () =>
      Effect.gen(function* () {
        expect(Object.keys(yield* Store).sort()).toEqual(Object.keys(store).sort())
        expect(Object.keys(yield* ChangeLog).sort()).toEqual(Object.keys(log).sort())
      }).pipe(Effect.provide(backend))
    )

    for (const transport of isLong ? [stock, edge, quickEdge] : name === "memory" ? [stock, quickEdge] : [quickEdge]) {
      const over = (
        member: string,
        check: Replacement<never>["check"],
        replaced: Layer.Layer<Store | ChangeLog, never, Store | ChangeLog>
      ): void =>
        test.scopedLive(`${member}, by the ${transport.name}`, function* () {
          const layer = Layer.provide(replaced, Layer.fresh(backend))
          yield* Effect.provideServiceEffect(check, Site, site(transport, layer))
        })
      for (const [member, { check, replace }] of Object.entries<Replacement<StoreShape>>(store)) {
        over(`Store.${member}`, check, replacing(Store, replace))
      }
      for (const [member, { check, replace }] of Object.entries<Replacement<LogShape>>(log)) {
        over(`ChangeLog.${member}`, check, replacing(ChangeLog, replace))
      }
    }

    test.scopedLive("ChangeLog.lastSeq, by the feed's metrics", function* () {
      const counting = replacing(ChangeLog, ({ lastSeq }) => ({ lastSeq: counted(lastSeq) }))
      const ports = Layer.merge(DrainingSignal.layer, Layer.provide(counting, backend))
      const { lag } = yield* Effect.provide(ChangeFeed.ChangeFeed, Layer.provide(ChangeFeed.layer, ports))
      const before = wrappedRuns
      yield* lag
      expect(wrappedRuns).toBe(before + 1)
    })
  })
}
