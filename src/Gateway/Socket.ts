/**
 * The WebSocket of clients, beside HTTP on the one port.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Duplex } from "node:stream"
import * as Headers from "@effect/platform/Headers"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import { Context, Duration, Effect, FiberSet, Layer, Option, Random, Schedule, Scope } from "effect"
import * as ConnectionMetrics from "../Http/ConnectionMetrics.ts"
import { Draining } from "../Http/Draining.ts"
import { pathOf } from "../Http/Routes.ts"
import type { Listeners } from "../Http/Server/Listeners.ts"
import type { Upgrade } from "../Http/WebSocket/Upgrade.ts"
import { problemOf } from "../Kv/ChangeFeed/Handshake.ts"
import * as Monotonic from "../Monotonic.ts"
import * as DebugLog from "../Observability/DebugLog.ts"
import { Tracer } from "../Observability/Tracer.ts"
import * as Supervision from "../Supervision.ts"
import { Authentication } from "./Authentication.ts"
import { closeCodes } from "./Protocol/CloseCode.ts"
import { Sessions } from "./Sessions.ts"
import { type Client, Connection, type Shared } from "./Socket/Connection.ts"
import { FileCalls } from "./Socket/FileCalls.ts"
import { Handshake, type Refusal, refuse, speaks, subprotocol, tokenOf } from "./Socket/Handshake.ts"
import { handshake as handshakeLimit, type Settings, timing } from "./Socket/Limits.ts"
import { Places } from "./Socket/Places.ts"
import * as Replays from "./Socket/Replays.ts"

/** Where clients connect to. */
export const path = "/ws"

/** Takes clients in. */
export class Socket extends Context.Tag("causeway/GatewaySocket")<
  Socket,
  {
    /** Makes a connection of a request, or refuses it with an HTTP status and `{error}`. */
    readonly accept: (upgrade: Upgrade) => void
    /** Connections at present. */
    readonly connections: () => number
  }
>() {}

/** Lets sockets write what they were told to. */
const turn = Effect.async<void>(resume => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})

/** How long requests may take to end once they are interrupted. */
const ending = Duration.seconds(1)

/** Where the work for clients runs; what cannot be interrupted in time is left to its own end. */
const work = Effect.acquireRelease(Scope.make(), (scope, exit) => Supervision.within(ending, Scope.close(scope, exit)))

