/**
 * The agent platform over HTTP and WebSocket.
 *
 * Idempotent calls are tried up to three times within the timeouts below. The timeout of a file call covers all its
 * tries, and a single try may take all of it.
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import { type Context, type Duration, Effect, Exit, Layer, Metric, Option, Redacted, Schema, type Scope } from "effect"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import { currentTraceHeaders } from "../../base/Observability/Tracer.ts"
import { randomHex } from "../../base/RandomHex.ts"
import * as AgentPlatform from "../AgentPlatform.ts"
import * as HealthProbe from "../HealthProbe.ts"
import { identifierChars } from "../PlatformEvent.ts"
import * as KeyedBreakers from "../Resilience/KeyedBreakers.ts"
import type { UpstreamFailure } from "../Resilience/UpstreamFailure.ts"
import * as Resilience from "../Resilience.ts"
import * as UpstreamHttp from "../UpstreamHttp.ts"
import * as FileCalls from "./FileCalls.ts"
import * as InstanceConnection from "./InstanceConnection.ts"
import { PlatformSocket } from "./PlatformSocket.ts"
import * as TypeBreakers from "./TypeBreakers.ts"

type Service = Context.Tag.Service<AgentPlatform.AgentPlatform>

const { durations, toError } = InstanceConnection

type Sockets = Context.Tag.Service<PlatformSocket>

const ConnectionError = AgentPlatform.AgentPlatformConnectionError

const idempotent = (
  operation: string,
  tryTimeout: Duration.DurationInput,
  timeout: Duration.DurationInput
): Resilience.Policy => ({ operation, repeatable: true, tryTimeout, timeout })

const create = idempotent("create", "30 seconds", "60 seconds")
const stop = idempotent("stop", "5 seconds", "15 seconds")
const connect = idempotent("connect", "10 seconds", "30 seconds")

/** Maximum bytes of an answer to `create`. */
const creationBytes = 64 * 1024

const InstanceId = Schema.String.pipe(
  Schema.minLength(1),
  Schema.maxLength(identifierChars),
  // Other ids cannot be a segment of a path.
  Schema.filter(id => id.isWellFormed() && id !== "." && id !== "..")
)

/** Reads the id in an answer to `create`, which has either name. */
const readCreated = UpstreamHttp.readBy(
  Schema.Union(Schema.Struct({ instanceId: InstanceId }), Schema.Struct({ id: InstanceId }))
)

const instancesPath = "/api/v1/instances"

const pathOf = (instanceId: string): string => `${instancesPath}/${encodeURIComponent(instanceId.toWellFormed())}`

/** Whether the answer proves that the request had no effect. */
const isRefused = <A>(exit: Exit.Exit<A, UpstreamFailure>): boolean =>
  Exit.isFailure(exit) &&
  exit.cause._tag === "Fail" &&
  exit.cause.error.statusCode !== undefined &&
  exit.cause.error.statusCode >= 400 &&
  exit.cause.error.statusCode < 500

const webSocketUrl = (baseUrl: string, instanceId: string, after: string | undefined): string => {
  const query = after === undefined ? "" : `?after=${encodeURIComponent(after.toWellFormed())}`
  return `${baseUrl.replace(/^http/, "ws")}${pathOf(instanceId)}/connect${query}`
}

/** The calls to the platform, with their breakers. */
interface Calls {
  readonly http: UpstreamHttp.UpstreamHttp
  /** Calls on behalf of clients. */
  readonly foreground: Resilience.Resilience
  /** Stops, and creations in the background. Their failures must not block calls to instances that work. */
  readonly cleanup: Resilience.Resilience
  /** The breaker of each instance. */
  readonly instances: KeyedBreakers.KeyedBreakers
  /** The breaker of each stop: an instance that cannot be called can still be stopped. */
  readonly cleanups: KeyedBreakers.KeyedBreakers
  readonly creations: TypeBreakers.TypeBreakers
}

const makeCalls = (http: UpstreamHttp.UpstreamHttp): Effect.Effect<Calls, never, Scope.Scope> =>
  Effect.gen(function* () {
    const tags = yield* MetricTags.current
    return {
      http,
      foreground: yield* Resilience.make({
        upstream: "agent_platform",
        durations,
        operations: [create.operation, connect.operation, ...FileCalls.operations]
      }),
      cleanup: yield* Resilience.make({
        upstream: "agent_platform_cleanup",
        durations,
        operations: [create.operation, stop.operation]
      }),
      instances: KeyedBreakers.make({ upstream: "agent_instance", label: "instanceId", tags }),
      cleanups: KeyedBreakers.make({ upstream: "agent_instance_cleanup", label: "instanceId", tags }),
      creations: TypeBreakers.make(tags)
    }
  })

/** The request that creates an instance. Its idempotency key is the same for each try. */
const creationRequest = (
  idempotencyKey: string,
  { agentType, deployment, environment, secrets }: AgentPlatform.CreateInstance
): HttpClientRequest.HttpClientRequest =>
  HttpClientRequest.post(instancesPath).pipe(
    HttpClientRequest.setHeader("idempotency-key", idempotencyKey),
    HttpClientRequest.bodyUnsafeJson({
      agentType,
      deployment,
      secrets: Object.fromEntries(Object.entries(secrets).map(([name, secret]) => [name, Redacted.value(secret)])),
      environment
    })
  )

