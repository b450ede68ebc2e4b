import { Effect, Option, Schema } from "effect"
import type { EventBody } from "./EventHistory.ts"
import { type ActiveRule, type FaultRules, isCloseCode, Rule } from "./Fault.ts"
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

export interface Parts {
  readonly faults: FaultRules
  readonly traffic: TrafficLog
  readonly platform: Platform
  readonly listeners: Readonly<Record<Service, Listener>>
}

const stateOf = ({ faults, traffic, platform, listeners }: Parts): State => {
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

const refused = (message: string) => new ControlRefused({ message })

/** What a test does with the services, apart from requests. Each call notifies those who wait for a state. */
export const controlsOf = (parts: Parts) => {
  const { faults, platform, listeners, traffic } = parts
  const control = <A>(work: Effect.Effect<A, ControlRefused>): Effect.Effect<A, ControlRefused> =>
    Effect.tap(work, () => traffic.changes.notify())
  const instancesOf = (id: string | undefined) =>
    [...platform.instances.values()].filter(instance => id === undefined || instance.id === id)
  const refuse = (service: Service, isOn: boolean) =>
    Effect.mapError(listeners[service].refuse(isOn), ({ message }) => refused(message))
  return {
    inject: (rule: typeof Rule.Encoded) =>
      control(
        Effect.mapBoth(Schema.decode(Rule)(rule), {
          onFailure: ({ message }) => refused(message),
          onSuccess: rule => faults.add(rule)
        })
      ),
    remove: (id: number) =>
      control(Effect.suspend(() => (faults.remove(id) ? Effect.void : refused(`There is no rule ${id}`)))),
    clear: control(
      Effect.suspend(() => {
        faults.clear()
        return Effect.forEach(Service.literals, service => refuse(service, false), { discard: true })
      })
    ),
    refuse: (service: Service, isOn: boolean) => control(refuse(service, isOn)),
    disconnect: ({ code, instanceId }: { readonly instanceId?: string; readonly code?: number } = {}) =>
      control(
        Effect.suspend(() => {
          if (code !== undefined && !isCloseCode(code)) return refused(`${code} is not a close code`)
          const connections = instancesOf(instanceId).flatMap(instance => [...instance.connections])
          for (const connection of connections) connection.close(code)
          return Effect.succeed(connections.length)
        })
      ),
    reclaim: (instanceId?: string) =>
      Effect.sync(() => {
        const count = instancesOf(instanceId).filter(({ id }) => platform.reclaim(id)).length
        traffic.changes.notify()
        return count
      }),
    emit: (instanceId: string, event: EventBody) =>
      control(
        Effect.suspend(() => {
          const instance = platform.instances.get(instanceId)
          if (instance === undefined) return refused(`There is no instance ${JSON.stringify(instanceId)}`)
          instance.emit(event)
          return Effect.void
        })
      ),
    state: Effect.sync(() => stateOf(parts)),
    awaitState: (predicate: (state: State) => boolean) =>
      traffic.changes.until(() => Option.filter(Option.some(stateOf(parts)), predicate))
  }
}