const make = (settings: Settings) =>
  Effect.gen(function* () {
    const sessions = yield* Sessions
    const authentication = yield* Authentication
    const tracer = yield* Tracer
    const draining = yield* Draining
    const clock = yield* Effect.clock
    const run = yield* Scope.extend(FiberSet.makeRuntime<never>(), yield* work)
    const connections = new Set<Connection>()
    const places = new Places(settings.connections)
    const handshake = new Handshake()
    let underway = 0

    const shared: Shared = {
      sessions,
      traceId: tracer.currentTraceId,
      replays: yield* Replays.make,
      unsentBytes: settings.unsentBytes,
      now: () => clock.unsafeCurrentTimeMillis(),
      monotonic: () => Monotonic.unsafeMillis(clock),
      run,
      files: new FileCalls(settings.fileBytes),
      debug: yield* DebugLog.make
    }

    const admit = ({ request }: Upgrade) =>
      Effect.gen(function* () {
        const fail = (status: Refusal["status"], error: string) => Effect.fail({ status, error })
        const { host, origin } = request.headers
        if (draining.hasBegun()) return yield* fail(503, "The service is shutting down")
        if (!authentication.admits(origin, host)) return yield* fail(403, "This origin may not connect")
        // Whose they are is not known yet, so that they have places of their own.
        if (underway > settings.connections) return yield* fail(503, `${underway} handshakes are under way`)
        const token = yield* tokenOf(request)
        return yield* authentication.identify(token).pipe(
          Effect.catchTags({
            Unauthorized: ({ message }) => fail(401, message),
            AuthenticationUnavailable: ({ message }) => fail(503, message)
          }),
          Effect.timeoutFail({
            duration: handshakeLimit,
            onTimeout: (): Refusal => ({ status: 503, error: "The credential could not be verified in time" })
          })
        )
      })

    const failed = (reason: string): Refusal => ({ status: 500, error: `WebSocket upgrade failed: ${reason}` })

    /** One step, so that no place is lost half-way. */
    const enter = (upgrade: Upgrade, client: Client) =>
      Effect.gen(function* () {
        const { tenant } = client.identity
        const place = places.take(tenant)
        if (place === undefined) {
          const error = `There are ${places.used} connections; the limit is ${places.capacity}`
          return yield* Effect.fail<Refusal>({ status: 503, error })
        }
        const socket = yield* Effect.mapError(handshake.shake(upgrade), ({ reason }) => {
          place.release()
          return failed(reason)
        })
        const connection = new Connection(socket, upgrade.socket, client, shared, closed => {
          places.leave(tenant, closed)
          connections.delete(closed)
          ConnectionMetrics.webSocketClosed()
        })
        connections.add(connection)
        places.enter(place, connection)
        ConnectionMetrics.webSocketOpened()
      }).pipe(Effect.uninterruptible)

    const open = (upgrade: Upgrade) => {
      const parent = Option.getOrUndefined(HttpTraceContext.fromHeaders(Headers.fromInput(upgrade.request.headers)))
      return Effect.gen(function* () {
        const problem = problemOf(upgrade)
        if (problem !== undefined) return yield* Effect.fail(failed(problem))
        if (!speaks(upgrade.request)) return yield* Effect.fail(failed(`the subprotocol is ${subprotocol}`))
        const identity = yield* admit(upgrade)
        yield* enter(upgrade, { identity, parent })
        yield* Effect.annotateLogs(Effect.logDebug("A client has connected"), { tenant: identity.tenant })
        if (draining.hasBegun()) closeAll()
      }).pipe(
        Effect.catchAll((refusal: Refusal) =>
          Effect.zipRight(
            Effect.annotateLogs(Effect.logDebug("A client was refused"), {
              status: refusal.status,
              reason: refusal.error
            }),
            Effect.sync(() => refuse(upgrade.socket, refusal))
          )
        ),
        Effect.catchAllCause(cause =>
          Effect.zipRight(
            Effect.logError("A client could not be taken in", cause),
            Effect.sync(() => refuse(upgrade.socket, { status: 500, error: "Internal error" }))
          )
        ),
        Effect.withSpan("Gateway.connect", { kind: "server", parent, attributes: { "http.route": path } }),
        Effect.ensuring(
          Effect.sync(() => {
            underway--
          })
        )
      )
    }

    const closeAll = (): void => {
      for (const connection of [...connections]) connection.close(closeCodes.goingAway)
    }

    const sendAway = () =>
      Effect.forEach(
        [...connections],
        connection =>
          Effect.flatMap(Random.nextIntBetween(0, timing.spread), delay =>
            Effect.delay(
              Effect.sync(() => connection.close(closeCodes.goingAway)),
              delay
            )
          ),
        { concurrency: "unbounded", discard: true }
      )

    const tick = Effect.sync(() => {
      const now = shared.monotonic()
      const date = shared.now()
      for (const connection of [...connections]) connection.tick(now, date)
      shared.files.look()
    })

    yield* Effect.addFinalizer(() =>
      Effect.sync(closeAll).pipe(
        Effect.zipRight(turn),
        Effect.zipRight(
          Effect.sync(() => {
            for (const connection of [...connections]) connection.terminate()
          })
        )
      )
    )
    yield* Supervision.forkScoped("ticks of client connections", Effect.schedule(tick, Schedule.spaced("1 second")))
    yield* Effect.forkScoped(Effect.interruptible(Effect.zipRight(draining.begun, Effect.suspend(sendAway))))

    return Socket.of({
      accept: upgrade => {
        underway++
        upgrade.socket.once("error", () => upgrade.socket.destroy())
        run(open(upgrade))
      },
      connections: () => connections.size
    })
  })

/** Takes clients in until the scope closes; those that are there are sent away over two seconds as draining begins. */
export const layer = (settings: Settings): Layer.Layer<Socket, never, Sessions | Authentication | Tracer | Draining> =>
  Layer.scoped(Socket, make(settings))

/** Whether a request is for the WebSocket; most are not, which the cheap test tells. */
const isHere = ({ url = "" }: IncomingMessage): boolean => url.includes(path) && pathOf(url) === path

/** Puts the WebSocket in front of an application's listeners: they get all that does not concern it. */
export const beside = (socket: Context.Tag.Service<Socket>, listeners: Listeners): Listeners => ({
  request: (request: IncomingMessage, response: ServerResponse) => {
    if (request.method !== "GET" || !isHere(request)) return listeners.request(request, response)
    const body = JSON.stringify({ error: `WebSocket upgrade failed: ${path} only speaks WebSocket` })
    response.writeHead(500, { "content-type": "application/json", "content-length": Buffer.byteLength(body) })
    response.end(body)
  },
  upgrade: (request: IncomingMessage, duplex: Duplex, head: Buffer) => {
    if (isHere(request)) socket.accept({ request, socket: duplex, head })
    else listeners.upgrade(request, duplex, head)
  },
  upgradable: target => pathOf(target) === path || listeners.upgradable(target)
})
