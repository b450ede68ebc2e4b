/** The simulated agent platform. */
import type { IncomingMessage } from "node:http"
import { type Clock, Duration, Effect, FiberSet, Option, type Redacted, Schema, type Scope } from "effect"
import { type RawData, type WebSocket, WebSocketServer } from "ws"
import { yieldToEventLoop } from "../base/Time/EventLoop.ts"
import * as AgUi from "./AgUi.ts"
import type { Changes } from "./Changes.ts"
import type { Delivery } from "./Fault.ts"
import { type Creation, type Frame, Instance } from "./Instance.ts"
import type { Limits } from "./Options.ts"
import * as Script from "./Script.ts"
import { malformedFrames } from "./Script.ts"
import {
  type Answer,
  decodeBody,
  json,
  Refused,
  type RoutedRequest,
  type SimulatedService
} from "./SimulatedService.ts"
import type { TrafficLog } from "./TrafficLog.ts"
import type { Workspace } from "./Workspace.ts"

/** Frames that a client may send. */
const ClientFrame = Schema.parseJson(
  Schema.Union(
    Schema.Struct({
      type: Schema.Literal("message"),
      content: Schema.String,
      turnId: Schema.optional(Schema.String)
    }),
    Schema.Struct({ type: Schema.Literal("interrupt"), turnId: Schema.optional(Schema.String) }),
    Schema.Struct({ type: Schema.Literal("answer"), requestId: Schema.String, answer: Schema.Unknown })
  )
)

const decodeFrame = Schema.decodeUnknownEither(ClientFrame)

/** Bytes in the socket's buffer above which sending waits. */
const highWaterMark = 256 * 1024

/** Frames that are sent before other fibers and sockets run. */
const burst = 64

const send = (socket: WebSocket, frame: Frame): Effect.Effect<void> =>
  Effect.async(resume => {
    let isFull = false
    socket.send(frame, { binary: typeof frame !== "string" }, () => {
      if (isFull) resume(Effect.void)
    })
    isFull = socket.bufferedAmount > highWaterMark
    if (!isFull) resume(Effect.void)
  })

const onMessage = (instance: Instance, traffic: TrafficLog, data: RawData, isBinary: boolean): void => {
  const frame = decodeFrame(isBinary ? undefined : String(data))
  if (frame._tag === "Left") {
    traffic.frame("other")
    instance.emit({ type: "error", code: "bad_frame", message: frame.left.message, retryable: false })
    return
  }
  traffic.frame(frame.right.type)
  switch (frame.right.type) {
    case "message":
      return instance.message(frame.right.content, frame.right.turnId)
    case "interrupt":
      return instance.interrupt(frame.right.turnId)
    case "answer":
      instance.answer(frame.right.requestId, frame.right.answer)
  }
}

/**
 * Sends an instance's events over a WebSocket, starting with number `from`, and applies the client's frames, until the
 * client disconnects or the instance ends. A client whose next event is no longer in the history is closed with 1013.
 */
const serve = (
  socket: WebSocket,
  instance: Instance,
  traffic: TrafficLog,
  from: number,
  { malformed, drop, drip }: Delivery
): Effect.Effect<void> =>
  Effect.gen(function* () {
    const connection = {
      sent: from - 1,
      close: (code: number | undefined, reason = "") => {
        // The instance does not wait for a closing connection.
        instance.detach(connection)
        if (code === undefined) socket.terminate()
        else socket.close(code, reason)
      }
    }
    const { history } = instance
    const isOpen = () => socket.readyState === socket.OPEN
    const next = () =>
      !isOpen() || instance.end !== undefined || history.last > connection.sent ? Option.some(undefined) : Option.none()
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        socket.on("message", (data, isBinary) => onMessage(instance, traffic, data, isBinary))
        socket.on("error", () => socket.terminate())
        socket.on("close", () => instance.detach(connection))
        if (isOpen()) instance.attach(connection)
      }),
      () => Effect.sync(() => socket.terminate())
    )
    if (malformed) for (const frame of malformedFrames) yield* send(socket, frame)
    let count = 0
    while (isOpen()) {
      if (drop !== undefined && count >= drop.after) {
        // Frames before are written in the next iteration of the event loop.
        yield* yieldToEventLoop
        connection.close(drop.code)
        break
      }
      yield* instance.changes.until(next)
      if (!isOpen()) break
      if (connection.sent >= history.last || instance.end === "reclaimed") {
        connection.close(instance.end === "reclaimed" ? undefined : instance.end === "stopped" ? 1000 : 1011)
        break
      }
      const frame = history.get(connection.sent + 1)
      if (frame === undefined) {
        connection.close(1013, "too slow")
        break
      }
      if (drip !== undefined) yield* Effect.sleep(drip.everyMillis)
      yield* send(socket, frame)
      connection.sent++
      count++
      instance.changes.notify()
      if (count % burst === 0) yield* yieldToEventLoop
    }
    // Waits for the closing handshake, for which `ws` has a timeout.
    yield* Effect.async<void>(resume => {
      if (socket.readyState === socket.CLOSED) resume(Effect.void)
      else socket.once("close", () => resume(Effect.void))
    })
  }).pipe(Effect.scoped)

