/**
 * The service for hosts without Effect, or with another version of it: `causeway-standalone`, a package of its own in which
 * Effect is bundled. See `docs/standalone.md`.
 */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import type * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import {
  Cause,
  Context,
  Duration,
  Effect,
  Exit,
  HashMap,
  Layer,
  Logger,
  LogLevel,
  Option,
  Redacted,
  Runtime,
  Scope
} from "effect"
import { Api } from "./Api.ts"
import * as Auth from "./Auth/Auth.ts"
import { endpoints } from "./Endpoints.ts"
import { GatewayGroup } from "./Gateway/Api.ts"
import * as AsyncApi from "./Gateway/AsyncApi.ts"
import * as Authentication from "./Gateway/Authentication.ts"
import { endpoints as gatewayEndpoints } from "./Gateway/Endpoints.ts"
import * as GatewayMetrics from "./Gateway/GatewayMetrics.ts"
import * as SessionEventsInMemory from "./Gateway/SessionEvents/Memory.ts"
import * as Retention from "./Gateway/SessionEvents/Retention.ts"
import * as Registry from "./Gateway/Sessions/Registry.ts"
import * as SessionSettings from "./Gateway/Sessions/Settings.ts"
import * as Socket from "./Gateway/Socket.ts"
import * as Health from "./Health/Health.ts"
import { Unauthorized } from "./Http/ApiError.ts"
import * as DrainingSignal from "./Http/DrainingSignal.ts"
import * as Edge from "./Http/Edge/Edge.ts"
import type { Identify } from "./Http/Identity.ts"
import * as Origin from "./Http/Origin.ts"
import type { Listeners } from "./Http/Server/Gate.ts"
import * as RequestMetrics from "./Http/Server/RequestMetrics.ts"
import * as Body from "./Kv/Body.ts"
import * as ChangeFeed from "./Kv/ChangeFeed.ts"
import { Store } from "./Kv/Store.ts"
import * as MetricTags from "./MetricTags.ts"
import { MetricsRoutes } from "./Observability/Endpoints.ts"
import * as Metrics from "./Observability/Metrics.ts"
import * as Tracer from "./Observability/Tracer.ts"
import { endpoints as description } from "./OpenApi/Endpoints.ts"
import type { CausewayOptions, CreateCauseway, Identity, LogLine } from "./Standalone/Interface.ts"
import { problemOf } from "./Standalone/Options.ts"
import { Requests } from "./Standalone/Requests.ts"
import * as Housekeeping from "./Storage/Housekeeping.ts"
import * as Memory from "./Storage/Memory.ts"
import * as SessionEvents from "./Storage/Sqlite/SessionEvents.ts"
import * as Sqlite from "./Storage/Sqlite.ts"
import * as Supervision from "./Supervision.ts"
import * as Inference from "./Upstream/Inference.ts"
import * as UpstreamClients from "./Upstream/UpstreamClients.ts"

const identityOf = (identity: Identity | null) =>
  identity === null ? Exit.fail(Unauthorized.answer()) : Exit.succeed(identity)

/** The function of the host; where it answers at once, no fiber is needed. */
const identify =
  (identity: CausewayOptions["identity"]): Identify =>
  request => {
    const identified = identity(request)
    return identified instanceof Promise
      ? Effect.flatMap(
          Effect.promise(() => identified),
          identityOf
        )
      : identityOf(identified)
  }

const toConsole = ({ annotations, level, message }: LogLine): void => {
  if (level === "WARN" || level === "ERROR" || level === "FATAL") console.error(level, message, annotations)
}

const logging = (log: (line: LogLine) => void): Layer.Layer<never> =>
  Layer.merge(
    Logger.replace(
      Logger.defaultLogger,
      Logger.make(({ annotations, cause, date, logLevel, message }) => {
        const texts = (Array.isArray(message) ? message : [message]).map(String)
        if (!Cause.isEmpty(cause)) texts.push(Cause.pretty(cause, { renderErrorCause: true }))
        log({
          level: (logLevel === LogLevel.Warning ? "WARN" : logLevel.label) as LogLine["level"],
          message: texts.join("\n"),
          timestamp: date.getTime(),
          annotations: Object.fromEntries(HashMap.toEntries(annotations))
        })
      })
    ),
    Logger.minimumLogLevel(LogLevel.Info)
  )

const secret = (text: string | undefined) => Option.map(Option.fromNullable(text), Redacted.make<string>)

const sessionEventsOf = ({ store }: CausewayOptions) =>
  store === "memory"
    ? SessionEventsInMemory.layer()
    : SessionEvents.layer({ directory: store.directory, retention: Retention.defaults })

/** The gateway, and the services behind it. */
const gatewayOf = (
  options: CausewayOptions,
  { agentPlatform, idleTimeout, inference }: NonNullable<CausewayOptions["gateway"]>
) =>
  Layer.mergeAll(
    Registry.layerSubscriptions,
    Retention.layer(Retention.defaults.age),
    Layer.effectDiscard(Effect.map(MetricTags.current, GatewayMetrics.register)),
    Health.layer()
  ).pipe(
    Layer.provideMerge(Socket.layer(Socket.defaults)),
    Layer.provideMerge(
      Registry.layer({
        ...SessionSettings.defaults,
        ...(idleTimeout === undefined ? {} : { idleTimeout: Duration.millis(idleTimeout) })
      })
    ),
    Layer.provide(Authentication.layerIdentity({ origins: options.origins ?? [] })),
    Layer.provide(sessionEventsOf(options)),
    Layer.provide(
      UpstreamClients.layer({
        agentPlatform: { url: Option.some(agentPlatform.url), apiKey: secret(agentPlatform.apiKey) },
        inference: {
          url: inference?.url ?? Inference.defaultUrl,
          // Without a credential there would be no inference.
          apiKey: secret(inference && (inference.apiKey ?? "none"))
        }
      })
    ),
    Layer.provide(FetchHttpClient.layer)
  )

