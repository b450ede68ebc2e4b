/** The activity of the service: who gets what, of which nodes, and if something does not answer. */

import * as HttpApi from "@effect/platform/HttpApi"
import { assert, describe } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Schema, TestClock } from "effect"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import { Metrics } from "../../../src/base/Observability/Metrics.ts"
import type { Sample } from "../../../src/base/Observability/Samples.ts"
import { ActivityRoutes, Causeway, DrainingSignal, KvRoutes, NodeServer } from "../../../src/exports/index.ts"
import { memory } from "../../../src/exports/store.ts"
import { Store } from "../../../src/Kv/Store.ts"
import { ActivityGroup } from "../../../src/Operations/Activity/Api.ts"
import type { Activity, NodeActivity } from "../../../src/Operations/Activity/Model.ts"
import * as Recorder from "../../../src/Operations/Activity/Recorder.ts"
import * as Report from "../../../src/Operations/Activity/Report.ts"
import { type SessionsOfTenant, Sources } from "../../../src/Operations/Activity/Sources.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { portOf } from "../../Harness.ts"
import { serve } from "../../service/InProcess.ts"
import { test } from "../../Tests.ts"

/** Metrics of which one counter grows by ten with each reading. */
const growing = Layer.sync(Metrics, () => {
  let value = 0
  const samples = Effect.sync((): ReadonlyArray<Sample> => {
    value += 10
    const labels = { route: "/api/v1/batch", status: "200" }
    return [{ name: "http_requests_total", description: "", labels, kind: "counter", value }]
  })
  return { samples, json: Effect.succeed(""), prometheus: Effect.succeed(""), measure: () => Effect.void }
})

const none = { running: false, waiting: false, failed: false }

const counted: ReadonlyArray<SessionsOfTenant> = [
  { ...none, tenant: "acme", count: 3 },
  { ...none, tenant: "acme", waiting: true, running: true, count: 2 },
  { ...none, tenant: "other", failed: true, count: 7 }
]

const sources = (others: ReadonlyArray<() => Effect.Effect<NodeActivity>> = [], count = 1 + others.length) =>
  Layer.succeed(Sources, {
    sessions: (limit, tenant) => {
      assert.isAtMost(limit, 100_000)
      return Effect.succeed(counted.filter(one => tenant === undefined || one.tenant === tenant))
    },
    nodes: Effect.succeed({ self: "me", count, others }),
    agents: [{ agentType: "coder", address: "https://agents.example" }]
  })

const filled = Effect.gen(function* () {
  const { commit } = yield* Store
  const entry = (namespace: string, key: string) =>
    ({ op: "set", namespace, key, value: JsonText("1"), expiresAt: null }) as const
  const operations = [
    ...["a", "b", "c"].map(key => entry("tenant:acme/notes", key)),
    entry("tenant:acme/more", "a"),
    entry("tenant:other/notes", "a"),
    entry("plain", "a")
  ]
  yield* commit({ operations, actor: "test" })
})

const layer = (gateway = sources()) =>
  Report.layer.pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        gateway,
        Memory.layer,
        Recorder.layer(() => undefined)
      )
    ),
    Layer.provide(growing)
  )

const read = (options: { readonly lastMs?: number; readonly tenant?: string } = {}) =>
  Effect.flatMap(Report.ActivityReport, ({ read }) => read(options))