export interface PlatformOptions {
  readonly key: Redacted.Redacted | undefined
  readonly pace: Duration.DurationInput
  readonly limits: Limits
  /** Part of the ids of instances, so that those of two simulators differ. */
  readonly prefix: string
}

/** The agent platform, and a view of its instances. */
export interface Platform extends SimulatedService {
  /** Instances alive, by id. */
  readonly instances: ReadonlyMap<string, Instance>
  /** Instances created and stopped by requests so far. */
  readonly totals: () => { readonly created: number; readonly stopped: number }
  /** Ends an instance without an event, as if its machine had failed; `false` if there is none. */
  readonly reclaim: (id: string) => boolean
}

const Text = Schema.Record({ key: Schema.String, value: Schema.String })

const CreateRequest = Schema.Struct({
  agentType: Schema.NonEmptyString,
  deployment: Schema.optional(Schema.Unknown),
  secrets: Schema.optionalWith(Text, { default: () => ({}) }),
  environment: Schema.optionalWith(Text, { default: () => ({}) })
})

const refuse = (status: number, message: string, headers: Record<string, string> = {}): Refused =>
  new Refused({ status, message, headers })

const found = <A>(value: A | undefined, what: string): Effect.Effect<A, Refused> =>
  value === undefined ? Effect.fail(refuse(404, `${what} not found`)) : Effect.succeed(value)

const positive = (name: string, text: string): Effect.Effect<number, Refused> =>
  /^[1-9]\d{0,8}$/.test(text) ? Effect.succeed(Number(text)) : Effect.fail(refuse(400, `${name} must be 1 or more`))

/** A binary file: a transparent image of one pixel. */
const pixel = Buffer.from("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7", "base64")

const seed = (workspace: Workspace, now: number): void => {
  workspace.write("README.md", "# Simulated workspace\n", now)
  workspace.write("src/main.ts", 'console.log("hello")\n', now)
  workspace.write("assets/pixel.gif", pixel, now)
}

const answerFiles = (instance: Instance, { operation, parameters, query }: RoutedRequest) =>
  Effect.gen(function* () {
    const { workspace } = instance
    const [, path = "", iteration = ""] = parameters
    switch (operation) {
      case "list_files": {
        const depth = yield* positive("depth", query.get("depth") ?? "1")
        const directory = query.get("path") ?? ""
        const entries = yield* found(workspace.list(directory === "." ? "" : directory, depth), "Directory")
        return json(200, { entries })
      }
      case "read_file":
        return json(200, yield* found(workspace.read(path), "File"))
      case "file_history":
        return json(200, { path, iterations: yield* found(workspace.history(path), "File") })
      default: {
        const number = yield* positive("iteration", iteration)
        return json(200, yield* found(workspace.at(path, number), "Iteration"))
      }
    }
  })

/** The instances of a platform, which live in the scope. */
export class Instances {
  /** Those alive, by id. */
  readonly alive = new Map<string, Instance>()
  created = 0
  private readonly idempotent = new Map<string, string>()

  private constructor(
    private readonly limits: Limits,
    private readonly pace: Duration.DurationInput,
    private readonly changes: Changes,
    private readonly clock: Clock.Clock,
    private readonly run: (work: Effect.Effect<void>) => void
  ) {}

  static readonly make = (
    limits: Limits,
    pace: Duration.DurationInput,
    changes: Changes
  ): Effect.Effect<Instances, never, Scope.Scope> =>
    Effect.gen(function* () {
      const run = yield* FiberSet.makeRuntime<never>()
      return new Instances(limits, pace, changes, yield* Effect.clock, run)
    })

