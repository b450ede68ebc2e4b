/**
 * An agent platform and an inference proxy to develop and test against: real servers on 127.0.0.1 that answer as
 * the upstream services do, and go wrong as they are told to.
 */
import { Context, Effect, Layer, Option, Random, Schema, type Scope } from "effect"
import { type Command, ControlRefused, follow, type Parts, type State, stateOf } from "./Control.ts"
import * as ControlHttp from "./ControlHttp.ts"
import type { EventBody } from "./EventHistory.ts"
import * as Exchange from "./Exchange.ts"
import { CloseCode, Rule } from "./Fault.ts"
import { Faults } from "./Faults.ts"
import * as Inference from "./Inference.ts"
import { Ledger } from "./Ledger.ts"
import * as Listener from "./Listener.ts"
import type { Service } from "./Operation.ts"
import { defaultLimits, type Options } from "./Options.ts"
import * as Platform from "./Platform.ts"

export { type Command, ControlRefused, type InstanceState, type State } from "./Control.ts"
export type { EventBody } from "./EventHistory.ts"
export type { Fault } from "./Fault.ts"
export { ListenFailed } from "./Listener.ts"
export type { Operation, Service } from "./Operation.ts"
export type { Format, Limits, Options } from "./Options.ts"
export { commands } from "./Script.ts"

/** A fault, the operation it concerns (`*` for all), how often it strikes and how many times in all. */
export type RuleInput = typeof Rule.Encoded

/** The running simulator: where it is, what it has seen, and the handle on its faults. */
export class Simulator extends Context.Tag("causeway/Simulator")<
  Simulator,
  {
    /** Base address of the agent platform, without a slash at its end. */
    readonly platformUrl: string
    /** Base address of the inference proxy. */
    readonly inferenceUrl: string
    /** Where other processes read the state (GET) and send commands (POST, JSON). */
    readonly controlUrl: string
    /**
     * Switches a fault on, for requests that come from now on, and answers its id. The n-th rule of a simulator
     * draws the same chances for the same seed, whatever else is going on.
     */
    readonly inject: (rule: RuleInput) => Effect.Effect<number, ControlRefused>
    /** Switches one rule off; one that is not on is refused. */
    readonly remove: (id: number) => Effect.Effect<void, ControlRefused>
    /** Switches all rules off and accepts connections again. Requests that hang or drip go on doing so. */
    readonly clear: Effect.Effect<void, ControlRefused>
    /** Refuses new connections as if the service were not running, or accepts them again. Open ones go on. */
    readonly refuse: (service: Service, refused: boolean) => Effect.Effect<void, ControlRefused>
    /** Closes WebSockets with a code, or cuts them without one, and answers how many. */
    readonly disconnect: (options?: {
      readonly instanceId?: string
      readonly code?: number
    }) => Effect.Effect<number, ControlRefused>
    /** Lets one instance, or all, be gone without a word; its connections are cut. Answers how many. */
    readonly reclaim: (instanceId?: string) => Effect.Effect<number>
    /** Lets an instance emit an event of any type; id and timestamp are added where they are not given. */
    readonly emit: (instanceId: string, event: EventBody) => Effect.Effect<void, ControlRefused>
    readonly state: Effect.Effect<State>
    /** Waits until the state is as asked, and answers it. What the predicate throws is a defect. */
    readonly awaitState: (predicate: (state: State) => boolean) => Effect.Effect<State>
  }
>() {}

const handleOf = (
  parts: Parts,
  urls: { readonly platformUrl: string; readonly inferenceUrl: string; readonly controlUrl: string }
): Context.Tag.Service<Simulator> => {
  const command = (command: Command) => follow(parts, command)
  const decode = <A, I>(schema: Schema.Schema<A, I>, input: unknown) =>
    Effect.mapError(Schema.decodeUnknown(schema)(input), error => new ControlRefused({ message: error.message }))
  return {
    ...urls,
    inject: rule => Effect.flatMap(decode(Rule, rule), rule => command({ command: "inject", rule })),
    remove: id => command({ command: "remove", id }),
    clear: command({ command: "clear" }),
    refuse: (service, refused) => command({ command: "refuse", service, refused }),
    disconnect: (options = {}) =>
      Effect.flatMap(decode(Schema.UndefinedOr(CloseCode), options.code), () =>
        command({ command: "disconnect", ...options })
      ),
    reclaim: instanceId => Effect.orDie(command({ command: "reclaim", instanceId })),
    emit: (instanceId, event) => command({ command: "emit", instanceId, event }),
    state: Effect.sync(() => stateOf(parts)),
    awaitState: predicate => parts.ledger.changes.until(() => Option.filter(Option.some(stateOf(parts)), predicate))
  }
}

/** Starts a simulator that runs until the scope closes, which cuts every connection. */
export const make = (
  options: Options = {}
): Effect.Effect<Context.Tag.Service<Simulator>, Listener.ListenFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const { ports = {}, pace = 0 } = options
    const limits = { ...defaultLimits, ...options.limits }
    const seed = options.seed ?? (yield* Random.next)
    const prefix = yield* Effect.withRandom(Random.nextIntBetween(0x1000, 0x10000), Random.make(seed))
    const ledger = new Ledger()
    const faults = new Faults(seed, limits.rules)
    const platform = yield* Platform.make(
      { key: options.platformKey, pace, limits, prefix: prefix.toString(16) },
      ledger
    )
    const inference = Inference.make({
      key: options.inferenceKey,
      format: options.format ?? "accept",
      chunkSizes: options.chunkSizes ?? [1, 3, 7, 31],
      pace,
      bodyBytes: limits.bodyBytes
    })
    const listen = (played: Exchange.Played, port = 0) =>
      Effect.flatMap(Exchange.handlers(played, faults, ledger), handlers => Listener.make(port, handlers))
    const listeners = {
      platform: yield* listen(platform, ports.platform),
      inference: yield* listen(inference, ports.inference)
    }
    const parts = { faults, ledger, platform, listeners }
    const control = yield* Listener.make(ports.control ?? 0, {
      request: yield* ControlHttp.handler(parts, limits.bodyBytes),
      upgrade: (_, socket) => socket.destroy()
    })
    return handleOf(parts, {
      platformUrl: listeners.platform.url,
      inferenceUrl: listeners.inference.url,
      controlUrl: `${control.url}/control`
    })
  })

/** A simulator that runs as long as the layer. */
export const layer = (options?: Options): Layer.Layer<Simulator, Listener.ListenFailed> =>
  Layer.scoped(Simulator, make(options))
