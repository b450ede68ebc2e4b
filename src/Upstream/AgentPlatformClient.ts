/**
 * The agent platform over HTTP and WebSocket.
 *
 * Idempotent calls are tried up to three times within the limits below. The time limit of a file call covers all its
 * tries, and a single try may take all of it.
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import {
  Array as Arr,
  Clock,
  type Context,
  Effect,
  Either,
  Exit,
  Layer,
  Option,
  Random,
  Redacted,
  Schema,
  type Scope
} from "effect"
import * as AgentPlatform from "./AgentPlatform.ts"
import * as FileLists from "./FileLists.ts"
import * as FilePath from "./FilePath.ts"
import * as HealthProbe from "./HealthProbe.ts"
import { identifierChars } from "./Identifier.ts"
import * as InstanceConnection from "./InstanceConnection.ts"
import { PlatformSocket, type SocketRefused } from "./PlatformSocket.ts"
import * as KeyedBreakers from "./Resilience/KeyedBreakers.ts"
import { parseRetryAfter } from "./Resilience/RetryPolicy.ts"
import { UpstreamFailure } from "./Resilience/UpstreamFailure.ts"
import * as Resilience from "./Resilience.ts"
import * as UpstreamHttp from "./UpstreamHttp.ts"
import * as UpstreamMetrics from "./UpstreamMetrics.ts"
import * as Workspace from "./Workspace.ts"

type Service = Context.Tag.Service<AgentPlatform.AgentPlatform>

const ConnectionError = AgentPlatform.AgentPlatformConnectionError

const create: Resilience.Policy = {
  operation: "create",
  repeatable: true,
  tryLimit: "30 seconds",
  totalLimit: "60 seconds"
}
const stop: Resilience.Policy = { operation: "stop", repeatable: true, tryLimit: "5 seconds", totalLimit: "15 seconds" }
const connect: Resilience.Policy = {
  operation: "connect",
  repeatable: true,
  tryLimit: "10 seconds",
  totalLimit: "30 seconds"
}

const fileOperations = ["list_files", "read_file", "file_history", "file_at_iteration"] as const

const fileCall = (operation: (typeof fileOperations)[number]): Resilience.Policy => ({
  operation,
  repeatable: true,
  tryLimit: "15 seconds",
  totalLimit: "15 seconds"
})

/** Largest answers in bytes. The event loop is blocked while one is parsed. */
const largest = { creation: 64 * 1024, list: 4 * 1024 * 1024, content: 8 * 1024 * 1024 }

const InstanceId = Schema.String.pipe(
  Schema.minLength(1),
  Schema.maxLength(identifierChars),
  // Others cannot be a segment of a path.
  Schema.filter(id => id.isWellFormed() && id !== "." && id !== "..")
)

/** The answer to `create`, with either name. */
const Created = Schema.Union(Schema.Struct({ instanceId: InstanceId }), Schema.Struct({ id: InstanceId }))

const content = UpstreamHttp.readBy(Workspace.FileContent)

const instances = "/api/v1/instances"

const pathOf = (instanceId: string): string => `${instances}/${encodeURIComponent(instanceId.toWellFormed())}`

const toError = ({ operation, reason, statusCode, message }: UpstreamFailure, isInDoubt?: boolean) =>
  new ConnectionError({
    operation,
    reason,
    statusCode: reason === "circuit_open" ? 503 : statusCode,
    ...(isInDoubt === undefined ? {} : { isInDoubt }),
    message
  })

/** Whether an answer says that the request had no effect. No answer, or another one, leaves that open. */
const isRefused = <A>(exit: Exit.Exit<A, UpstreamFailure>): boolean =>
  Exit.isFailure(exit) &&
  exit.cause._tag === "Fail" &&
  exit.cause.error.statusCode !== undefined &&
  exit.cause.error.statusCode >= 400 &&
  exit.cause.error.statusCode < 500

const randomKey: Effect.Effect<string> = Effect.map(
  Effect.all(Arr.makeBy(4, () => Random.nextIntBetween(0, 2 ** 32))),
  words => words.map(word => word.toString(16).padStart(8, "0")).join("")
)

