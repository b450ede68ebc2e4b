/** A gateway's sessions with a simulated platform, which can be restarted on the same storage. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { expect, it } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, identity, Layer, Option, Redacted, Scope } from "effect"
import * as Tracer from "../../src/base/Observability/Tracer.ts"
import type { Event } from "../../src/Gateway/Protocol.ts"
import * as EventsInMemory from "../../src/Gateway/SessionEvents/Memory.ts"
import { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import * as Registry from "../../src/Gateway/Sessions/Registry.ts"
import { namespaceOf } from "../../src/Gateway/Sessions/Session/SessionRecords.ts"
import * as Settings from "../../src/Gateway/Sessions/Settings.ts"
import { type Caller, type CreateSession, type Frame, Sessions, type Subscription } from "../../src/Gateway/Sessions.ts"
import type { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import { decode } from "../../src/Kv/Entry.ts"
import { Store } from "../../src/Kv/Store.ts"
import { Changes } from "../../src/Simulator/Changes.ts"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { breathe, pass } from "../../src/Simulator/Testing/Time.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import { AgentPlatform } from "../../src/Upstream/AgentPlatform.ts"
import { Inference } from "../../src/Upstream/Inference.ts"
import * as UpstreamClients from "../../src/Upstream/UpstreamClients.ts"
import { given } from "../Given.ts"

export const alice: Caller = { tenant: "acme", actor: "alice" }
export const mallory: Caller = { tenant: "evil", actor: "mallory" }

export type Stored = Store | ChangeLog | SessionEvents

export interface Options {
  readonly settings?: Partial<Settings.Settings>
  readonly simulator?: Simulator.Options
  readonly inference?: boolean
  readonly stored?: Layer.Layer<Stored, unknown>
  /** Replaces the simulator by another platform. */
  readonly platform?: (platform: Context.Tag.Service<AgentPlatform>) => Context.Tag.Service<AgentPlatform>
}

/** What is stored, in memory. */
export const inMemory: Layer.Layer<Stored> = Layer.merge(Memory.layer, EventsInMemory.layer())

/** What is stored, in memory, with other members of the two stores. */
export const storedWith = (
  events: (events: Context.Tag.Service<SessionEvents>) => Partial<Context.Tag.Service<SessionEvents>>,
  store: (store: Context.Tag.Service<Store>) => Partial<Context.Tag.Service<Store>> = () => ({})
): Layer.Layer<Stored> =>
  Layer.map(inMemory, context => {
    const [inner, kept] = [Context.get(context, SessionEvents), Context.get(context, Store)]
    return context.pipe(
      Context.add(SessionEvents, { ...inner, ...events(inner) }),
      Context.add(Store, { ...kept, ...store(kept) })
    )
  })

/** Upstream clients for a simulator. */
export const upstreams = (simulator: Context.Tag.Service<Simulator.Simulator>, inference = true) =>
  UpstreamClients.layer({
    agentPlatform: { url: Option.some(simulator.platformUrl), apiKey: Option.none() },
    inference: {
      url: simulator.inferenceUrl,
      apiKey: inference ? Option.some(Redacted.make("key")) : Option.none()
    }
  }).pipe(Layer.provide(NodeHttpClient.layerUndici))

/** Whether a gateway counts as killed: none of its calls returns any more. */
export interface Life {
  isOver: boolean
}

/** A service whose calls never return after the kill. Streams and plain functions are passed through. */
const mortal = <S extends object>(service: S, life: Life): S => {
  const guard = (value: unknown): unknown =>
    Effect.isEffect(value) ? Effect.suspend(() => (life.isOver ? Effect.never : value)) : value
  return new Proxy(service, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name)
      return typeof value === "function" ? (...args: ReadonlyArray<unknown>) => guard(value(...args)) : guard(value)
    }
  })
}

/** The services that a gateway needs, until it is killed. */
export const mortalLayer = (context: Context.Context<Stored | AgentPlatform | Inference>, life: Life) =>
  Layer.mergeAll(
    Layer.succeed(AgentPlatform, mortal(Context.get(context, AgentPlatform), life)),
    Layer.succeed(Inference, Context.get(context, Inference)),
    Layer.succeed(Store, mortal(Context.get(context, Store), life)),
    Layer.succeed(SessionEvents, mortal(Context.get(context, SessionEvents), life))
  )

/** A simulator, the storage, and gateways that are started and killed on it. */
export const make = (options: Options = {}) =>
  Effect.gen(function* () {
    const simulator = yield* Simulator.make({ seed: 1, ...options.simulator })
    const stored = yield* Layer.build(options.stored ?? inMemory)
    const start = Effect.gen(function* () {
      const life: Life = { isOver: false }
      const scope = yield* Scope.make()
      yield* Effect.addFinalizer(() => (life.isOver ? Effect.void : Scope.close(scope, Exit.void)))
      const built = yield* Layer.buildWithScope(upstreams(simulator, options.inference), scope)
      const clients = Context.add(
        built,
        AgentPlatform,
        (options.platform ?? identity)(Context.get(built, AgentPlatform))
      )
      const context = yield* Layer.buildWithScope(
        Registry.layer({ ...Settings.defaults, ...options.settings }).pipe(
          Layer.provide(mortalLayer(Context.merge(stored, clients), life)),
          Layer.provide(Tracer.layer)
        ),
        scope
      )
      return {
        sessions: Context.get(context, Sessions),
        stop: Scope.close(scope, Exit.void),
        /** As by kill -9: nothing more is sent, and connections break. */
        kill: Effect.zipRight(
          Effect.sync(() => {
            life.isOver = true
          }),
          Effect.ignore(simulator.disconnect())
        )
      }
    })
    return { simulator, stored, start }
  })