const createBy =
  ({ cleanup, cleanups, creations, foreground, http }: Calls): Service["create"] =>
  instance =>
    Effect.gen(function* () {
      const { agentType, isBackground = false, tenant } = instance
      const key = instance.idempotencyKey ?? (yield* randomHex(4))
      let isInDoubt = false
      const attempt = http.json(create.operation, creationRequest(key, instance), readCreated, creationBytes).pipe(
        Effect.onExit(exit =>
          Effect.sync(() => {
            isInDoubt ||= !isRefused(exit)
          })
        )
      )
      const call = isBackground
        ? cleanup.call({ ...create, repeatable: false, part: cleanups.of(key) }, attempt)
        : foreground.call(
            tenant === undefined
              ? create
              : { ...create, part: creations(tenant, agentType), callers: [tenant, agentType] },
            attempt
          )
      const created = yield* Effect.mapError(call, failure => toError(failure, isInDoubt))
      return "instanceId" in created ? created.instanceId : created.id
    })

const stopBy =
  ({ cleanup, cleanups, http }: Calls): Service["stop"] =>
  (instanceId, { isBackground = false } = {}) => {
    const attempt = Effect.catchIf(
      http.done(stop.operation, HttpClientRequest.del(pathOf(instanceId))),
      failure => failure.statusCode === 404,
      () => Effect.void
    )
    const policy = { ...stop, repeatable: !isBackground, part: cleanups.of(instanceId) }
    return Effect.mapError(cleanup.call(policy, attempt), failure => toError(failure))
  }

/** Opens a WebSocket to an instance, which resumes after an event. */
type OpenSocket = (instanceId: string, after: string | undefined) => ReturnType<Sockets["open"]>

const connectBy =
  ({ foreground, instances }: Calls, open: OpenSocket): Service["connect"] =>
  (instanceId, { after } = {}) => {
    const dial: InstanceConnection.Options["dial"] = (after, again) =>
      foreground.call(
        // InstanceConnection has its own retries for a connection that was lost.
        { ...connect, repeatable: !again, part: instances.of(instanceId), isBackground: again },
        open(instanceId, after)
      )
    return InstanceConnection.make({ instanceId, after, dial }).pipe(
      Effect.mapBoth({ onFailure: failure => toError(failure), onSuccess: InstanceConnection.ofPort })
    )
  }

const filesBy = ({ foreground, http, instances }: Calls) =>
  FileCalls.make((operation, instanceId, path, read, maxBytes) => {
    const request = HttpClientRequest.get(`${pathOf(instanceId)}/files${path}`)
    const policy = { ...idempotent(operation, "15 seconds", "15 seconds"), part: instances.of(instanceId) }
    return Effect.mapError(foreground.call(policy, http.json(operation, request, read, maxBytes)), failure =>
      toError(failure)
    )
  })

const make = (
  client: HttpClient.HttpClient,
  sockets: Sockets,
  baseUrl: string,
  apiKey: Option.Option<Redacted.Redacted>
): Effect.Effect<Service, never, Scope.Scope> =>
  Effect.gen(function* () {
    const http = UpstreamHttp.make(client, { service: "agent platform", baseUrl, apiKey })
    const calls = yield* makeCalls(http)
    const authorization: Readonly<Record<string, string>> = Option.match(apiKey, {
      onNone: () => ({}),
      onSome: key => ({ authorization: `Bearer ${Redacted.value(key)}` })
    })
    const open: OpenSocket = (instanceId, after) =>
      Effect.flatMap(currentTraceHeaders, trace =>
        sockets.open(webSocketUrl(baseUrl, instanceId, after), { ...authorization, ...trace })
      )
    return {
      create: createBy(calls),
      stop: stopBy(calls),
      connect: connectBy(calls, open),
      ...filesBy(calls),
      probe: Effect.asSome(yield* HealthProbe.make(http)),
      addresses: [AgentPlatform.addressOf(null, baseUrl)]
    }
  })

const absent = (operation: string) =>
  new ConnectionError({
    operation,
    reason: "not_configured",
    message: "There is no agent platform: AGENT_PLATFORM_URL is not set"
  })

const unavailable: Service = {
  create: () => absent("create"),
  stop: () => absent("stop"),
  connect: () => absent("connect"),
  listFiles: () => absent("list_files"),
  readFile: () => absent("read_file"),
  fileHistory: () => absent("file_history"),
  fileAtIteration: () => absent("file_at_iteration"),
  probe: Effect.succeedNone
}

/** The platform at an address. Its metrics are registered with 0 even if there is none. */
export const layer = (
  settings: AgentPlatform.Settings
): Layer.Layer<AgentPlatform.AgentPlatform, never, HttpClient.HttpClient | PlatformSocket> =>
  Layer.scoped(
    AgentPlatform.AgentPlatform,
    Effect.gen(function* () {
      const client = yield* HttpClient.HttpClient
      const sockets = yield* PlatformSocket
      const tags = yield* MetricTags.current
      const created = durations.pipe(Metric.tagged("operation", create.operation), Metric.tagged("outcome", "ok"))
      MetricTags.register([created], tags)
      InstanceConnection.register(tags)
      if (Option.isNone(settings.url)) return unavailable
      return yield* make(client, sockets, settings.url.value, settings.apiKey)
    })
  )
