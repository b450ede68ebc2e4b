/**
 * The composition of the service: the only place that chooses backends and combines the layers.
 */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { Console, Duration, Effect, Layer, Option, Redacted } from "effect"
import { Api } from "./Api.ts"
import * as Auth from "./Auth/Auth.ts"
import { banner, baseUrl } from "./Banner.ts"
import { type Configuration, developmentKeys } from "./Configuration.ts"
import { endpoints } from "./Endpoints.ts"
import { GatewayGroup } from "./Gateway/Api.ts"
import * as Gateway from "./Gateway/Gateway.ts"
import * as Socket from "./Gateway/Socket.ts"
import * as Health from "./Health/Health.ts"
import * as DrainingSignal from "./Http/DrainingSignal.ts"
import * as Edge from "./Http/Edge/Edge.ts"
import { admits, admitsLoopback, FeedOrigins } from "./Http/Origin.ts"
import { pathOf } from "./Http/Router.ts"
import * as NodeServer from "./Http/Server/NodeServer.ts"
import * as RequestMetrics from "./Http/Server/RequestMetrics.ts"
import * as KvBody from "./Kv/Body.ts"
import * as ChangeFeed from "./Kv/ChangeFeed.ts"
import * as Limits from "./Limits.ts"
import { MetricsRoutes } from "./Observability/Endpoints.ts"
import * as Metrics from "./Observability/Metrics.ts"
import * as RuntimeTrace from "./Observability/RuntimeTrace.ts"
import * as Tracer from "./Observability/Tracer.ts"
import * as Housekeeping from "./Storage/Housekeeping.ts"
import type * as PostgresSessionEvents from "./Storage/Postgres/SessionEvents.ts"
import * as Replication from "./Storage/Sqlite/Replication.ts"
import * as SessionEvents from "./Storage/Sqlite/SessionEvents.ts"
import * as Sqlite from "./Storage/Sqlite.ts"
import type { PostgresLocation } from "./Storage/StoreUrl.ts"
import * as UpstreamClients from "./Upstream/UpstreamClients.ts"
import { version } from "./Version.ts"

/** All that is served on the one port. */
const served = Api.add(GatewayGroup)

const serve = NodeServer.serve(Edge.make(served, { ...endpoints, gateway: Socket.endpoints }, Auth.guards))

/** Whether the service sends HTTP requests: to an upstream service, or for the key set of clients' tokens. */
const calls = ({ agentPlatform, gateway, inference }: Configuration): boolean =>
  Option.isSome(agentPlatform.url) || Option.isSome(inference.apiKey) || Option.isSome(gateway.authentication.keySetUrl)

/** The undici client, which is slow to load, only where requests are sent. */
const httpClient = (configuration: Configuration) =>
  calls(configuration)
    ? Layer.unwrapEffect(
        Effect.map(
          Effect.promise(() => import("@effect/platform-node/NodeHttpClient")),
          ({ layerUndici }) => layerUndici
        )
      )
    : FetchHttpClient.layer

/** The shared database. Its client is loaded only where it is configured. */
const postgres = (location: PostgresLocation, options: PostgresSessionEvents.Options) =>
  Layer.unwrapEffect(
    Effect.map(
      Effect.promise(() =>
        Promise.all([import("./Storage/Postgres.ts"), import("./Storage/Postgres/SessionEvents.ts")])
      ),
      ([store, sessions]) => Layer.provideMerge(sessions.layer(options), store.layer(location))
    )
  )

/** The store, and the session event log beside it. */
const storage = ({ gateway, store: { directory, lease, postgres: location } }: Configuration) => {
  const retention = gateway.history
  return Option.match(location, {
    // The store is opened first: it owns the directory, and migrates session data of earlier versions out of `kv.db`.
    onNone: () => Layer.provideMerge(SessionEvents.layer({ directory, retention }), Sqlite.layer({ directory })),
    onSome: location => postgres(location, { directory, retention, lease })
  })
}

