/** The composition of the service: the only module that chooses backends and combines the layers. */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import type * as HttpServer from "@effect/platform/HttpServer"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { Config, Console, Duration, Effect, Layer, Option, Redacted } from "effect"
import * as ProcessMetrics from "../base/Observability/ProcessMetrics.ts"
import * as Tracer from "../base/Observability/Tracer.ts"
import { version } from "../base/Version.ts"
import { GatewayGroup } from "../Gateway/Api.ts"
import * as Authentication from "../Gateway/Authentication.ts"
import * as AgentHistories from "../Gateway/Conversations/AgentHistories.ts"
import * as Gateway from "../Gateway/Gateway.ts"
import * as Auth from "../Http/Auth/Auth.ts"
import * as DrainingSignal from "../Http/DrainingSignal.ts"
import { admits, admitsLoopback, FeedOrigins } from "../Http/Origin.ts"
import * as NodeServer from "../Http/Server/NodeServer.ts"
import { ChatPageGroup, ConsoleGroup, IndexGroup, ReferenceGroup } from "../Operations/Pages/Api.ts"
import { indexEndpoints } from "../Operations/Pages/Index.ts"
import { sqlite } from "../Storage/Backends.ts"
import type * as PostgresSessions from "../Storage/Postgres/SessionEvents.ts"
import * as Replication from "../Storage/Sqlite/Replication.ts"
import type { PostgresLocation } from "../Storage/StoreUrl.ts"
import * as AgUiAgent from "../Upstream/AgUiAgent.ts"
import * as UpstreamClients from "../Upstream/UpstreamClients.ts"
import { Api } from "./Api.ts"
import { layerEdge } from "./Causeway/EdgeLayer.ts"
import { type Configuration, developmentKeys } from "./Configuration.ts"

/** The URL of the server for a client on this machine. */
export const baseUrl = (address: HttpServer.Address): string => {
  if (address._tag === "UnixAddress") return `http+unix://${encodeURIComponent(address.path)}`
  const { hostname, port } = address
  // The server reports every wildcard address as 0.0.0.0.
  const host = hostname === "0.0.0.0" ? "127.0.0.1" : hostname.includes(":") ? `[${hostname}]` : hostname
  return `http://${host}:${port}`
}

const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)

/**
 * The command that runs `causeway`: from the sources of a checkout, by npx from the package, or from a file of it that
 * `--package` names.
 */
export const program: Effect.Effect<string> = Config.option(Config.nonEmptyString("npm_config_package")).pipe(
  Effect.orDie,
  Effect.map(
    Option.match({
      onNone: () => (import.meta.url.endsWith(".ts") ? "npm run --silent causeway --" : "npx causewayd"),
      // npm puts an empty line between several.
      onSome: packages =>
        ["npx --yes", ...packages.split("\n\n").map(name => `--package ${quoted(name)}`), "causeway"].join(" ")
    })
  )
)

/** The facts in the message. */
export interface Announced {
  /** The command that runs `causeway`; see {@link program}. */
  readonly program: string
  /** The URL of the service. */
  readonly base: string
  /** The key, as text between the double quotes of a shell. */
  readonly key: string
  readonly hasConsole: boolean
  /** Whether the reference of the API is served. */
  readonly hasReference: boolean
}

/** The message. */
export const banner = ({ base, hasConsole, hasReference, key, program }: Announced): string => {
  const auth = `-H "Authorization: Bearer ${key}"`
  const entry = `'${base}/api/v1/kv/tenant%3Ademo%2Fnotes/hello'`
  return [
    "",
    `Causeway ${version}, dev mode, at ${base}`,
    "",
    "Set an entry, read it, follow the changes:",
    `  curl -X PUT ${entry} ${auth} -H 'Content-Type: application/json' -d '{"value":"world"}'`,
    `  curl ${entry} ${auth}`,
    `  curl '${base}/api/v1/changes?after=0' ${auth}`,
    "",
    "Talk with an agent, in a browser or here:",
    `  ${base}/chat`,
    `  ${program} chat --url ${base}`,
    "",
    ...(hasConsole ? [`Console, to sign in with the key ${key}:`, `  ${base}/console`, ""] : []),
    ...(hasReference ? ["Reference of the API:", `  ${base}/docs`, ""] : [])
  ].join("\n")
}

/** Everything that is served on the one port. */
const served = Api.add(GatewayGroup).add(ChatPageGroup).add(ConsoleGroup).add(ReferenceGroup).add(IndexGroup)

/** Whether the service sends HTTP requests: to an upstream service, or for the key set of clients' tokens. */
const calls = ({ agentPlatform, agents, gateway, inference }: Configuration): boolean =>
  Option.isSome(agentPlatform.url) ||
  AgUiAgent.isSet(agents) ||
  Option.isSome(inference.apiKey) ||
  Option.isSome(gateway.authentication.keySetUrl)

/**
 * The undici client, which is slow to load, only if requests are sent. Bun replaces the package undici by a module whose
 * agents cannot send requests, so that it needs `fetch`.
 */
