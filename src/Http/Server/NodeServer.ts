/** The HTTP server on `node:http`, which drains before it stops. */
import type * as HttpServer from "@effect/platform/HttpServer"
import { Config, Context, Duration, Effect, Layer, type Scope } from "effect"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import * as Setting from "../../base/Setting.ts"
import * as Supervision from "../../base/Supervision.ts"
import { emitted } from "../../base/Time/EventLoop.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import * as ConnectionMetrics from "../ConnectionLimits.ts"
import { type ConnectionLimits, type Timing, timing } from "../ConnectionLimits.ts"
import type { AllowedOrigins } from "../Cors.ts"
import { DrainingSignal } from "../DrainingSignal.ts"
import { type Address, type ListenFailed, listenFailed } from "../ListenFailed.ts"
import { Gate, type Listeners, type Observe, type Upgradable } from "./Gate.ts"
import { KernelQueues } from "./NodeInternals.ts"
import type { Account } from "./UnsentBudget.ts"

export const config: Config.Config<Address> = Config.all({
  host: Setting.string("HOST", { description: "Address or host name to listen at", default: "127.0.0.1" }),
  port: Setting.integer("PORT", {
    description: "Port to listen at; 0 takes any free one",
    default: 8080,
    min: 0,
    max: 65_535
  })
})

/** The server, for applications that do not use @effect/platform's. */
export class NodeServer extends Context.Tag("causeway/NodeServer")<
  NodeServer,
  {
    readonly address: HttpServer.Address
    /** Serves with these listeners. The server stops with the scope, as {@link layer} describes. */
    readonly attach: (listeners: Listeners) => Effect.Effect<void, never, Scope.Scope>
  }
>() {}

/** The address, limits and shutdown of the server. */
export interface Options extends Address {
  readonly observe?: Observe
  readonly timing?: Timing
  /** How long requests in flight may take once the server drains; then their connections are closed. */
  readonly gracePeriod?: Duration.DurationInput
  readonly limits?: ConnectionLimits
  /** Whether a target is a probe of the service's health, which is also served on connections beyond the limit. */
  readonly isProbe?: (target: string) => boolean
  /** Origins of web pages that may send requests and read their answers; none without it. */
  readonly origins?: AllowedOrigins
}

/** The address of the gate in the form of @effect/platform. */
const addressOf = (gate: Gate): HttpServer.Address => {
  const address = gate.address()
  if (address === null || typeof address === "string") return { _tag: "UnixAddress", path: address ?? "" }
  return { _tag: "TcpAddress", hostname: address.address === "::" ? "0.0.0.0" : address.address, port: address.port }
}

/** Listens until the scope closes. It can be interrupted, since the resolver may take long to look up the host. */
const listen = (gate: Gate, { host, port }: Address): Effect.Effect<void, ListenFailed, Scope.Scope> =>
  Effect.suspend(() => {
    let isClosed = false
    const closing = Effect.async<void>(resume => {
      isClosed = true
      gate.close(() => resume(Effect.void))
    })
    const listening = Effect.async<void, ListenFailed>(resume => {
      const fail = (cause: Error) => resume(listenFailed({ host, port }, cause))
      gate.once("error", fail)
      gate.listen({ host, port }, () => {
        gate.off("error", fail)
        if (isClosed) gate.close()
        resume(Effect.void)
      })
    })
    return Effect.zipRight(
      Effect.addFinalizer(() => Supervision.within(cutting, closing)),
      listening
    )
  })

/** How long connections may take to close after they were destroyed. */
const cutting = Duration.seconds(1)

const closed = (gate: Gate): Effect.Effect<void> =>
  emitted(gate, () => !gate.listening && gate.connected === 0, "close")

/** What a server drains: its connections and the requests in flight. */
interface Traffic {
  readonly drain: () => void
  readonly cut: () => void
  /** Waits until nothing is left. */
  readonly ended: Effect.Effect<void>
  /** Their numbers, for the log. */
  readonly counts: () => Readonly<Record<string, number>>
}

