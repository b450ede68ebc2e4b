/**
 * What a layer needs shows in its type, and what is missing does not compile: `npm run check` checks this file. Nothing
 * of it is built.
 */
import * as HttpApi from "@effect/platform/HttpApi"
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import type * as HttpClient from "@effect/platform/HttpClient"
import { Context, Effect, Layer, Option } from "effect"
import { expect, expectTypeOf, it } from "vitest"
import { Gateway, type SessionEvents } from "../src/exports/gateway.ts"
import {
  Auth,
  Causeway,
  type ChangeFeed,
  type ChangeLog,
  DrainingSignal,
  Edge,
  Endpoints,
  GatewayGroup,
  GroupLayer,
  HealthGroup,
  healthEndpoints,
  type Identity,
  KvGroup,
  kvEndpoints,
  MetricsGroup,
  type NodeServer,
  Reply,
  SessionsGroup,
  type Store
} from "../src/exports/index.ts"
import { memory, sqlite } from "../src/exports/store.ts"
import { UpstreamClients } from "../src/exports/upstream.ts"
import type { ReadAccess } from "../src/Http/Auth/Api.ts"

class Session extends HttpApiMiddleware.Tag<Session>()("test/Session") {}
class Users extends Context.Tag("test/Users")<Users, Identity.IdentityShape>() {}

const OwnGroup = HttpApiGroup.make("own").add(HttpApiEndpoint.get("one", "/one"))
const own = Endpoints.of(OwnGroup, Effect.succeed({ one: () => Effect.succeed(Reply.empty(204)) }))

const Kv = HttpApi.make("app").add(KvGroup.prefix("/store"))
const Probes = HttpApi.make("app").add(HealthGroup).add(MetricsGroup)
const Agents = HttpApi.make("app").add(GatewayGroup)
const OverHttp = HttpApi.make("app").add(SessionsGroup)
const Mixed = HttpApi.make("app").add(KvGroup).add(OwnGroup)
const Guarded = HttpApi.make("app").add(KvGroup.middleware(Session)).add(OwnGroup)

const identity = () => Users
const keys = Auth.byKeys({ write: Option.none(), read: Option.none() })
const server = { host: "127.0.0.1", port: 0 }
const upstream = UpstreamClients.layer({
  agentPlatform: { url: Option.none(), apiKey: Option.none() },
  inference: { url: "http://127.0.0.1:1", apiKey: Option.none() }
})
const session = { middleware: Session, admit: () => Effect.succeed(undefined) }
const sessions = Effect.succeed([session])

type RequirementsOf<L> = L extends Layer.Layer<infer _A, infer _E, infer R> ? R : never
type Provided<L> = L extends Layer.Layer<infer A, infer _E, infer _R> ? A : never

