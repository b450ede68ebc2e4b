/** Serves the whole API to tests over a real socket. */
import { createServer } from "node:http"
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import * as HttpServer from "@effect/platform/HttpServer"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Effect, Layer, Option, Redacted, type Scope } from "effect"
import { StoreApi as Api } from "../src/app/Api.ts"
import * as Causeway from "../src/app/Causeway.ts"
import * as Metrics from "../src/base/Observability/Metrics.ts"
import * as Auth from "../src/Http/Auth/Auth.ts"
import type * as Cors from "../src/Http/Cors.ts"
import * as DrainingSignal from "../src/Http/DrainingSignal.ts"
import * as PlatformMiddleware from "../src/Http/Platform/Middleware.ts"
import * as PlatformServer from "../src/Http/Platform/PlatformServer.ts"
import * as StockServer from "../src/Http/Platform/StockServer.ts"
import * as Body from "../src/Kv/Body.ts"
import * as ChangeFeed from "../src/Kv/ChangeFeed.ts"
import type { ChangeLog } from "../src/Kv/ChangeLog.ts"
import type { Store } from "../src/Kv/Store.ts"
import * as Health from "../src/Operations/Health/Report.ts"

/** Where a service listens. */
export interface Served {
  readonly url: string
  readonly port: number
}

/** A transport that serves the API. Clients must not see a difference. */
export interface Transport {
  readonly name: string
  /** Serves the whole API over this store, with these {@link keys}, until the scope closes. */
  readonly serve: (store: Layer.Layer<Store | ChangeLog, unknown>) => Effect.Effect<Served, unknown, Scope.Scope>
}

/** The credentials of every service under test. */
export const keys = { write: "key-that-writes", read: "key-that-reads" } as const

const bothKeys: Auth.Keys = {
  write: Option.some(Redacted.make(keys.write)),
  read: Option.some(Redacted.make(keys.read))
}

/** Who is let in. */
export const auth = Auth.layer(bothKeys)

/** Who sends a request. */
export const identity = Auth.byKeys(bothKeys)

/** The services that every transport needs, over a store. */
export const services = (store: Layer.Layer<Store | ChangeLog, unknown>) =>
  Layer.mergeAll(auth, Body.layer, ChangeFeed.layer, Health.layerAlone, Metrics.layer).pipe(
    Layer.provideMerge(DrainingSignal.layer),
    Layer.provideMerge(store)
  )

/** The port of a server that listens on TCP. */
export const portOf = (server: { readonly address: HttpServer.Address }): number =>
  server.address._tag === "TcpAddress" ? server.address.port : 0

/** The API as @effect/platform serves it, without a server. */
const applicationFor = (origins: Cors.AllowedOrigins, store: Layer.Layer<Store | ChangeLog, unknown>) =>
  HttpApiBuilder.serve().pipe(
    Layer.provide(PlatformMiddleware.corsLayer(origins)),
    Layer.provide(HttpApiBuilder.api(Api)),
    Layer.provide(Causeway.layer({ api: Api, store, identity }))
  )

/** Serves on @effect/platform's own HTTP server, for web pages of other origins too. */
export const stockFor = (origins: Cors.AllowedOrigins): Transport => ({
  name: "stock",
  serve: store =>
    Effect.gen(function* () {
      const server = NodeHttpServer.layer(() => createServer(), { host: "127.0.0.1", port: 0 })
      const listening = StockServer.layer(Api).pipe(Layer.provideMerge(server))
      const application = Layer.provideMerge(applicationFor(origins, store), listening)
      const context = yield* Layer.build(Layer.provide(application, DrainingSignal.layer))
      const port = portOf(yield* Effect.provide(HttpServer.HttpServer, context))
      return { url: `http://127.0.0.1:${port}`, port }
    })
})

/** Serves by @effect/platform on the service's own server, for web pages of other origins too. */
export const platformFor = (origins: Cors.AllowedOrigins): Transport => ({
  name: "platform",
  serve: store =>
    Effect.gen(function* () {
      const server = PlatformServer.layer({ host: "127.0.0.1", port: 0, gracePeriod: 0, origins })
      const application = Layer.provideMerge(applicationFor([], store), server)
      const context = yield* Layer.build(Layer.provide(application, DrainingSignal.layer))
      const port = portOf(yield* Effect.provide(HttpServer.HttpServer, context))
      return { url: `http://127.0.0.1:${port}`, port }
    })
})

/** Serves on @effect/platform's own HTTP server. */
export const stock: Transport = stockFor([])
