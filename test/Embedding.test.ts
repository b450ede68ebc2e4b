/**
 * How a larger Effect application takes the store in: its own api, errors, authentication and storage around our
 * groups. Whatever is imported from the service comes from its index.
 */
import { createServer } from "node:http"
import * as HttpApi from "@effect/platform/HttpApi"
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import * as HttpApiClient from "@effect/platform/HttpApiClient"
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as HttpLayerRouter from "@effect/platform/HttpLayerRouter"
import * as HttpRouter from "@effect/platform/HttpRouter"
import * as HttpServer from "@effect/platform/HttpServer"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Logger, Option, Redacted, Ref, Schema, Scope } from "effect"
import { WebSocket } from "ws"
import {
  Auth,
  Body,
  ChangeFeed,
  DrainingSignal,
  GroupLayer,
  Health,
  HealthGroup,
  healthEndpoints,
  Json,
  KvGroup,
  kvEndpoints,
  PlatformMiddleware,
  routerConfig,
  StockServer,
  Store
} from "../src/exports/index.ts"
import { memory } from "../src/exports/store.ts"

// The host's contract: one group of its own, with its own error and its own authentication, and two of ours.

class OutOfStock extends Schema.TaggedError<OutOfStock>()(
  "OutOfStock",
  { sku: Schema.String },
  HttpApiSchema.annotations({ status: 409 })
) {}

class NoSession extends Schema.TaggedError<NoSession>()("NoSession", {}, HttpApiSchema.annotations({ status: 401 })) {}

class Session extends HttpApiMiddleware.Tag<Session>()("shop/Session", { failure: NoSession }) {}

const OrdersGroup = HttpApiGroup.make("orders")
  .add(
    HttpApiEndpoint.post("order", "/orders/:sku")
      .setPath(Schema.Struct({ sku: Schema.String }))
      .addSuccess(Schema.Struct({ remaining: Schema.Int }))
      .addError(OutOfStock)
  )
  .add(HttpApiEndpoint.get("crash", "/crash"))
  .middleware(Session)

const Shop = HttpApi.make("shop").add(OrdersGroup).add(KvGroup.prefix("/store")).add(HealthGroup.prefix("/store"))

// The host's storage: any implementation of the two ports will do. This one counts what it commits.

class Commits extends Context.Tag("shop/Commits")<Commits, Ref.Ref<number>>() {}

const countingStore = Layer.effect(
  Store.Store,
  Effect.gen(function* () {
    const store = yield* Store.Store
    const commits = yield* Commits
    return {
      ...store,
      commit: write => Effect.tap(store.commit(write), () => Ref.update(commits, count => count + 1))
    }
  })
).pipe(Layer.provideMerge(memory), Layer.provideMerge(Layer.effect(Commits, Ref.make(0))))

const keys = Auth.layer({
  write: Option.some(Redacted.make("store-key")),
  read: Option.some(Redacted.make("store-reader"))
})

/** The requirements of our groups in addition to the ports. */
const storeServices = Layer.mergeAll(Auth.middlewares, Body.layer, ChangeFeed.layer, Health.layerAlone).pipe(
  Layer.provide([keys, DrainingSignal.layer])
)

// The host's handlers use the store as a service, in the same process.

const initialStock = 2

const ordersLayer = HttpApiBuilder.group(Shop, "orders", handlers =>
  handlers
    .handle("order", ({ path: { sku } }) =>
      Effect.gen(function* () {
        const store = yield* Store.Store
        const entry = yield* store.get("tenant:shop/stock", sku)
        const stock = Option.match(entry, {
          onNone: () => initialStock,
          onSome: found => Number(Json.toUnknown(found.value))
        })
        if (stock === 0) return yield* new OutOfStock({ sku })
        const match = Option.match(entry, {
          onNone: () => ({ noneMatch: "any" as const }),
          onSome: found => ({ match: [found.version] })
        })
        yield* store.commit({
          actor: "shop",
          operations: [
            {
              op: "set",
              namespace: "tenant:shop/stock",
              key: sku,
              value: Json.JsonText(String(stock - 1)),
              expiresAt: null,
              precondition: match
            }
          ]
        })
        return { remaining: stock - 1 }
      }).pipe(
        Effect.catchTags({
          StoreBusy: Effect.die,
          StoreUnavailable: Effect.die,
          PreconditionFailed: Effect.die,
          IdempotencyConflict: Effect.die
        })
      )
    )
    .handle("crash", () => Effect.die("the till is jammed"))
)