  /** Starts an instance, or returns the id of the one with the same key; `undefined` if there are too many. */
  start(creation: Creation, idempotencyKey: string | undefined, prefix: string): Instance | string | undefined {
    const known = idempotencyKey === undefined ? undefined : this.idempotent.get(idempotencyKey)
    if (known !== undefined) return known
    if (this.alive.size >= this.limits.instances) return undefined
    const id = `${prefix}${++this.created}`
    const instance = new Instance(id, creation, this.limits, this.clock, this.changes)
    this.alive.set(id, instance)
    if (idempotencyKey !== undefined) {
      this.idempotent.set(idempotencyKey, id)
      if (this.idempotent.size > this.limits.idempotencyKeys) {
        this.idempotent.delete(this.idempotent.keys().next().value!)
      }
    }
    const forget = Effect.sync(() => {
      this.alive.delete(id)
      this.changes.notify()
    })
    this.run(Effect.zipRight(Script.run(instance, Duration.decode(this.pace)), forget))
    this.changes.notify()
    return instance
  }

  /** Ends an instance: by a request, or without an event, as if its machine had failed. Returns whether there was one. */
  end(id: string, end: "stopped" | "reclaimed"): boolean {
    const instance = this.alive.get(id)
    this.alive.delete(id)
    instance?.finish(end, end === "stopped" ? "instance stopped" : "")
    return instance !== undefined
  }
}

/** The agent platform; its instances live in the scope. */
export const make = (
  { key, pace, limits, prefix }: PlatformOptions,
  traffic: TrafficLog
): Effect.Effect<Platform, never, Scope.Scope> =>
  Effect.gen(function* () {
    const run = yield* FiberSet.makeRuntime<never>()
    const instances = yield* Instances.make(limits, pace, traffic.changes)
    const sockets = new WebSocketServer({ noServer: true, maxPayload: limits.bodyBytes, perMessageDeflate: false })
    let stopped = 0
    const threads = new AgUi.Threads(
      agentType => {
        const creation = { agentType, deployment: undefined, environment: {}, secretNames: [] }
        const started = instances.start(creation, undefined, `i-${prefix}-`)
        return typeof started === "string" ? undefined : started
      },
      ({ id }) => instances.end(id, "reclaimed")
    )

    const create = (request: IncomingMessage) =>
      Effect.gen(function* () {
        const { agentType, deployment, environment, secrets } = yield* decodeBody(
          request,
          limits.bodyBytes,
          CreateRequest
        )
        const creation = { agentType, deployment, environment, secretNames: Object.keys(secrets) }
        const started = instances.start(creation, request.headers["idempotency-key"]?.toString(), `i-${prefix}-`)
        if (started === undefined) {
          const message = `${limits.instances} instances are alive; this is the limit`
          return yield* refuse(429, message, { "retry-after": "1" })
        }
        if (typeof started !== "string") seed(started.workspace, started.now())
        return json(201, { instanceId: typeof started === "string" ? started : started.id })
      })

    const connect = (instance: Instance, { request, query, upgrade, plan }: RoutedRequest) =>
      Effect.suspend(() => {
        if (upgrade === undefined) return Effect.fail(refuse(426, "Upgrade to a WebSocket", { upgrade: "websocket" }))
        sockets.handleUpgrade(request, upgrade.take(), upgrade.head, socket => {
          const from = instance.history.numberAfter(query.get("after"))
          run(serve(socket, instance, traffic, from, plan))
        })
        return Effect.succeed(undefined)
      })

    const handle = (routed: RoutedRequest): Effect.Effect<Answer | undefined, Refused> =>
      Effect.gen(function* () {
        const { operation, request, parameters } = routed
        if (operation === "platform_health") return json(200, { status: "ok" })
        if (operation === "create") return yield* create(request)
        if (operation === "run_agent") {
          const input = yield* decodeBody(request, limits.bodyBytes, AgUi.RunAgentInput)
          return yield* threads.run(parameters[0] ?? "", input)
        }
        const instance = yield* found(instances.alive.get(parameters[0] ?? ""), "Instance")
        if (operation === "connect") return yield* connect(instance, routed)
        if (operation !== "stop") return yield* answerFiles(instance, routed)
        stopped++
        instances.end(instance.id, "stopped")
        return json(204)
      })

    return {
      service: "platform",
      key,
      handle,
      instances: instances.alive,
      totals: () => ({ created: instances.created, stopped }),
      reclaim: id => instances.end(id, "reclaimed")
    }
  })