const webSocketUrl = (baseUrl: string, instanceId: string, after: string | undefined): string => {
  const query = after === undefined ? "" : `?after=${encodeURIComponent(after.toWellFormed())}`
  return `${baseUrl.replace(/^http/, "ws")}${pathOf(instanceId)}/connect${query}`
}

/** W3C trace context of the current span, if tracing is on. */
const traceHeaders: Effect.Effect<Readonly<Record<string, string>>> = Effect.match(Effect.currentSpan, {
  onFailure: () => ({}),
  onSuccess: span => {
    const { traceparent = "" } = HttpTraceContext.toHeaders(span)
    // If tracing is off, spans have ids of another form.
    return /^00-[0-9a-f]{32}-[0-9a-f]{16}-/.test(traceparent) ? { traceparent } : {}
  }
})

const refusal = ({
  statusCode,
  retryAfter,
  isUnreached,
  message
}: SocketRefused): Effect.Effect<never, UpstreamFailure> =>
  Effect.flatMap(Clock.currentTimeMillis, now => {
    const retryAfterMillis = parseRetryAfter(retryAfter, now)
    return new UpstreamFailure({
      operation: connect.operation,
      message,
      ...(statusCode === undefined ? { reason: "connection", isUnreached } : { reason: "status", statusCode }),
      ...(retryAfterMillis === undefined ? {} : { retryAfterMillis })
    })
  })