const httpClient = (configuration: Configuration) =>
  calls(configuration) && process.versions.bun === undefined
    ? Layer.unwrapEffect(
        Effect.map(
          Effect.promise(() => import("@effect/platform-node/NodeHttpClient")),
          ({ layerUndici }) => layerUndici
        )
      )
    : FetchHttpClient.layer

const gateway = ({ devMode, gateway, shutdownTimeout, store }: Configuration) => {
  const { authentication, history, nodes, sessions, socket } = gateway
  return Gateway.layerWith(devMode ? Authentication.layerDev(authentication) : Authentication.layer(authentication), {
    history,
    socket,
    // Without a shared database, other nodes have separate sessions.
    nodes: Option.zipRight(store.postgres, nodes),
    sessions: { ...sessions, stopping: Duration.times(shutdownTimeout, 0.3) }
  })
}

/** A PostgreSQL database, which several nodes may share. Its client, the package `pg`, is loaded when it is built. */
const postgres = (location: PostgresLocation, options: PostgresSessions.Options) =>
  Layer.unwrapEffect(
    Effect.map(
      Effect.promise(() =>
        Promise.all([import("../Storage/Postgres.ts"), import("../Storage/Postgres/SessionEvents.ts")])
      ),
      ([store, sessions]) => Layer.provideMerge(sessions.layer(options), store.layer(location))
    )
  )

const storage = ({ gateway: { history }, store: { directory, lease, postgres: location } }: Configuration) =>
  Option.match(location, {
    onNone: () => sqlite({ directory, history }),
    onSome: location => postgres(location, { directory, retention: history, lease })
  })

/** Requests in flight get the largest part of the shutdown time, sessions a smaller one, and the store the rest. */
const server = ({ address, connectionLimits, limits: { bodyBytes }, origins, shutdownTimeout }: Configuration) => {
  const heldBodyBytes = Math.max(connectionLimits.heldBodyBytes, bodyBytes)
  const limits = { ...connectionLimits, heldBodyBytes }
  return { ...address, limits, origins, gracePeriod: Duration.times(shutdownTimeout, 0.6) }
}

/** The services behind the gateway. AG-UI agents get the conversations of sessions. */
const upstream = (configuration: Configuration) => {
  const { agentPlatform, agents, inference } = configuration
  if (!AgUiAgent.isSet(agents)) return UpstreamClients.layer(configuration)
  const { eventBytes, unfinishedBytes } = agentPlatform
  const limits = { ...(eventBytes && { eventBytes }), ...(unfinishedBytes && { unfinishedBytes }) }
  return Layer.provide(
    UpstreamClients.layerAgents({ agents: { ...agents, ...limits }, inference }),
    AgentHistories.layer
  )
}

/** All parts, on our own server. */
const serve = (configuration: Configuration) => {
  const { devMode, followLimits, keys, limits, metrics, pages, replication, retention } = configuration
  return layerEdge({
    api: served,
    handlers: { index: indexEndpoints(pages) },
    server: server(configuration),
    identity: Auth.byKeys(keys),
    store: storage(configuration),
    gateway: gateway(configuration),
    upstream: upstream(configuration),
    checks: Option.toArray(Option.map(replication, Replication.check)),
    metrics: { ...metrics, json: devMode },
    pages: { ...pages, chat: devMode },
    retention: Option.getOrUndefined(retention),
    limits,
    followLimits
  })
}

/** Which web pages may follow the change log by WebSocket. */
const feedOrigins = ({ devMode, gateway: { authentication } }: Configuration) =>
  Layer.succeed(FeedOrigins, (devMode ? admitsLoopback : admits)(authentication.origins))

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
        const { console: hasConsole, reference: hasReference } = configuration.pages
        const announced = {
          program: yield* program,
          base: baseUrl(address),
          key: shownKey(configuration)
        }
        yield* Console.log(banner({ ...announced, hasConsole, hasReference }))
        return
      }
      const where = address._tag === "TcpAddress" ? { host: address.hostname, port: address.port } : address
      yield* Effect.annotateLogs(Effect.logInfo("Listening"), { ...where, version })
    })
  )

const serving = (configuration: Configuration) =>
  Layer.mergeAll(announce(configuration), ProcessMetrics.layerTrace).pipe(
    Layer.provide(serve(configuration)),
    Layer.provide([DrainingSignal.layer, NodeFileSystem.layer, feedOrigins(configuration), httpClient(configuration)]),
    Layer.provide(Tracer.layerFor(configuration.collector))
  )

/** In dev mode the simulator replaces upstream services that are not configured. Production does not load it. */
const withSimulator = (configuration: Configuration) =>
  Effect.promise(() => import("../Simulator/Simulator.ts")).pipe(
    Effect.flatMap(({ simulatedUpstreams }) => simulatedUpstreams(configuration)),
    Effect.map(upstreams => serving({ ...configuration, ...upstreams })),
    Layer.unwrapScoped
  )

/** Serves until its scope closes. Layers are released in reverse order: requests, then the server, then the store. */
export const layer = (configuration: Configuration) =>
  configuration.devMode ? withSimulator(configuration) : serving(configuration)
