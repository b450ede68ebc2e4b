/**
 * The service for hosts without Effect, or with another version of it: `causewayd-standalone`, a separate package in
 * which Effect is bundled. See `docs/embed/standalone.md`.
 */

import type { IncomingMessage, ServerResponse } from "node:http"
import type { Duplex } from "node:stream"
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
  ManagedRuntime,
  Option,
  Redacted,
  Runtime
} from "effect"
import * as Metrics from "../base/Observability/Metrics.ts"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import * as Tracer from "../base/Observability/Tracer.ts"
import * as Supervision from "../base/Supervision.ts"
import { AgUiGroup } from "../Gateway/AgUi/Api.ts"
import { ChatGroup } from "../Gateway/AiSdk/Api.ts"
import { GatewayGroup } from "../Gateway/Api.ts"
import * as Gateway from "../Gateway/Gateway.ts"
import { SessionsGroup } from "../Gateway/HttpSessions/Api.ts"
import { ServiceUnavailable, Unauthorized } from "../Http/ApiError.ts"
import { timing } from "../Http/ConnectionLimits.ts"
import * as DrainingSignal from "../Http/DrainingSignal.ts"
import { problemOfFields } from "../Http/HeaderFields.ts"
import type { Identify } from "../Http/Identity.ts"
import { pathOf } from "../Http/Router.ts"
import type { Listeners as GateListeners, Observe } from "../Http/Server/Gate.ts"
import { closeUpgraded, refuse } from "../Http/Server/GracefulClose.ts"
import { Store } from "../Kv/Store.ts"
import { ConsoleGroup, ReferenceGroup } from "../Operations/Pages/Api.ts"
import { type Backend, memory, sqlite } from "../Storage/Backends.ts"
import type { StoreRefused } from "../Storage/Sqlite.ts"
import * as Inference from "../Upstream/Inference.ts"
import * as UpstreamClients from "../Upstream/UpstreamClients.ts"
import { StoreApi } from "./Api.ts"
import { layerListeners } from "./Causeway/EdgeLayer.ts"
import { Listeners } from "./Causeway/Options.ts"
import type { Causeway, CausewayOptions, CreateCauseway, Identity, LogLine } from "./Standalone/Interface.ts"

const shuttingDown = "The service is shutting down"

const send = (response: ServerResponse, status: number, error: string): void => {
  const headers = { "content-type": "application/json", connection: "close" }
  response.writeHead(status, status === 503 ? { ...headers, ...ServiceUnavailable.retryAfter() } : headers)
  response.end(JSON.stringify({ error }))
}

/** The target of a request, also if a framework has stripped its mount point. */
const targetOf = (request: IncomingMessage): string => {
  const original: unknown = Reflect.get(request, "originalUrl")
  return typeof original === "string" ? original : (request.url ?? "/")
}

/** Requests and WebSockets of the host's server whose paths are under the prefix. */
export class Requests implements Pick<Causeway, "handler" | "upgrade"> {
  readonly #inFlight = new Set<Duplex | ServerResponse>()
  #isDraining = false
  #onChange = (): void => {}

  constructor(
    private readonly prefix: string,
    private readonly listeners: GateListeners,
    private readonly observe: Observe
  ) {}