const make = (
  client: HttpClient.HttpClient,
  sockets: Context.Tag.Service<PlatformSocket>,
  baseUrl: string,
  apiKey: Option.Option<Redacted.Redacted>
): Effect.Effect<Service, never, Scope.Scope> =>
  Effect.gen(function* () {
    const http = UpstreamHttp.make(client, { service: "agent platform", baseUrl, apiKey })
    const resilience = yield* Resilience.make({
      upstream: "agent_platform",
      durations: UpstreamMetrics.agentPlatform,
      operations: [create.operation, connect.operation, ...fileOperations]
    })
    // Failing stops are no reason to block calls to instances that work.
    const cleanup = yield* Resilience.make({
      upstream: "agent_platform_cleanup",
      durations: UpstreamMetrics.agentPlatform,
      operations: [create.operation, stop.operation]
    })
    const breakers = KeyedBreakers.make()
    const cleanups = KeyedBreakers.make(KeyedBreakers.cleanups)
    const creations = KeyedBreakers.make(KeyedBreakers.creations)
    const probe = yield* HealthProbe.make(http)
    const authorization: Readonly<Record<string, string>> = Option.match(apiKey, {
      onNone: () => ({}),
      onSome: key => ({ authorization: `Bearer ${Redacted.value(key)}` })
    })

    const askForFile = <A>(
      operation: (typeof fileOperations)[number],
      instanceId: string,
      path: Either.Either<string, FilePath.InvalidFileRequest>,
      read: UpstreamHttp.Read<A>,
      maxBytes: number
    ): Effect.Effect<A, AgentPlatform.FileCallError> =>
      Effect.flatMap(path, path => {
        const request = HttpClientRequest.get(`${pathOf(instanceId)}/files${path}`)
        const attempt = http.jsonBy(operation, request, read, maxBytes)
        return Effect.mapError(
          resilience.call({ ...fileCall(operation), part: breakers.of(instanceId) }, attempt),
          toError
        )
      })

    const dial = (instanceId: string) => (after: string | undefined, again: boolean) =>
      resilience.call(
        // InstanceConnection has its own retries for a connection that was lost.
        { ...connect, repeatable: !again, part: breakers.of(instanceId), isBackground: again },
        Effect.flatMap(traceHeaders, trace =>
          Effect.catchAll(
            sockets.open(webSocketUrl(baseUrl, instanceId, after), { ...authorization, ...trace }),
            refusal
          )
        )
      )

    return {
      create: ({ idempotencyKey, agentType, tenant, deployment, environment, secrets, isBackground = false }) =>
        Effect.flatMap(idempotencyKey === undefined ? randomKey : Effect.succeed(idempotencyKey), key => {
          const body = {
            agentType,
            deployment,
            secrets: Object.fromEntries(
              Object.entries(secrets).map(([name, secret]) => [name, Redacted.value(secret)])
            ),
            environment
          }
          const request = HttpClientRequest.post(instances).pipe(
            HttpClientRequest.setHeader("idempotency-key", key),
            HttpClientRequest.bodyUnsafeJson(body)
          )
          return Effect.suspend(() => {
            let isInDoubt = false
            const attempt = http.json(create.operation, request, Created, largest.creation).pipe(
              Effect.onExit(exit =>
                Effect.sync(() => {
                  isInDoubt ||= !isRefused(exit)
                })
              )
            )
            const call = isBackground
              ? cleanup.call({ ...create, repeatable: false, part: cleanups.of(key) }, attempt)
              : resilience.call(
                  tenant === undefined ? create : { ...create, part: creations.of(tenant), caller: tenant },
                  attempt
                )
            return call.pipe(
              Effect.mapBoth({
                onFailure: failure => toError(failure, isInDoubt),
                onSuccess: created => ("instanceId" in created ? created.instanceId : created.id)
              })
            )
          })
        }),
      stop: (instanceId, { isBackground = false } = {}) =>
        cleanup
          .call(
            { ...stop, repeatable: !isBackground, part: cleanups.of(instanceId) },
            Effect.catchIf(
              http.done(stop.operation, HttpClientRequest.del(pathOf(instanceId))),
              failure => failure.statusCode === 404,
              () => Effect.void
            )
          )
          .pipe(Effect.mapError(toError)),
      connect: (instanceId, { after } = {}) =>
        InstanceConnection.make({ instanceId, after, dial: dial(instanceId) }).pipe(
          Effect.mapBoth({
            onFailure: toError,
            onSuccess: connection => ({
              ...connection,
              send: (frame, options) => Effect.mapError(connection.send(frame, options), toError),
              ready: Effect.mapError(connection.ready, toError),
              take: Effect.mapError(connection.take, toError)
            })
          })
        ),
      listFiles: (instanceId, { path = ".", depth = 1 } = {}) => {
        const query = Either.gen(function* () {
          const directory = encodeURIComponent(yield* FilePath.check(path))
          return `?path=${directory}&depth=${yield* FilePath.checkCount("depth", depth)}`
        })
        return askForFile("list_files", instanceId, query, FileLists.files, largest.list)
      },
      readFile: (instanceId, path) => {
        const segment = Either.map(FilePath.toSegment(path), path => `/${path}`)
        return askForFile("read_file", instanceId, segment, content, largest.content)
      },
      fileHistory: (instanceId, path) => {
        const segment = Either.map(FilePath.toSegment(path), path => `/${path}/history`)
        return Effect.map(
          askForFile("file_history", instanceId, segment, FileLists.history, largest.list),
          Arr.sort(Workspace.byIteration)
        )
      },
      fileAtIteration: (instanceId, path, iteration) => {
        const segments = Either.gen(function* () {
          return `/${yield* FilePath.toSegment(path)}/at/${yield* FilePath.checkCount("iteration", iteration)}`
        })
        return askForFile("file_at_iteration", instanceId, segments, content, largest.content)
      },
      probe: Effect.asSome(probe)
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

/** The platform at an address. */
export const layer = (
  settings: AgentPlatform.Settings
): Layer.Layer<AgentPlatform.AgentPlatform, never, HttpClient.HttpClient | PlatformSocket> =>
  Layer.scoped(
    AgentPlatform.AgentPlatform,
    Effect.gen(function* () {
      const client = yield* HttpClient.HttpClient
      const sockets = yield* PlatformSocket
      if (Option.isNone(settings.url)) return unavailable
      return yield* make(client, sockets, settings.url.value, settings.apiKey)
    })
  )