const sessionLayer = Layer.succeed(
  Session,
  Effect.flatMap(HttpServerRequest.HttpServerRequest, request =>
    request.headers["x-session"] === "open" ? Effect.void : new NoSession()
  )
)

/** A server on a free port. */
const server = NodeHttpServer.layer(createServer, { host: "127.0.0.1", port: 0 })

const shop = HttpApiBuilder.serve().pipe(
  Layer.provide(PlatformMiddleware.errorLayer(Shop)),
  Layer.provide(HttpApiBuilder.api(Shop)),
  Layer.provide([
    ordersLayer,
    GroupLayer.layer(Shop, KvGroup, kvEndpoints),
    GroupLayer.layer(Shop, HealthGroup, healthEndpoints)
  ]),
  Layer.provide([sessionLayer, storeServices]),
  // The platform's router would refuse long names, and take keys that differ in case for the same.
  Layer.provide(HttpRouter.setRouterConfig(routerConfig)),
  Layer.provideMerge(countingStore),
  Layer.provideMerge(server)
)

const url = Effect.map(HttpServer.HttpServer, ({ address }) =>
  address._tag === "TcpAddress" ? `http://127.0.0.1:${address.port}` : ""
)

/** The typed client of the whole api, with the credential of the store and the session of the host. */
const shopClient = (key: string, session: string) =>
  Effect.flatMap(url, baseUrl =>
    HttpApiClient.make(Shop, {
      baseUrl,
      transformClient: HttpClient.mapRequest(request =>
        request.pipe(HttpClientRequest.bearerToken(key), HttpClientRequest.setHeader("x-session", session))
      )
    })
  )

/** One request as any client might send it. */
const ask = (path: string, init: RequestInit = {}) =>
  Effect.flatMap(url, base =>
    Effect.promise(async () => {
      const answer = await fetch(base + path, init)
      return { status: answer.status, headers: answer.headers, body: await answer.text() }
    })
  )

const quiet = Logger.remove(Logger.defaultLogger)
const client = NodeHttpClient.layerUndici

