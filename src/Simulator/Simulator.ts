/**
 * A simulated agent platform and inference proxy for development and tests: real servers on 127.0.0.1 with faults that
 * can be injected.
 */
import { Context, Effect, Layer, Option, Random, Redacted, Schema, type Scope } from "effect"
import type { ListenFailed } from "../Http/ListenFailed.ts"
import type * as AgentPlatform from "../Upstream/AgentPlatform.ts"
import * as Agents from "../Upstream/AgUiAgent/Settings.ts"
import * as InferenceSettings from "../Upstream/Inference.ts"
import { type ActiveRule, FaultRules, isCloseCode, Rule } from "./Fault.ts"
import * as Inference from "./Inference.ts"
import type { EventBody } from "./Instance.ts"
import { defaultLimits, type Options } from "./Options.ts"
import * as Platform from "./Platform.ts"
import * as SimulatedService from "./SimulatedService.ts"
import { type Operation, type Received, Service, TrafficLog } from "./TrafficLog.ts"

export { ListenFailed } from "../Http/ListenFailed.ts"
export type { Fault } from "./Fault.ts"
export type { EventBody } from "./Instance.ts"
export type { Format, Limits, Options } from "./Options.ts"
export { commands } from "./Script.ts"
export type { Operation, Service } from "./TrafficLog.ts"

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

/** A fault, its operation (`*` for all), its rate, and the maximum number of times it applies. */
export type RuleInput = typeof Rule.Encoded

/** A running simulator. */
export class Simulator extends Context.Tag("causeway/Simulator")<
  Simulator,
  {
    /** Base address of the agent platform, without a slash at the end. */
    readonly platformUrl: string
    /** The address of the simulated agent by AG-UI, to which the name of an agent type is added: `<address>/echo`. */
    readonly agentsUrl: string
    /** Base address of the inference proxy. */
    readonly inferenceUrl: string
    /**
     * Adds a rule of faults for later requests, and returns its id. The n-th rule of a simulator has the same random
     * numbers for the same seed.
     */
    readonly inject: (rule: RuleInput) => Effect.Effect<number, ControlRefused>
    /** Removes a rule; an unknown one is refused. */
    readonly remove: (id: number) => Effect.Effect<void, ControlRefused>
    /** Removes all rules and accepts connections again. Requests in flight keep their faults. */
    readonly clear: Effect.Effect<void, ControlRefused>
    /** Refuses new connections as if the service were not running, or accepts them again. Open ones continue. */
    readonly refuse: (service: Service, refused: boolean) => Effect.Effect<void, ControlRefused>
    /** Closes WebSockets with a code, or disconnects them without one, and returns how many. */
    readonly disconnect: (options?: {
      readonly instanceId?: string
      readonly code?: number
    }) => Effect.Effect<number, ControlRefused>
    /** Ends one instance, or all, without an event, and disconnects its clients. Returns the number of instances. */
    readonly reclaim: (instanceId?: string) => Effect.Effect<number>
    /** Makes an instance emit an event of any type; id and timestamp are added unless given. */
    readonly emit: (instanceId: string, event: EventBody) => Effect.Effect<void, ControlRefused>
    readonly state: Effect.Effect<State>
    /** Waits until the state satisfies a predicate, and returns it. What the predicate throws is a defect. */
    readonly awaitState: (predicate: (state: State) => boolean) => Effect.Effect<State>
  }
>() {}

/** What the commands act on. */
interface Parts {
  readonly faults: FaultRules
  readonly traffic: TrafficLog
  readonly platform: Platform.Platform
  readonly listeners: Readonly<Record<Service, SimulatedService.Listener>>
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
const controlsOf = (parts: Parts) => {
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

/** Starts a simulator. The end of the scope closes all connections. */
export const make = (options: Options = {}): Effect.Effect<Context.Tag.Service<Simulator>, ListenFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const { ports = {}, pace = 0 } = options
    const limits = { ...defaultLimits, ...options.limits }
    const seed = options.seed ?? (yield* Random.next)
    const prefix = yield* Effect.withRandom(Random.nextIntBetween(0x1000, 0x10000), Random.make(seed))
    const traffic = new TrafficLog()
    const faults = new FaultRules(seed)
    const platform = yield* Platform.make(
      { key: options.platformKey, pace, limits, prefix: prefix.toString(16) },
      traffic
    )
    const inference = Inference.make({
      key: options.inferenceKey,
      format: options.format ?? "accept",
      chunkSizes: options.chunkSizes ?? [1, 3, 7, 31],
      pace,
      bodyBytes: limits.bodyBytes
    })
    const listen = (played: SimulatedService.SimulatedService, port = 0) =>
      Effect.flatMap(SimulatedService.handlers(played, faults, traffic), handlers =>
        SimulatedService.listener(port, handlers)
      )
    const listeners = {
      platform: yield* listen(platform, ports.platform),
      inference: yield* listen(inference, ports.inference)
    }
    return {
      platformUrl: listeners.platform.url,
      agentsUrl: `${listeners.platform.url}/ag-ui`,
      inferenceUrl: listeners.inference.url,
      ...controlsOf({ faults, traffic, platform, listeners })
    }
  })

/** Runs an agent platform and an inference proxy on free ports of 127.0.0.1. Fails if a given port is in use. */
export const layer = (options?: Options): Layer.Layer<Simulator, ListenFailed> => Layer.scoped(Simulator, make(options))

/** The upstream services that are configured. */
export interface Upstreams {
  readonly agentPlatform: AgentPlatform.Settings
  /** AG-UI agents in place of the platform. */
  readonly agents: Agents.Settings
  readonly inference: InferenceSettings.Settings
}

const isSet = ({ apiKey, url }: InferenceSettings.Settings): boolean =>
  Option.isSome(apiKey) || url !== InferenceSettings.defaultUrl

/**
 * Upstream services for development: those that are configured, and the simulator for the others. It runs until the
 * scope closes, slowly enough for people to follow a turn.
 */
export const simulatedUpstreams = ({ agentPlatform, agents, inference }: Upstreams) =>
  Effect.gen(function* () {
    const hasAgents = Option.isSome(agentPlatform.url) || Agents.isSet(agents)
    if (hasAgents && isSet(inference)) return { agentPlatform, inference }
    const simulator = yield* make({ pace: "20 millis" })
    if (!hasAgents) {
      const address = `${simulator.agentsUrl}/echo`
      yield* Effect.annotateLogs(Effect.logInfo("The simulated agent can be reached by AG-UI too"), { address })
    }
    return {
      agentPlatform: hasAgents ? agentPlatform : { ...agentPlatform, url: Option.some(simulator.platformUrl) },
      // The simulated proxy accepts any credential; without one there is no inference.
      inference: isSet(inference)
        ? inference
        : { url: simulator.inferenceUrl, apiKey: Option.some(Redacted.make("simulated")) }
    }
  })