  readonly handler: Causeway["handler"] = (request, response, next) => {
    const target = targetOf(request)
    if (!this.#isOurs(target)) {
      if (next === undefined) send(response, 404, "Not found: the service has no such route")
      else next()
      return
    }
    request.url = target
    const ended = this.observe(request, response)
    response.once("close", ended)
    if (this.#isDraining) return send(response, 503, shuttingDown)
    const problem = problemOfFields(request)
    if (problem !== undefined) return send(response, problem.status, problem.error)
    this.#add(response)
    this.listeners.request(request, response)
  }

  readonly upgrade: Causeway["upgrade"] = (request, socket, head) => {
    const target = targetOf(request)
    if (!this.#isOurs(target)) return false
    request.url = target
    // Node removes its own listener, and an error without a listener would end the process.
    socket.on("error", () => socket.destroy())
    closeUpgraded(socket, timing)
    const problem = this.#isDraining ? { status: 503, error: shuttingDown } : problemOfFields(request)
    if (problem !== undefined) {
      refuse(socket, problem.status, problem.error)
      return true
    }
    this.#add(socket)
    this.listeners.upgrade(request, socket, head)
    return true
  }

  /** Answers later requests with 503. */
  drain(): void {
    this.#isDraining = true
    for (const held of this.#inFlight) if ("shouldKeepAlive" in held) held.shouldKeepAlive = false
  }

  /** Closes all connections with requests in flight. */
  cut(): void {
    for (const held of [...this.#inFlight]) held.destroy()
  }

  /** Waits until nothing is in flight. */
  readonly ended: Effect.Effect<void> = Effect.async(resume => {
    this.#onChange = () => {
      if (this.#inFlight.size === 0) resume(Effect.void)
    }
    this.#onChange()
    return Effect.sync(() => {
      this.#onChange = () => {}
    })
  })

  #isOurs(target: string): boolean {
    const path = pathOf(target)
    return path === this.prefix || path.startsWith(`${this.prefix}/`)
  }

  #add(held: Duplex | ServerResponse): void {
    if (held.closed) return
    this.#inFlight.add(held)
    held.once("close", () => {
      this.#inFlight.delete(held)
      this.#onChange()
    })
  }
}

const isUrl = (text: unknown): boolean =>
  typeof text === "string" && /^https?:\/\//.test(text) && URL.canParse(text) && !text.endsWith("/")

const isDuration = (value: unknown): boolean => value === undefined || (Number.isFinite(value) && Number(value) >= 0)

/** What is wrong with options, which may come from JavaScript; `undefined` if they are valid. */
const problemOf = (options: CausewayOptions): string | undefined => {
  const { gateway, gracePeriod, identity, log, prefix = "", retention, store } = options
  if (store !== "memory" && (typeof store?.directory !== "string" || store.directory === "")) {
    return 'store must be "memory" or { directory }'
  }
  if (typeof identity !== "function") return "identity must be a function"
  if (log !== undefined && typeof log !== "function") return "log must be a function"
  if (!/^(?:\/[A-Za-z0-9._~-]+)*$/.test(prefix)) {
    return `prefix must be a path such as /store, without a slash at its end, not ${JSON.stringify(prefix)}`
  }
  if (!isDuration(retention)) return `retention must be milliseconds, not ${String(retention)}`
  if (!isDuration(gracePeriod)) return `gracePeriod must be milliseconds, not ${String(gracePeriod)}`
  if (gateway === undefined) return undefined
  const { agentPlatform, idleTimeout, inference } = gateway
  if (!isDuration(idleTimeout)) return `gateway.idleTimeout must be milliseconds, not ${String(idleTimeout)}`
  if (!isUrl(agentPlatform?.url)) return `gateway.agentPlatform.url must be an http address without a slash at its end`
  return inference === undefined || isUrl(inference.url)
    ? undefined
    : `gateway.inference.url must be an http address without a slash at its end`
}

const identityOf = (identity: Identity | null) =>
  identity === null ? Exit.fail(Unauthorized.answer()) : Exit.succeed(identity)

/** The host's function; if it returns at once, no fiber is needed. */
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

const storeOf = ({ store }: CausewayOptions): Layer.Layer<Backend, StoreRefused> =>
  store === "memory" ? memory : sqlite(store.directory)

/** The gateway, and the services behind it. */
const gatewayOf = ({ gateway, origins = [] }: CausewayOptions) => {
  if (gateway === undefined) return undefined
  const { agentPlatform, idleTimeout, inference } = gateway
  return {
    gateway: Gateway.layer({
      origins,
      ...(idleTimeout === undefined ? {} : { sessions: { idleTimeout: Duration.millis(idleTimeout) } })
    }),
    upstream: UpstreamClients.layer({
      agentPlatform: { url: Option.some(agentPlatform.url), apiKey: secret(agentPlatform.apiKey) },
      // Without a credential there would be no inference.
      inference: inference ? { url: inference.url, apiKey: secret(inference.apiKey ?? "none") } : Inference.none
    })
  }
}

/** The requests of an instance, and the runtime of its other members. */
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

/** What every instance serves. */
const Served = StoreApi.add(ConsoleGroup).add(ReferenceGroup)

/** The groups of the service that the options select, each under the prefix. */
const applicationOf = (options: CausewayOptions) => {
  const {
    console = false,
    identity,
    metrics: { json = false, prometheus = false, token } = {},
    origins = [],
    prefix = "",
    reference = false
  } = options
  const common = {
    store: storeOf(options),
    identity: identify(identity),
    retention: options.retention,
    metrics: { json, prometheus, token: secret(token) },
    pages: { console, reference },
    origins
  }
  const gateway = gatewayOf(options)
  return gateway === undefined
    ? layerListeners({ ...common, api: under(prefix, Served) })
    : layerListeners({
        ...common,
        ...gateway,
        api: under(prefix, Served.add(SessionsGroup).add(AgUiGroup).add(ChatGroup).add(GatewayGroup))
      })
}

const layerOf = (options: CausewayOptions) => {
  const { log = toConsole, metrics, prefix = "" } = options
  const instance = Layer.effect(
    Instance,
    Effect.gen(function* () {
      const listeners = yield* Listeners
      const runtime = yield* Effect.runtime<Store | Metrics.Metrics | DrainingSignal.DrainingSignal>()
      return { requests: new Requests(prefix, listeners, listeners.observe), runtime }
    })
  )
  return instance.pipe(
    Layer.provide(applicationOf(options)),
    MetricTags.tagged(metrics?.tags ?? {}),
    Layer.provide([DrainingSignal.layer, FetchHttpClient.layer, logging(log), Tracer.layerOff])
  )
}

/** How long requests may take to end once they are cut. */
const cutting = Duration.seconds(1)

const errorOf = (cause: Cause.Cause<unknown>): Error => {
  const found = Cause.squash(cause)
  return found instanceof Error ? new Error(found.message, { cause: found }) : new Error(String(found))
}

/**
 * Starts an instance. The promise is rejected with a message that names the reason if an option is invalid, or if the
 * store cannot be opened.
 */
export const createCauseway: CreateCauseway = async options => {
  const problem = problemOf(options)
  if (problem !== undefined) throw new TypeError(`createCauseway: ${problem}`)
  const { gracePeriod = 10_000 } = options
  const instance = ManagedRuntime.make(layerOf(options))
  const started = await instance.runPromiseExit(Instance)
  if (Exit.isFailure(started)) {
    await instance.dispose()
    throw errorOf(started.cause)
  }
  const { requests, runtime } = started.value
  const run = Runtime.runPromise(runtime)
  const end = Effect.gen(function* () {
    yield* Effect.flatMap(DrainingSignal.DrainingSignal, ({ begin }) => begin)
    requests.drain()
    const ended = yield* Supervision.within(gracePeriod, requests.ended)
    if (Option.isNone(ended)) {
      requests.cut()
      yield* Supervision.within(cutting, requests.ended)
    }
    yield* instance.disposeEffect
  })
  let closed: Promise<void> | undefined
  return {
    handler: requests.handler,
    upgrade: requests.upgrade,
    metrics: () => run(Effect.flatMap(Metrics.Metrics, ({ prometheus }) => prometheus)),
    ready: () =>
      closed === undefined
        ? run(
            Effect.flatMap(Store, ({ ready }) => ready).pipe(
              Effect.catchAllCause(cause =>
                Effect.as(Effect.logError("It is not known whether the store is ready", cause), false)
              )
            )
          )
        : Promise.resolve(false),
    close: () => {
      closed ??= run(end)
      return closed
    }
  }
}