/** Everything here is checked by the compiler alone. */
const checked = () => {
  const kv = Causeway.layer({ api: Kv, store: memory, identity })
  expectTypeOf<RequirementsOf<typeof kv>>().toEqualTypeOf<Users | DrainingSignal.DrainingSignal>()
  expectTypeOf<
    HttpApiGroup.ApiGroup<"app", "kv"> | Store.Store | ChangeLog.ChangeLog | ChangeFeed.ChangeFeed
  >().toExtend<Provided<typeof kv>>()

  // The failures of the store are those of the layer.
  const onDisk = Causeway.layer({ api: Kv, store: sqlite("./data"), identity: keys })
  expectTypeOf<RequirementsOf<typeof onDisk>>().toEqualTypeOf<DrainingSignal.DrainingSignal>()
  expectTypeOf<Layer.Layer.Error<typeof onDisk>>().toExtend<{ readonly _tag: "StoreRefused" }>()

  // @ts-expect-error: the key-value part needs a store
  Causeway.layer({ api: Kv, identity })
  // @ts-expect-error: the key-value part needs to know who sends a request
  Causeway.layer({ api: Kv, store: memory })
  // @ts-expect-error: this is no store
  Causeway.layer({ api: Kv, store: DrainingSignal.layer, identity })
  // @ts-expect-error: an identity says what it may do
  Causeway.layer({ api: Kv, store: memory, identity: () => Effect.succeed({ actor: "anna" }) })
  // @ts-expect-error: an identity is refused by answers, not by failures of the host
  Causeway.layer({ api: Kv, store: memory, identity: () => Effect.fail("nobody") })
  // @ts-expect-error: there is no group of a gateway in the api
  Causeway.layer({ api: Kv, store: memory, identity, gateway: Gateway.layer() })
  // @ts-expect-error: probes ask the store
  Causeway.layer({ api: Probes })

  // Probes and metrics need no identity.
  const probes = Causeway.layer({ api: Probes, store: memory })
  expectTypeOf<RequirementsOf<typeof probes>>().toEqualTypeOf<never>()

  const agents = Causeway.layer({ api: Agents, store: memory, identity: keys, gateway: Gateway.layer(), upstream })
  expectTypeOf<RequirementsOf<typeof agents>>().toEqualTypeOf<DrainingSignal.DrainingSignal | HttpClient.HttpClient>()
  // The api is inferred within another call too, with an option that is such a call itself.
  const within = Layer.empty.pipe(
    Layer.provide(
      Causeway.layer({
        api: Agents,
        store: memory,
        identity: keys,
        gateway: Gateway.layer(),
        upstream: Layer.merge(upstream, Layer.empty)
      })
    )
  )
  expectTypeOf<RequirementsOf<typeof within>>().toEqualTypeOf<DrainingSignal.DrainingSignal | HttpClient.HttpClient>()
  // @ts-expect-error: the gateway needs its layer
  Causeway.layer({ api: Agents, store: memory, identity: keys, upstream })
  // @ts-expect-error: the gateway needs the services behind it
  Causeway.layer({ api: Agents, store: memory, identity: keys, gateway: Gateway.layer() })
  // Sessions over HTTP need the same, and no WebSocket.
  const overHttp = Causeway.layer({ api: OverHttp, store: memory, identity: keys, gateway: Gateway.layer(), upstream })
  expectTypeOf<RequirementsOf<typeof overHttp>>().toEqualTypeOf<DrainingSignal.DrainingSignal | HttpClient.HttpClient>()
  // @ts-expect-error: sessions over HTTP need the gateway's layer
  Causeway.layer({ api: OverHttp, store: memory, identity: keys, upstream })
  // @ts-expect-error: this is no gateway
  Causeway.layer({ api: OverHttp, store: memory, identity: keys, gateway: DrainingSignal.layer, upstream })
  const edgeOverHttp = { api: OverHttp, store: memory, identity: keys, gateway: Gateway.layer(), upstream, server }
  expectTypeOf<NodeServer.NodeServer>().toExtend<Provided<ReturnType<typeof onEdge>>>()
  const onEdge = () => Causeway.layerEdge(edgeOverHttp)
  // Other stores may have no histories of sessions.
  const onlyEntries: Layer.Layer<Store.Store | ChangeLog.ChangeLog> = memory
  const lacking = { api: Agents, store: onlyEntries, identity: keys, gateway: Gateway.layer(), upstream }
  expectTypeOf<SessionEvents.SessionEvents>().toExtend<RequirementsOf<ReturnType<typeof mounted>>>()
  const mounted = () => Causeway.layer(lacking)

  // A middleware that the host puts before one of our groups is for the host to provide.
  const guarded = Causeway.layer({ api: Guarded, store: memory, identity: keys })
  expectTypeOf<RequirementsOf<typeof guarded>>().toEqualTypeOf<DrainingSignal.DrainingSignal | Session>()
  // The host's own group is for the host to implement.
  expectTypeOf<HttpApiGroup.ApiGroup<"app", "own">>().not.toExtend<Provided<typeof guarded>>()

  const edge = Causeway.layerEdge({ api: Mixed, store: memory, identity: keys, server, handlers: { own } })
  expectTypeOf<RequirementsOf<typeof edge>>().toEqualTypeOf<DrainingSignal.DrainingSignal>()
  expectTypeOf<NodeServer.NodeServer>().toExtend<Provided<typeof edge>>()
  // @ts-expect-error: the host's group has no handlers
  Causeway.layerEdge({ api: Mixed, store: memory, identity: keys, server })
  // @ts-expect-error: a handler is missing
  Causeway.layerEdge({ api: Mixed, store: memory, identity: keys, server, handlers: { own: Effect.succeed({}) } })
  // @ts-expect-error: the edge does not know the host's middleware
  Causeway.layerEdge({ api: Guarded, store: memory, identity: keys, server, handlers: { own } })
  const none = Effect.succeed([])
  // @ts-expect-error: no guard is that of the host's middleware
  Causeway.layerEdge({ api: Guarded, store: memory, identity: keys, server, handlers: { own }, guards: none })
  Causeway.layerEdge({ api: Guarded, store: memory, identity: keys, server, handlers: { own }, guards: sessions })
  // @ts-expect-error: there is nowhere to listen
  Causeway.layerEdge({ api: Kv, store: memory, identity: keys })

  // By hand.
  Edge.make(Mixed, { kv: kvEndpoints, own }, Auth.guards)
  // @ts-expect-error: a group has no handlers
  Edge.make(Mixed, { kv: kvEndpoints }, Auth.guards)
  // @ts-expect-error: a group has the handlers of another one
  Edge.make(Mixed, { kv: kvEndpoints, own: healthEndpoints }, Auth.guards)
  // @ts-expect-error: there are no guards
  Edge.make(Mixed, { kv: kvEndpoints, own }, Effect.succeed([]))
  // @ts-expect-error: the edge does not know the host's middleware
  Edge.make(Guarded, { kv: kvEndpoints, own }, Auth.guards)
  Edge.make(
    Guarded,
    { kv: kvEndpoints, own },
    Effect.map(Auth.guards, guards => [...guards, session])
  )
  const byHand = GroupLayer.layer(Guarded, KvGroup, kvEndpoints)
  expectTypeOf<Session | ReadAccess>().toExtend<RequirementsOf<typeof byHand>>()
}

it("the compiler checks what this file says", () => {
  expect(checked).toBeTypeOf("function")
})
