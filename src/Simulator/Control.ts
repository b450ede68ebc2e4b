import { Effect, Schema } from "effect"
import { CloseCode, Rule } from "./Fault.ts"
import type { ActiveRule, Faults } from "./Faults.ts"
import type { Frames, Ledger, Received } from "./Ledger.ts"
import type { Listener } from "./Listener.ts"
import { type Operation, Service } from "./Operation.ts"
import type { Platform } from "./Platform.ts"

/** A command that the simulator cannot follow. */
export class ControlRefused extends Schema.TaggedError<ControlRefused>()("ControlRefused", {
  message: Schema.String
}) {}

/** One live instance as it shows itself to tests. */
export interface InstanceState {
  readonly id: string
  readonly agentType: string
  readonly deployment: unknown
  readonly environment: Readonly<Record<string, string>>
  readonly secretNames: ReadonlyArray<string>
  readonly connections: number
  /** Messages taken in as turns. */
  readonly turns: number
  /** Events emitted so far. */
  readonly events: number
}

/** All that the simulator has received and is doing. */
export interface State {
  readonly requests: Readonly<Record<Operation, number>>
  readonly unknownRequests: number
  /** The newest requests, oldest first, at most 200. */
  readonly recent: ReadonlyArray<Received>
  readonly frames: Frames
  readonly instances: ReadonlyArray<InstanceState>
  /** WebSockets open. */
  readonly connections: number
  readonly created: number
  readonly stopped: number
  readonly rules: ReadonlyArray<ActiveRule>
  readonly refusing: ReadonlyArray<Service>
}

/** What can be commanded, at run time and over HTTP. */
export const Command = Schema.Union(
  /** Switches a fault on. */
  Schema.Struct({ command: Schema.Literal("inject"), rule: Rule }),
  /** Switches one rule off. */
  Schema.Struct({ command: Schema.Literal("remove"), id: Schema.Int }),
  /** Switches all rules off and accepts connections again. */
  Schema.Struct({ command: Schema.Literal("clear") }),
  /** Refuses new connections to a service as if it were not running, or accepts them again. */
  Schema.Struct({ command: Schema.Literal("refuse"), service: Service, refused: Schema.Boolean }),
  /** Closes WebSockets, of one instance or of all, with a code, or cuts them without one. */
  Schema.Struct({
    command: Schema.Literal("disconnect"),
    instanceId: Schema.optional(Schema.String),
    code: Schema.optional(CloseCode)
  }),
  /** Lets an instance, or all of them, be gone without a word. */
  Schema.Struct({ command: Schema.Literal("reclaim"), instanceId: Schema.optional(Schema.String) }),
  /** Lets an instance emit an event of any type. */
  Schema.Struct({
    command: Schema.Literal("emit"),
    instanceId: Schema.String,
    event: Schema.Struct({ type: Schema.String }, { key: Schema.String, value: Schema.Unknown })
  })
)
export type Command = typeof Command.Type

/** The parts that are controlled. */
export interface Parts {
  readonly faults: Faults
  readonly ledger: Ledger
  readonly platform: Platform
  readonly listeners: Readonly<Record<Service, Listener>>
}

/** What the simulator has received and is doing. */
export const stateOf = ({ faults, ledger, platform, listeners }: Parts): State => {
  const instances = [...platform.instances.values()].map(instance => ({
    id: instance.id,
    ...instance.creation,
    connections: instance.connections.size,
    turns: instance.turns,
    events: instance.history.last
  }))
  return {
    requests: ledger.requests,
    unknownRequests: ledger.unknown,
    recent: ledger.recent,
    frames: ledger.frames,
    instances,
    connections: instances.reduce((sum, { connections }) => sum + connections, 0),
    ...platform.totals(),
    rules: faults.rules,
    refusing: Service.literals.filter(service => listeners[service].isRefusing())
  }
}

/** Follows a command. The result counts what it concerned; that of `inject` is the rule's id. */
export const follow = (parts: Parts, command: Command): Effect.Effect<number, ControlRefused> =>
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
        return id === undefined ? refused("There are too many rules already") : Effect.succeed(id)
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
  }).pipe(Effect.tap(() => Effect.sync(() => parts.ledger.changes.notify())))