describe("the activity of the service", () => {
  test.scoped("has a sample every five seconds, and starts again with the process", function* () {
    yield* Effect.gen(function* () {
      const [before] = (yield* read()).nodes
      assert.deepStrictEqual([before?.id, before?.series?.at], ["me", []])
      yield* TestClock.adjust("16 seconds")
      const [node] = (yield* read()).nodes
      assert.deepStrictEqual(node?.series?.at, [5000, 10_000, 15_000])
      assert.deepStrictEqual(node?.series?.succeeded, [2, 2, 2])
      const [last] = (yield* read({ lastMs: 7000 })).nodes
      assert.deepStrictEqual(last?.series?.at, [10_000, 15_000])
    }).pipe(Effect.provide(layer()))
    yield* Effect.gen(function* () {
      yield* TestClock.adjust("5 seconds")
      assert.lengthOf((yield* read()).nodes[0]?.series?.at ?? [], 1)
    }).pipe(Effect.provide(layer()))
  })

  test.scoped("has what the store holds, and the tenants with the most", function* () {
    yield* Effect.gen(function* () {
      yield* filled
      const { agents, holdings } = yield* read()
      assert.deepStrictEqual(agents, [{ agentType: "coder", address: "https://agents.example" }])
      assert.deepStrictEqual(holdings, {
        ...{ entries: 6, namespaces: 4, tenants: 2, isComplete: true },
        sessions: { total: 12, running: 0, waiting: 2, failed: 7, isComplete: true },
        largest: {
          entries: [
            { tenant: "acme", count: 4 },
            { tenant: "other", count: 1 }
          ],
          namespaces: [
            { tenant: "acme", count: 2 },
            { tenant: "other", count: 1 }
          ],
          sessions: [
            { tenant: "other", count: 7 },
            { tenant: "acme", count: 5 }
          ]
        }
      })
    }).pipe(Effect.provide(layer()))
  })

  test.scoped("has nothing of others for a tenant", function* () {
    yield* Effect.gen(function* () {
      yield* filled
      yield* TestClock.adjust("10 seconds")
      const activity = yield* read({ tenant: "acme" })
      assert.deepStrictEqual([activity.nodes, activity.unlisted, activity.agents], [[], 0, []])
      assert.deepStrictEqual(activity.holdings, {
        ...{ entries: 4, namespaces: 2, tenants: 1, isComplete: true },
        sessions: { total: 5, running: 0, waiting: 2, failed: 0, isComplete: true },
        largest: { entries: [], namespaces: [], sessions: [] }
      })
      const unknown = yield* read({ tenant: "nobody" })
      assert.deepInclude(unknown.holdings, { entries: 0, tenants: 0 })
    }).pipe(Effect.provide(layer()))
  })

  test.scoped("has each node, also one that does not answer, and counts those it cannot ask", function* () {
    const asked: Array<unknown> = []
    const other = (node: NodeActivity) => (wanted?: unknown) => {
      asked.push(wanted)
      return Effect.succeed(node)
    }
    const nodes = [other({ id: "b", isAnswering: true, since: 1 }), other({ id: "c", isAnswering: false })]
    yield* Effect.gen(function* () {
      const { nodes, unlisted } = yield* read()
      assert.deepStrictEqual(
        nodes.map(({ id, isAnswering }) => [id, isAnswering]),
        [
          ["me", true],
          ["b", true],
          ["c", false]
        ]
      )
      assert.strictEqual(unlisted, 1)
      assert.deepStrictEqual(asked[0], { lastMs: 3_600_000, most: 2000 })
    }).pipe(Effect.provide(layer(sources(nodes, 4))))
  })

  test.scoped("asks at most 64 nodes, for less of each", function* () {
    const many = Array.from({ length: 200 }, (_, id) => () => Effect.succeed({ id: String(id), isAnswering: true }))
    const { nodes, unlisted } = yield* Effect.provide(read(), layer(sources(many)))
    assert.deepStrictEqual([nodes.length, unlisted], [64, 137])
  })

  test.scoped("comes without what the store holds if it does not answer in time", function* () {
    const stuck = Layer.effect(
      Store,
      Effect.map(Store, store => ({ ...store, tenants: () => Effect.never }))
    )
    const built = Report.layer.pipe(
      Layer.provideMerge(
        Layer.mergeAll(
          sources(),
          Layer.provide(stuck, Memory.layer),
          Recorder.layer(() => undefined)
        )
      ),
      Layer.provide(growing)
    )
    yield* Effect.gen(function* () {
      const reading = yield* Effect.fork(read())
      yield* TestClock.adjust("2 seconds")
      const { holdings, nodes } = yield* Fiber.join(reading)
      assert.isNull(holdings)
      assert.lengthOf(nodes, 1)
    }).pipe(Effect.provide(built))
  })
})

describe("GET /api/v1/activity", () => {
  test.scopedLive("answers both keys as it is declared, and no other", function* () {
    const keys = { KV_API_KEY: "sesame-write", KV_AGENT_API_KEY: "sesame-read" }
    const { url } = yield* serve({ ...keys, GATEWAY_JWT_SECRET: "a secret of the gateway, which signs" })
    const get = (query = "", key?: string) =>
      Effect.promise(async () => {
        const headers = key === undefined ? {} : { authorization: `Bearer ${key}` }
        const response = await fetch(`${url}/api/v1/activity${query}`, { headers })
        return { status: response.status, body: (await response.json()) as Activity, headers: response.headers }
      })
    assert.strictEqual((yield* get()).status, 401)
    assert.strictEqual((yield* get("", "sesame-wrong")).status, 401)
    assert.strictEqual((yield* get("?seconds=3601", keys.KV_API_KEY)).status, 400)
    const declared = ActivityGroup.endpoints.activity!.successSchema as Schema.Schema<unknown>
    for (const key of Object.values(keys)) {
      const { body, headers, status } = yield* get("?seconds=60", key)
      assert.deepStrictEqual([status, headers.get("cache-control")], [200, "no-store"])
      yield* Schema.decodeUnknown(declared)(body)
      assert.lengthOf(body.nodes, 1)
      assert.deepInclude(body.holdings, { entries: 0, tenants: 0 })
      assert.deepInclude(body.holdings?.sessions, { total: 0, waiting: 0 })
    }
  })

  test.scopedLive("answers a user of a tenant with what this one has, and nothing of nodes", function* () {
    const layer = Causeway.layerEdge({
      api: HttpApi.make("host").add(KvRoutes.prefix("/store")).add(ActivityRoutes.prefix("/store")),
      server: { host: "127.0.0.1", port: 0 },
      store: memory,
      identity: ({ credential }) =>
        Effect.succeed({ access: "write", ...(credential === "Bearer anna" && { tenant: "acme" }) })
    }).pipe(Layer.provide([DrainingSignal.layer, Logger.remove(Logger.defaultLogger)]))
    const context = yield* Layer.build(layer)
    const url = `http://127.0.0.1:${yield* Effect.provide(Effect.map(NodeServer.NodeServer, portOf), context)}/store`
    const ask = (user: string, path: string, init: RequestInit = {}) =>
      Effect.promise(async () => {
        const headers = { authorization: `Bearer ${user}`, "content-type": "application/json" }
        return (await (await fetch(`${url}/${path}`, { ...init, headers })).json()) as Activity
      })
    for (const namespace of ["tenant:acme/notes", "tenant:other/notes", "plain"]) {
      yield* ask("root", `kv/${encodeURIComponent(namespace)}/a`, { method: "PUT", body: '{"value":1}' })
    }
    const all = yield* ask("root", "activity")
    assert.deepInclude(all.holdings, { entries: 3, tenants: 2 })
    assert.lengthOf(all.nodes, 1)
    const own = yield* ask("anna", "activity")
    assert.deepStrictEqual([own.nodes, own.unlisted], [[], 0])
    assert.deepInclude(own.holdings, { entries: 1, namespaces: 1, tenants: 1 })
    assert.notInclude(JSON.stringify(own), "other")
  })
})