describe("in the API of a host", () => {
  it.scopedLive("the typed client writes, reads, lists, deletes and follows, whatever the names hold", () =>
    Effect.gen(function* () {
      const { health, kv } = yield* shopClient("store-key", "open")
      expect(yield* health.ready({ urlParams: {} })).toEqual({ ok: true })
      const namespace = "tenant:a/b c%/ü"
      const names = ["a/b", "100%", "%2F", "?#&+", "../up", "😀", "a;b", `${"long".repeat(256)}`]
      for (const key of names) {
        const path = { namespace, key }
        const entry = yield* kv.set({ path, payload: { value: { key }, actor: "shop" }, headers: {} })
        expect(entry).toMatchObject({ namespace, key, value: { key }, version: 1, updatedBy: "shop" })
        expect(yield* kv.get({ path, headers: {} })).toEqual(entry)
      }
      const { items } = yield* kv.list({ path: { namespace }, urlParams: { limit: 1000 } })
      expect(items.map(item => item.key).sort()).toEqual([...names].sort())
      const path = { namespace, key: "a/b" }
      expect(yield* kv.delete({ path, urlParams: { actor: "shop" }, headers: { "if-match": '"1"' } })).toEqual({
        deleted: true
      })
      expect(yield* Effect.flip(kv.get({ path, headers: {} }))).toMatchObject({ _tag: "NotFound", error: "Not found" })
      const refused = kv.set({ path, payload: { value: 1 }, headers: { "if-match": '"1"' } })
      expect(yield* Effect.flip(refused)).toMatchObject({ _tag: "PreconditionFailed" })
      const { ok, results } = yield* kv.batch({
        headers: {},
        payload: {
          operations: [
            { op: "set", namespace, key: "x", value: null },
            { op: "delete", ...path }
          ]
        }
      })
      expect([ok, results]).toEqual([true, [{ version: 1 }, { deleted: false }]])
      const { changes, lastSeq } = yield* kv.changes({ urlParams: { tenant: "a", after: names.length } })
      expect(changes.map(change => [change.op, change.key])).toEqual([
        ["delete", "a/b"],
        ["set", "x"]
      ])
      expect(lastSeq).toBe(names.length + 2)
    }).pipe(Effect.provide([shop, client]))
  )

  it.scopedLive("the host's handlers and the network see one store, through the host's own implementation", () =>
    Effect.gen(function* () {
      const { kv, orders } = yield* shopClient("store-key", "open")
      expect(yield* orders.order({ path: { sku: "tea" } })).toEqual({ remaining: 1 })
      const path = { namespace: "tenant:shop/stock", key: "tea" }
      expect(yield* kv.get({ path, headers: {} })).toMatchObject({ value: 1, updatedBy: "shop" })
      yield* kv.set({ path, payload: { value: 0 }, headers: {} })
      expect(yield* Effect.flip(orders.order({ path: { sku: "tea" } }))).toEqual(new OutOfStock({ sku: "tea" }))
      expect(yield* Ref.get(yield* Commits)).toBe(2)
    }).pipe(Effect.provide([shop, client]))
  )

  it.scopedLive("the host and the store each have their own authentication", () =>
    Effect.gen(function* () {
      const stranger = yield* shopClient("nobody", "closed")
      expect(yield* Effect.flip(stranger.orders.order({ path: { sku: "tea" } }))).toEqual(new NoSession())
      const path = { namespace: "n", key: "k" }
      expect(yield* Effect.flip(stranger.kv.get({ path, headers: {} }))).toMatchObject({ _tag: "Unauthorized" })
      const reader = yield* shopClient("store-reader", "closed")
      expect(yield* Effect.flip(reader.kv.set({ path, payload: { value: 1 }, headers: {} }))).toMatchObject({
        _tag: "Forbidden"
      })
      expect(yield* reader.health.alive({})).toEqual({ ok: true })
    }).pipe(Effect.provide([shop, client]))
  )

  it.scopedLive("every failure is {error}, except the errors that the host declared", () =>
    Effect.gen(function* () {
      const authorization = "Bearer store-key"
      const session = { "x-session": "open" }
      const json = { "content-type": "application/json" }
      const cases = [
        ["/nowhere", {}, 404, '{"error":"Not found: the service has no such route"}'],
        ["/api/v1/health", {}, 404, '{"error":"Not found: the service has no such route"}'],
        ["/store/api/v1/kv/n/k", {}, 401, '{"error":"Unauthorized"}'],
        ["/store/api/v1/kv/n/k", { headers: { authorization } }, 404, '{"error":"Not found"}'],
        ["/orders/tea", { method: "POST" }, 401, '{"_tag":"NoSession"}'],
        ["/crash", { headers: session }, 500, '{"error":"Internal server error"}']
      ] as const
      for (const [path, init, status, body] of cases) {
        expect([path, yield* ask(path, init)]).toEqual([path, expect.objectContaining({ status, body })])
      }
      const malformed = { method: "PUT", headers: { authorization, ...json }, body: "{" }
      expect(yield* ask("/store/api/v1/kv/n/k", malformed)).toMatchObject({
        status: 400,
        body: expect.stringMatching(/^\{"error":"Invalid request body: .*"\}$/)
      })
      const wrong = yield* ask("/store/api/v1/batch", { headers: { authorization } })
      expect([wrong.status, wrong.headers.get("allow")]).toEqual([405, "POST"])
    }).pipe(Effect.provide([shop, client]), Effect.provide(quiet))
  )

  it.scopedLive("the link to the next page stays under the host's prefix", () =>
    Effect.gen(function* () {
      const { kv } = yield* shopClient("store-key", "open")
      for (const key of ["a", "b"])
        yield* kv.set({ path: { namespace: "n/m", key }, payload: { value: key }, headers: {} })
      const init = { headers: { authorization: "Bearer store-key" } }
      const first = yield* ask("/store/api/v1/kv/n%2Fm?limit=1", init)
      const next = /^<(.*)>; rel="next"$/.exec(first.headers.get("link") ?? "")?.[1]
      expect(next).toMatch(/^\/store\/api\/v1\/kv\/n%2Fm\?limit=1&cursor=/)
      const second = yield* ask(next ?? "", init)
      expect(JSON.parse(second.body)).toMatchObject({ items: [{ key: "b" }] })
      expect(second.headers.get("link")).toBeNull()
    }).pipe(Effect.provide([shop, client]))
  )
})