/** Drains a server within the grace period, and then closes the rest. */
export const shutDown = (
  draining: typeof DrainingSignal.Service,
  traffic: Traffic,
  gracePeriod: Duration.DurationInput = Duration.seconds(10)
) =>
  Effect.gen(function* () {
    yield* draining.begin
    traffic.drain()
    yield* Effect.annotateLogs(Effect.logInfo("Draining"), traffic.counts())
    const ended = yield* Supervision.within(gracePeriod, traffic.ended)
    if (ended._tag === "Some") return
    yield* Effect.annotateLogs(
      Effect.logWarning("Connections outlasted the grace period and are cut"),
      traffic.counts()
    )
    traffic.cut()
    yield* Supervision.within(cutting, traffic.ended)
  })

/** Checks once a second which clients read. */
const watch = (gate: Gate, tags: MetricTags.MetricTags, queues = new KernelQueues()): Effect.Effect<never> =>
  Effect.gen(function* () {
    const now = yield* Monotonic.millis
    const cut = gate.tick(now)
    ConnectionMetrics.unsent.unsafeUpdate(gate.unsent, tags)
    ConnectionMetrics.received.unsafeUpdate(gate.received, tags)
    ConnectionMetrics.connections.unsafeUpdate(gate.connected, tags)
    if (cut > 0) {
      yield* Effect.annotateLogs(Effect.logWarning("Connections were cut whose clients did not read"), {
        connections: cut
      })
    }
    const possiblyStalled = queues.isDue(now) ? gate.possiblyStalled() : []
    if (possiblyStalled.length > 0) yield* askKernel(queues, possiblyStalled, now)
    // The last check of a connection is after its end.
    yield* emitted(gate, () => gate.connected > 0, "connection")
    yield* Effect.sleep("1 second")
  }).pipe(Effect.forever)

/** Checks clients that read too little for the kernel to accept more. */
const askKernel = (queues: KernelQueues, possiblyStalled: ReadonlyArray<Account>, now: number): Effect.Effect<void> =>
  Effect.promise(async () => {
    const bytes = await queues.read(
      possiblyStalled.map(({ socket }) => socket),
      now
    )
    for (const account of possiblyStalled) {
      const queued = bytes.get(account.socket)
      if (queued !== undefined) account.onKernelQueue(queued)
    }
  })

/**
 * A gate that `bind` has bound to its address. `open` passes requests to the listeners of the gate at that time.
 * The server stops when the scope of `open` closes.
 */
export const make = <A, E, R>(options: Options, bind: (gate: Gate) => Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const tags = yield* MetricTags.current
    ConnectionMetrics.register(tags)
    const { isProbe, limits, observe, origins } = options
    const gate = new Gate(options.timing ?? timing, observe, limits, isProbe, origins, tags)
    const bound = yield* bind(gate)
    const traffic: Traffic = {
      drain: () => gate.drain(),
      cut: () => gate.cut(),
      ended: closed(gate),
      counts: () => ({ requests: gate.inFlight, connections: gate.connected })
    }
    const end = yield* Effect.cached(shutDown(yield* DrainingSignal, traffic, options.gracePeriod))
    yield* Effect.addFinalizer(() => end)
    yield* Supervision.forkScoped("connections", watch(gate, tags))
    // The application keeps its listeners until the last request is answered: this finalizer runs before its own.
    const open = (upgradable?: Upgradable) =>
      Effect.zipRight(
        Effect.sync(() => gate.open(upgradable)),
        Effect.addFinalizer(() => end)
      )
    const attach = (listeners: Listeners) =>
      Effect.zipRight(
        Effect.sync(() => {
          gate.on("request", listeners.request)
          gate.on("upgrade", listeners.upgrade)
        }),
        open(listeners.upgradable)
      )
    return { bound, open, server: { address: addressOf(gate), attach } }
  })

/** Serves with the given listeners. */
export const serve = <E, R>(listeners: Effect.Effect<Listeners, E, R>) =>
  Layer.scopedDiscard(
    Effect.gen(function* () {
      const server = yield* NodeServer
      yield* server.attach(yield* listeners)
    })
  )

/**
 * Listens, and answers 503 until an application is attached.
 *
 * At shutdown it starts {@link DrainingSignal}, stops accepting connections, answers late requests with 503, closes
 * idle connections, and lets requests in flight finish within the grace period of 10 seconds. Malformed requests are
 * answered with a JSON error too.
 */
export const layer = (options: Options): Layer.Layer<NodeServer, ListenFailed, DrainingSignal> =>
  Layer.scoped(
    NodeServer,
    Effect.map(
      make(options, gate => listen(gate, options)),
      ({ server }) => server
    )
  )