const gateway = ({ devMode, gateway, shutdownTimeout }: Configuration) =>
  Gateway.layer(
    { ...gateway, sessions: { ...gateway.sessions, stopping: Duration.times(shutdownTimeout, 0.3) } },
    { devMode }
  )

const services = (configuration: Configuration) => {
  const { devMode, followLimits, keys, limits, metrics, replication, retention } = configuration
  return Layer.mergeAll(
    KvBody.layer,
    ChangeFeed.layerMetrics,
    Housekeeping.layer(retention),
    Health.layer({ replication: Option.map(replication, Replication.check) })
  ).pipe(
    Layer.provideMerge(Layer.merge(ChangeFeed.layer, gateway(configuration))),
    Layer.provideMerge(storage(configuration)),
    Layer.provideMerge(UpstreamClients.layer(configuration)),
    Layer.provideMerge(
      Layer.mergeAll(
        DrainingSignal.layer,
        NodeFileSystem.layer,
        httpClient(configuration),
        Auth.layer(keys),
        Metrics.layer,
        Layer.succeed(MetricsRoutes, { ...metrics, json: devMode }),
        Layer.succeed(Limits.Limits, limits),
        Layer.succeed(ChangeFeed.FollowLimits, followLimits),
        Layer.succeed(FeedOrigins, (devMode ? admitsLoopback : admits)(configuration.gateway.authentication.origins))
      )
    )
  )
}

/** The probes of an orchestrator, which are answered beyond the limit of connections too. */
const probes: ReadonlySet<string> = new Set(["/api/v1/ready", "/api/v1/health"])

const isProbe = (target: string): boolean => probes.has(pathOf(target))

/** Of the time for shutdown, requests in flight get the largest part, sessions a part, and the store the rest. */
const server = ({ address, connectionLimits, limits: { bodyBytes }, origins, shutdownTimeout }: Configuration) => {
  const heldBodyBytes = Math.max(connectionLimits.heldBodyBytes, bodyBytes)
  const limits = { ...connectionLimits, heldBodyBytes }
  return Layer.unwrapEffect(
    Effect.map(RequestMetrics.observer(Api), observe =>
      NodeServer.layer({
        ...address,
        observe,
        limits,
        isProbe,
        origins,
        gracePeriod: Duration.times(shutdownTimeout, 0.6)
      })
    )
  )
}

/** The key in the banner: the development key, or a shell variable for a key of the user. */
const shownKey = ({ keys }: Configuration): string =>
  Option.exists(keys.write, key => Redacted.value(key) === developmentKeys.write)
    ? developmentKeys.write
    : "$KV_API_KEY"

const announce = (configuration: Configuration) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { address } = yield* NodeServer.NodeServer
      yield* Effect.forEach(configuration.warnings, warning => Effect.logWarning(warning), { discard: true })
      if (configuration.devMode) {
        yield* Console.log(banner(baseUrl(address), shownKey(configuration)))
        return
      }
      const where = address._tag === "TcpAddress" ? { host: address.hostname, port: address.port } : address
      yield* Effect.annotateLogs(Effect.logInfo("Listening"), { ...where, version })
    })
  )

const serving = (configuration: Configuration) =>
  Layer.mergeAll(announce(configuration), RuntimeTrace.layer).pipe(
    Layer.provide(serve),
    Layer.provide(server(configuration)),
    Layer.provide(services(configuration)),
    Layer.provide(Tracer.layerFor(configuration.collector))
  )

/** In dev mode the simulator stands in for upstream services that are not configured. Production does not load it. */
const withSimulator = (configuration: Configuration) =>
  Effect.promise(() => import("./Simulator/Simulator.ts")).pipe(
    Effect.flatMap(({ simulatedUpstreams }) => simulatedUpstreams(configuration)),
    Effect.map(upstreams => serving({ ...configuration, ...upstreams })),
    Layer.unwrapScoped
  )

/**
 * Serves until its scope closes. Layers are released in reverse order: requests, then the server, then the store.
 */
export const layer = (configuration: Configuration) =>
  configuration.devMode ? withSimulator(configuration) : serving(configuration)