/** What all groups but the gateway's stand on. */
const baseOf = ({ identity, metrics = {}, origins = [], retention, store }: CausewayOptions) => {
  const { json = false, prometheus = false, token } = metrics
  return Layer.mergeAll(
    Body.layer,
    ChangeFeed.layerMetrics,
    Housekeeping.layer(Option.map(Option.fromNullable(retention), Duration.millis))
  ).pipe(
    Layer.provideMerge(ChangeFeed.layer),
    Layer.provideMerge(store === "memory" ? Memory.layer : Sqlite.layer(store)),
    Layer.provideMerge(
      Layer.mergeAll(
        DrainingSignal.layer,
        Auth.layerIdentity(identify(identity)),
        Metrics.layer,
        Layer.succeed(MetricsRoutes, { json, prometheus, token: secret(token) }),
        Layer.succeed(Origin.FeedOrigins, Origin.admits(origins)),
        Tracer.layer
      )
    )
  )
}

/** The requests of an instance, and what its other members run in. */
class Instance extends Context.Tag("causeway/Standalone")<
  Instance,
  {
    readonly requests: Requests
    readonly runtime: Runtime.Runtime<Store | Metrics.Metrics | DrainingSignal.DrainingSignal>
  }
>() {}

const under = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  prefix: string,
  api: HttpApi.HttpApi<Id, Groups, E, R>
) => (prefix === "" ? api : api.prefix(prefix as `/${string}`))

/** An instance that serves with these listeners. */
const instance = <R>({ prefix = "" }: CausewayOptions, listeners: Effect.Effect<Listeners, never, R>) =>
  Layer.effect(
    Instance,
    Effect.gen(function* () {
      const observe = yield* RequestMetrics.observer(under(prefix, Api))
      const runtime = yield* Effect.runtime<Store | Metrics.Metrics | DrainingSignal.DrainingSignal>()
      return { requests: new Requests(prefix, yield* listeners, observe), runtime }
    })
  )

/** The groups of the service that are asked for, each under the prefix. */
const layerOf = (options: CausewayOptions) => {
  const { gateway, log = toConsole, metrics, prefix = "" } = options
  const asyncApi = Effect.sync(() => AsyncApi.text())
  const base = baseOf(options)
  const layer =
    gateway === undefined
      ? instance(
          options,
          Edge.make(
            under(prefix, Api),
            { ...endpoints, description: description(under(prefix, Api), asyncApi) },
            Auth.guards
          )
        ).pipe(Layer.provide(Layer.provideMerge(Health.layerAlone, base)))
      : instance(
          options,
          Edge.make(
            under(prefix, Api.add(GatewayGroup)),
            { ...endpoints, description: description(under(prefix, Api), asyncApi), gateway: gatewayEndpoints },
            Auth.guards
          )
        ).pipe(Layer.provide(Layer.provideMerge(gatewayOf(options, gateway), base)))
  return MetricTags.tagged(metrics?.tags ?? {})(layer).pipe(Layer.provide([logging(log), Tracer.layerOff]))
}

/** How long requests may take to end once they are cut. */
const cutting = Duration.seconds(1)

const errorOf = (cause: Cause.Cause<unknown>): Error => {
  const found = Cause.squash(cause)
  return found instanceof Error ? new Error(found.message, { cause: found }) : new Error(String(found))
}

/**
 * Starts an instance. It is rejected where an option is invalid, or where the store cannot be opened, with a message that
 * says why.
 */
export const createCauseway: CreateCauseway = async options => {
  const problem = problemOf(options)
  if (problem !== undefined) throw new TypeError(`createCauseway: ${problem}`)
  const { gracePeriod = 10_000 } = options
  const scope = Effect.runSync(Scope.make())
  const started = await Effect.runPromiseExit(Layer.buildWithScope(layerOf(options), scope))
  if (Exit.isFailure(started)) {
    await Effect.runPromise(Scope.close(scope, started))
    throw errorOf(started.cause)
  }
  const { requests, runtime } = Context.get(started.value, Instance)
  const run = Runtime.runPromise(runtime)
  const end = Effect.gen(function* () {
    yield* Effect.flatMap(DrainingSignal.DrainingSignal, ({ begin }) => begin)
    requests.drain()
    const ended = yield* Supervision.within(gracePeriod, requests.ended)
    if (Option.isNone(ended)) {
      requests.cut()
      yield* Supervision.within(cutting, requests.ended)
    }
    yield* Scope.close(scope, Exit.void)
  })
  let closed: Promise<void> | undefined
  return {
    handler: requests.handler,
    upgrade: requests.upgrade,
    metrics: () => run(Effect.flatMap(Metrics.Metrics, ({ prometheus }) => prometheus)),
    ready: () =>
      closed === undefined
        ? run(Effect.flatMap(Store, ({ ready }) => ready).pipe(Effect.catchAllCause(() => Effect.succeed(false))))
        : Promise.resolve(false),
    close: () => {
      closed ??= run(end)
      return closed
    }
  }
}
