import type { IncomingMessage, ServerResponse } from "node:http"
import { Effect, FiberSet, Schema, type Scope } from "effect"
import * as Answer from "./Answer.ts"
import { type ActiveRule, CloseCode, type FaultRules, noFaults, Rule } from "./Fault.ts"
import type { Listener } from "./Listener.ts"
import { type Operation, Service } from "./Operation.ts"
import type { Platform } from "./Platform.ts"
import type { Received, TrafficLog } from "./TrafficLog.ts"

/** A command that cannot be executed. */
export class ControlRefused extends Schema.TaggedError<ControlRefused>()("ControlRefused", {
  message: Schema.String
}) {}

/** The state of a live instance. */
export interface InstanceState {
  readonly id: string
  readonly agentType: string
  readonly deployment: unknown
  readonly environment: Readonly<Record<string, string>>
  readonly secretNames: ReadonlyArray<string>
  readonly connections: number
  /** Messages that started a turn. */
  readonly turns: number
  /** Events emitted so far. */
  readonly events: number
}

/** The simulator's state and what it has received. */
export interface State {
  readonly requests: Readonly<Record<Operation, number>>
  readonly unknownRequests: number
  /** The newest requests, oldest first, at most 200. */
  readonly recent: ReadonlyArray<Received>
  /** Frames received over WebSockets, by type. */
  readonly frames: Readonly<TrafficLog["frames"]>
  readonly instances: ReadonlyArray<InstanceState>
  /** WebSockets open. */
  readonly connections: number
  readonly created: number
  readonly stopped: number
  readonly rules: ReadonlyArray<ActiveRule>
  readonly refusing: ReadonlyArray<Service>
}

export const Command = Schema.Union(
  /** Adds a rule of faults. */
  Schema.Struct({ command: Schema.Literal("inject"), rule: Rule }),
  /** Removes a rule. */
  Schema.Struct({ command: Schema.Literal("remove"), id: Schema.Int }),
  /** Removes all rules and accepts connections again. */
  Schema.Struct({ command: Schema.Literal("clear") }),
  /** Refuses new connections to a service as if it were not running, or accepts them again. */
  Schema.Struct({ command: Schema.Literal("refuse"), service: Service, refused: Schema.Boolean }),
  /** Closes WebSockets, of one instance or of all, with a code, or disconnects them without one. */
  Schema.Struct({
    command: Schema.Literal("disconnect"),
    instanceId: Schema.optional(Schema.String),
    code: Schema.optional(CloseCode)
  }),
  /** Ends an instance, or all of them, without an event. */
  Schema.Struct({ command: Schema.Literal("reclaim"), instanceId: Schema.optional(Schema.String) }),
  /** Makes an instance emit an event of any type. */
  Schema.Struct({
    command: Schema.Literal("emit"),
    instanceId: Schema.String,
    event: Schema.Struct({ type: Schema.String }, { key: Schema.String, value: Schema.Unknown })
  })
)
export type Command = typeof Command.Type

export interface Parts {
  readonly faults: FaultRules
  readonly traffic: TrafficLog
  readonly platform: Platform
  readonly listeners: Readonly<Record<Service, Listener>>
}

export const stateOf = ({ faults, traffic, platform, listeners }: Parts): State => {
  const instances = [...platform.instances.values()].map(instance => ({
    id: instance.id,
    ...instance.creation,
    connections: instance.connections.size,
    turns: instance.turns,
    events: instance.history.last
  }))
  return {
    requests: { ...traffic.requests },
    unknownRequests: traffic.unknownRequests,
    recent: [...traffic.recent],
    frames: { ...traffic.frames },
    instances,
    connections: instances.reduce((sum, { connections }) => sum + connections, 0),
    ...platform.totals(),
    rules: faults.rules,
    refusing: Service.literals.filter(service => listeners[service].isRefusing())
  }
}

/** Executes a command. The result is the number of affected things; that of `inject` is the rule's id. */
export const execute = (parts: Parts, command: Command): Effect.Effect<number, ControlRefused> =>
  Effect.suspend(() => {
    const { faults, platform, listeners } = parts
    const refused = (message: string) => Effect.fail(new ControlRefused({ message }))
    const instancesOf = (id: string | undefined) =>
      [...platform.instances.values()].filter(instance => id === undefined || instance.id === id)
    const refuse = (service: Service, on: boolean) =>
      Effect.catchAll(Effect.as(listeners[service].refuse(on), 1), error => refused(error.message))
    switch (command.command) {
      case "inject": {
        const id = faults.add(command.rule)
        return id === undefined ? refused("There are too many rules") : Effect.succeed(id)
      }
      case "remove":
        return faults.remove(command.id) ? Effect.succeed(1) : refused(`There is no rule ${command.id}`)
      case "clear": {
        const count = faults.rules.length
        faults.clear()
        return Effect.as(
          Effect.forEach(Service.literals, service => refuse(service, false)),
          count
        )
      }
      case "refuse":
        return refuse(command.service, command.refused)
      case "disconnect": {
        const connections = instancesOf(command.instanceId).flatMap(instance => [...instance.connections])
        for (const connection of connections) connection.close(command.code)
        return Effect.succeed(connections.length)
      }
      case "reclaim":
        return Effect.succeed(instancesOf(command.instanceId).filter(({ id }) => platform.reclaim(id)).length)
      case "emit": {
        const instance = platform.instances.get(command.instanceId)
        if (instance === undefined) return refused(`There is no instance ${JSON.stringify(command.instanceId)}`)
        instance.emit(command.event)
        return Effect.succeed(1)
      }
    }
  }).pipe(Effect.tap(() => Effect.sync(() => parts.traffic.changes.notify())))

const refusal = (status: number, message: string): Answer.Refused => new Answer.Refused({ status, message })

const answer = (request: IncomingMessage, parts: Parts, bodyBytes: number) =>
  Effect.gen(function* () {
    if (request.url !== "/control") return yield* refusal(404, "Not found")
    if (request.method === "GET") return Answer.json(200, stateOf(parts))
    if (request.method !== "POST") return yield* refusal(405, "Only GET and POST are allowed")
    // A page of another origin needs a preflight request for this type, which is refused.
    if (!/^application\/json\b/i.test(request.headers["content-type"] ?? "")) {
      return yield* refusal(415, "The body must be application/json")
    }
    const command = yield* Answer.decodeBody(request, bodyBytes, Command)
    const result = yield* Effect.mapError(execute(parts, command), error => refusal(409, error.message))
    return Answer.json(200, { ok: true, result })
  }).pipe(Effect.catchAll(refused => Effect.succeed(Answer.refusal(refused))))

/** Serves `/control` to other processes: GET returns the state, POST executes a command. */
export const httpHandler = (
  parts: Parts,
  bodyBytes: number
): Effect.Effect<(request: IncomingMessage, response: ServerResponse) => void, never, Scope.Scope> =>
  Effect.map(FiberSet.makeRuntime<never>(), run => (request, response) => {
    const work = run(
      Effect.flatMap(answer(request, parts, bodyBytes), answer => Answer.deliver(response, answer, noFaults))
    )
    Answer.endWith(response, work)
  })