export { breathe, pass }

/** Lets time pass until a fiber has ended: its tries wait for answers of a real server. */
export const inTime = <A, E>(fiber: Fiber.RuntimeFiber<A, E>): Effect.Effect<A, E> =>
  Effect.gen(function* () {
    while ((yield* Fiber.poll(fiber))._tag === "None") yield* pass("1 second", "1 second")
    return yield* Fiber.join(fiber)
  })

/** Collects the events of one session. */
export interface Listener {
  readonly subscription: Subscription
  readonly events: Array<Event>
  /** Waits until an event has come. */
  readonly until: (matches: (event: Event) => boolean) => Effect.Effect<Event>
  /** Waits until the history was lost. */
  readonly untilLost: Effect.Effect<void>
}

const parse = (frames: ReadonlyArray<Frame>): ReadonlyArray<Event> =>
  frames.map(({ data }) => JSON.parse(data.toString("utf8")) as Event)

/** Collects the events of a session from now on. */
export const listen = (sessions: Context.Tag.Service<Sessions>, sessionId: string, caller: Caller = alice) =>
  Effect.gen(function* () {
    const changes = new Changes()
    const events: Array<Event> = []
    let lost = false
    const subscription = yield* sessions.subscribe(caller, sessionId, {
      onFrames: frames => {
        events.push(...parse(frames))
        changes.notify()
      },
      onDeleted: () => {},
      onLost: () => {
        lost = true
        changes.notify()
      }
    })
    const until = (matches: (event: Event) => boolean) => changes.until(() => Option.fromNullable(events.find(matches)))
    const untilLost = changes.until(() => (lost ? Option.some(undefined) : Option.none()))
    return { subscription, events, until, untilLost } satisfies Listener
  })

/** A gateway without a session. `start` starts another gateway on the same storage. */
export const makeStarted = (options?: Options) =>
  Effect.gen(function* () {
    const gateways = yield* make(options)
    return { ...gateways, ...(yield* gateways.start) }
  })

/** A gateway with one session. `start` starts another gateway on the same storage. */
export const makeSession = ({ create, ...options }: SessionOptions = {}) =>
  Effect.gen(function* () {
    const started = yield* makeStarted(options)
    const { id } = yield* started.sessions.create(alice, { agentType: "echo", ...create })
    return { ...started, id }
  })

/** The same with a subscriber of the session. */
export const makeHeard = (options: SessionOptions = {}) =>
  Effect.gen(function* () {
    const made = yield* makeSession(options)
    return { ...made, listener: yield* listen(made.sessions, made.id) }
  })

export interface SessionOptions extends Options {
  readonly create?: Partial<CreateSession>
}

/** Without a session, by the real clock. */
export const bare = given(it.scopedLive, makeStarted)

/** Without a session, by the test's clock. */
export const timedBare = given(it.scoped, makeStarted)

/** By the real clock. */
export const live = given(it.scopedLive, makeSession)

/** By the test's clock. */
export const timed = given(it.scoped, makeSession)

/** By the real clock, with a subscriber of the session. */
export const heard = given(it.scopedLive, makeHeard)

/** By the test's clock, with a subscriber of the session. */
export const timedHeard = given(it.scoped, makeHeard)

/** Creates so many sessions, and returns their ids. */
export const createSessions = (sessions: Context.Tag.Service<Sessions>, count: number) =>
  Effect.replicateEffect(
    Effect.map(sessions.create(alice, { agentType: "echo" }), ({ id }) => id),
    count
  )

/** All events that are kept of a session. */
export const history = (subscription: Subscription) =>
  Effect.map(subscription.read(0, 100_000), ({ frames }) => parse(frames))

export const typesOf = (events: ReadonlyArray<Event>): ReadonlyArray<string> => events.map(({ type }) => type)

export const statesOf = (events: ReadonlyArray<Event>): ReadonlyArray<string> =>
  events.flatMap(event => (event.type === "session_state" ? [event.state] : []))

/**
 * The states that the start of a session publishes. The instance then reports the same states, which are not published
 * again.
 */
export const startStates = ["activating", "active"]

/** Expects sequence numbers from 1 without gaps. */
export const isDense = (seqs: ReadonlyArray<number>) => expect(seqs).toEqual(seqs.map((_, index) => index + 1))

/** The stored records of the sessions of `alice`'s tenant. */
export const recordsOf = (stored: Context.Context<Store>) =>
  Effect.map(
    Context.get(stored, Store).list({ namespace: namespaceOf(alice.tenant), prefix: "", after: "", limit: 1000 }),
    ({ entries }) => entries.map(decode).map(({ key, value }) => ({ key, value: JSON.parse(value), text: value }))
  )

/** The ends of turns, by turn. */
export const endsOf = (events: ReadonlyArray<Event>): Readonly<Record<string, ReadonlyArray<string>>> => {
  const ends: Record<string, Array<string>> = {}
  for (const event of events) {
    if (event.type !== "turn_completed" && event.type !== "turn_errored" && event.type !== "turn_interrupted") continue
    ends[event.turnId] = [...(ends[event.turnId] ?? []), event.type]
  }
  return ends
}