describe("one group alone", () => {
  const Probes = HttpApi.make("probes").add(HealthGroup)

  const probes = HttpApiBuilder.serve().pipe(
    Layer.provide(PlatformMiddleware.errorLayer(Probes)),
    Layer.provide(HttpApiBuilder.api(Probes)),
    Layer.provide(GroupLayer.layer(Probes, HealthGroup, healthEndpoints)),
    Layer.provide([memory, Health.layerAlone]),
    Layer.provideMerge(server)
  )

  it.scopedLive("needs only its own services, and serves only its own routes", () =>
    Effect.gen(function* () {
      const { health } = yield* Effect.flatMap(url, baseUrl => HttpApiClient.make(Probes, { baseUrl }))
      expect(yield* health.ready({ urlParams: {} })).toEqual({ ok: true })
      expect((yield* ask("/api/v1/kv/n")).status).toBe(404)
    }).pipe(Effect.provide([probes, client]))
  )
})

describe("on a router with other routes", () => {
  const Data = HttpApi.make("data").add(KvGroup).add(HealthGroup).prefix("/data")

  const dataLayer = HttpLayerRouter.addHttpApi(Data).pipe(
    Layer.provide([GroupLayer.layer(Data, KvGroup, kvEndpoints), GroupLayer.layer(Data, HealthGroup, healthEndpoints)]),
    Layer.provide(storeServices)
  )
  const hello = HttpLayerRouter.add("GET", "/hello", HttpServerResponse.text("hello"))

  const application = HttpLayerRouter.serve(
    Layer.mergeAll(dataLayer, hello, PlatformMiddleware.errorLayerRouter(Data)),
    {
      routerConfig,
      disableLogger: true,
      disableListenLog: true
    }
  ).pipe(Layer.provideMerge(StockServer.layer(Data)), Layer.provide(memory), Layer.provideMerge(server))

  it.scopedLive("a follower is notified that the service ends, and the host's routes also have ids", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(Layer.provide(application, DrainingSignal.layer), scope)
      yield* Effect.gen(function* () {
        const hello = yield* ask("/hello", { headers: { "x-request-id": "mine" } })
        expect(hello.headers.get("x-request-id")).toBe("mine")
        const target = `${(yield* url).replace("http", "ws")}/data/api/v1/changes/ws`
        const socket = new WebSocket(target, { headers: { authorization: "Bearer store-reader" } })
        yield* Effect.async<void>(resume => void socket.on("open", () => resume(Effect.void)))
        const closed = new Promise(resolve => socket.on("close", resolve))
        yield* Scope.close(scope, Exit.void)
        expect(yield* Effect.promise(() => closed)).toBe(1001)
      }).pipe(Effect.provide(context))
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("our groups are served together with the host's routes", () =>
    Effect.gen(function* () {
      const authorization = "Bearer store-key"
      const path = "/data/api/v1/kv/tenant%3Aa/x%2Fy;z"
      const written = yield* ask(path, {
        method: "PUT",
        headers: { authorization, "content-type": "application/json" },
        body: '{"value":[1]}'
      })
      expect(JSON.parse(written.body)).toMatchObject({ namespace: "tenant:a", key: "x/y;z", value: [1], version: 1 })
      expect(written.headers.get("etag")).toBe('"1"')
      expect((yield* ask(path, { headers: { authorization } })).body).toBe(written.body)
      expect((yield* ask("/hello")).body).toBe("hello")
      for (const [target, init, status, body] of [
        [path, {}, 401, '{"error":"Unauthorized"}'],
        ["/nowhere", {}, 404, '{"error":"Not found: the service has no such route"}'],
        ["/data/api/v1/kv/%zz", {}, 400, '{"error":"The path is not percent-encoded UTF-8"}'],
        ["/data/api/v1/health", { method: "POST" }, 405, '{"error":"Method not allowed; this path takes GET, HEAD"}']
      ] as const) {
        expect([target, yield* ask(target, init)]).toEqual([target, expect.objectContaining({ status, body })])
      }
    }).pipe(Effect.provide(Layer.provide(application, DrainingSignal.layer)))
  )
})
