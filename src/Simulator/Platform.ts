/** The simulated agent platform. */
import { Duration, Effect, FiberSet, type Redacted, Schema, type Scope } from "effect"
import { WebSocketServer } from "ws"
import * as Answer from "./Answer.ts"
import * as Connection from "./Connection.ts"
import { Instance } from "./Instance.ts"
import type { Limits } from "./Options.ts"
import * as Script from "./Script.ts"
import type { RoutedRequest, SimulatedService } from "./SimulatedService.ts"
import type { TrafficLog } from "./TrafficLog.ts"
import type { Workspace } from "./Workspace.ts"

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

const refuse = (status: number, message: string, headers: Record<string, string> = {}): Answer.Refused =>
  new Answer.Refused({ status, message, headers })

const found = <A>(value: A | undefined, what: string): Effect.Effect<A, Answer.Refused> =>
  value === undefined ? Effect.fail(refuse(404, `${what} not found`)) : Effect.succeed(value)

const positive = (name: string, text: string): Effect.Effect<number, Answer.Refused> =>
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
        return Answer.json(200, { entries })
      }
      case "read_file":
        return Answer.json(200, yield* found(workspace.read(path), "File"))
      case "file_history":
        return Answer.json(200, { path, iterations: yield* found(workspace.history(path), "File") })
      default: {
        const number = yield* positive("iteration", iteration)
        return Answer.json(200, yield* found(workspace.at(path, number), "Iteration"))
      }
    }
  })

/** The agent platform; its instances live in the scope. */
export const make = (
  { key, pace, limits, prefix }: PlatformOptions,
  traffic: TrafficLog
): Effect.Effect<Platform, never, Scope.Scope> =>
  Effect.gen(function* () {
    const run = yield* FiberSet.makeRuntime<never>()
    const instances = new Map<string, Instance>()
    const idempotent = new Map<string, string>()
    const sockets = new WebSocketServer({ noServer: true, maxPayload: limits.bodyBytes, perMessageDeflate: false })
    let created = 0
    let stopped = 0

    const start = (request: typeof CreateRequest.Type, idempotencyKey: string | undefined) =>
      Effect.gen(function* () {
        const known = idempotencyKey === undefined ? undefined : idempotent.get(idempotencyKey)
        if (known !== undefined) return known
        if (instances.size >= limits.instances) {
          return yield* refuse(429, `${limits.instances} instances are alive; this is the limit`, {
            "retry-after": "1"
          })
        }
        const { agentType, deployment, environment, secrets } = request
        const id = `i-${prefix}-${++created}`
        const creation = { agentType, deployment, environment, secretNames: Object.keys(secrets) }
        const instance = new Instance(id, creation, limits, yield* Effect.clock, traffic.changes)
        seed(instance.workspace, instance.now())
        instances.set(id, instance)
        if (idempotencyKey !== undefined) {
          idempotent.set(idempotencyKey, id)
          if (idempotent.size > limits.idempotencyKeys) idempotent.delete(idempotent.keys().next().value!)
        }
        const forget = Effect.sync(() => {
          instances.delete(id)
          traffic.changes.notify()
        })
        run(Effect.zipRight(Script.run(instance, Duration.decode(pace)), forget))
        traffic.changes.notify()
        return id
      })

    const connect = (instance: Instance, { request, query, upgrade, plan }: RoutedRequest) =>
      Effect.suspend(() => {
        if (upgrade === undefined) return Effect.fail(refuse(426, "Upgrade to a WebSocket", { upgrade: "websocket" }))
        sockets.handleUpgrade(request, upgrade.take(), upgrade.head, socket => {
          const from = instance.history.numberAfter(query.get("after"))
          run(Connection.serve(socket, instance, traffic, from, plan))
        })
        return Effect.succeed(undefined)
      })

    const handle = (routed: RoutedRequest): Effect.Effect<Answer.Answer | undefined, Answer.Refused> =>
      Effect.gen(function* () {
        const { operation, request, parameters } = routed
        if (operation === "platform_health") return Answer.json(200, { status: "ok" })
        if (operation === "create") {
          const body = yield* Answer.decodeBody(request, limits.bodyBytes, CreateRequest)
          const idempotencyKey = request.headers["idempotency-key"]
          return Answer.json(201, { instanceId: yield* start(body, idempotencyKey?.toString()) })
        }
        const instance = yield* found(instances.get(parameters[0] ?? ""), "Instance")
        if (operation === "connect") return yield* connect(instance, routed)
        if (operation !== "stop") return yield* answerFiles(instance, routed)
        stopped++
        instances.delete(instance.id)
        instance.finish("stopped", "instance stopped")
        return Answer.json(204)
      })

    return {
      service: "platform",
      key,
      handle,
      instances,
      totals: () => ({ created, stopped }),
      reclaim: id => {
        const instance = instances.get(id)
        if (instance === undefined) return false
        instances.delete(id)
        instance.finish("reclaimed", "")
        return true
      }
    }
  })
