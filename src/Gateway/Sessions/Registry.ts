/**
 * All sessions of the gateway: found, watched over, and brought to their end with it.
 */
import { Duration, Effect, Fiber, Layer, Option, Scope } from "effect"
import { Subscriptions } from "../../Health/Subscriptions.ts"
import { byteLength } from "../../Kv/Names.ts"
import { Store } from "../../Kv/Store.ts"
import * as Limits from "../../Limits.ts"
import * as Monotonic from "../../Monotonic.ts"
import { Tracer } from "../../Observability/Tracer.ts"
import * as Supervision from "../../Supervision.ts"
import { AgentPlatform } from "../../Upstream/AgentPlatform.ts"
import { Inference } from "../../Upstream/Inference.ts"
import { FairPool } from "../FairPool.ts"
import { SessionEvents } from "../SessionEvents.ts"
import {
  type Caller,
  type CreateSession,
  SessionConflict,
  Sessions,
  SessionTooLarge,
  type StartSession,
  type Subscriber,
  type Subscription
} from "../Sessions.ts"
import type { Entity, Shared } from "./Entity.ts"
import * as Ids from "./Ids.ts"
import * as Lifecycle from "./InstanceLifecycle.ts"
import * as Journal from "./Journal.ts"
import * as LaunchConfiguration from "./LaunchConfiguration.ts"
import * as Quota from "./Quota.ts"
import * as Secrets from "./Secrets.ts"
import * as Loading from "./SessionCache.ts"
import * as Watch from "./SessionReaper.ts"
import { encodeRecord, type SessionRecord, view } from "./SessionRecord.ts"
import * as Records from "./SessionRecords.ts"
import * as State from "./SessionState.ts"
import { aside, lists, listsOfOne, mostOfOne, type Settings, waitingActivations } from "./Settings.ts"
import * as Listing from "./TenantSessions.ts"
import * as Titles from "./Titles.ts"
import * as Talk from "./TurnCommands.ts"

/** How long what goes on without a caller may take to end. */
const ending = Duration.seconds(1)

/** Where what goes on without a caller lives: it ends before what it rests on, or is left to the end of the process. */
const aftermath = Effect.acquireRelease(Scope.make(), (scope, exit) =>
  Supervision.within(ending, Scope.close(scope, exit))
)

const make = (settings: Settings) =>
  Effect.gen(function* () {
    const store = yield* Store
    const events = yield* SessionEvents
    const platform = yield* AgentPlatform
    const tracer = yield* Tracer
    const limits = yield* Limits.Limits
    const clock = yield* Effect.clock
    const records = yield* Records.make(store)
    const quota = Quota.make(store, settings.perTenant, () => Monotonic.unsafeMillis(clock))
    const onFirstTurn = yield* Titles.make(yield* Inference)
    const secrets = Secrets.make(settings.secretBytes, {
      needsSecrets: session => loaded.needsSecrets(session),
      loseSecrets: session => loaded.loseSecrets(session)
    })
    let isClosing = false
    let subscriptions = 0

    const shared: Shared = {
      settings,
      platform,
      events,
      scope: yield* aftermath,
      // A clock may know fractions, which records do not.
      now: () => Math.trunc(clock.unsafeCurrentTimeMillis()),
      monotonic: () => Monotonic.unsafeMillis(clock),
      save: records.save,
      onFirstTurn,
      isClosing: () => isClosing,
      aside: new FairPool({
        name: "turns",
        capacity: aside,
        mostOfOne: mostOfOne(aside),
        mostWaiting: Number.POSITIVE_INFINITY
      }),
      activations: new FairPool({
        name: "activations",
        capacity: settings.activations,
        mostOfOne: mostOfOne(settings.activations),
        mostWaiting: waitingActivations
      }),
      traceId: tracer.currentTraceId
    }
    const loaded: Loading.Loaded = Loading.make(shared, records, secrets, entity =>
      Effect.ignore(Lifecycle.stop(entity, "another tenant needs its place"))
    )

    /** Finds a session and holds on to it while something is done with it. */
    const withSession = <A, E, R>(
      { tenant }: Caller,
      sessionId: string,
      f: (entity: Entity) => Effect.Effect<A, E, R>
    ) => Effect.flatMap(loaded.get(tenant, sessionId), entity => entity.use(f(entity)))

    const instanceOf =
      (caller: Caller, sessionId: string) =>
      <A, E>(f: (instanceId: string) => Effect.Effect<A, E>) =>
        withSession(caller, sessionId, entity =>
          Effect.flatMap(Lifecycle.ensureActive(entity), ({ instanceId }) => f(instanceId))
        )

    const create = ({ tenant, actor }: Caller, request: CreateSession) =>
      Effect.gen(function* () {
        const configuration = LaunchConfiguration.merge(LaunchConfiguration.nothing, request)
        const given = request.secrets ?? {}
        yield* LaunchConfiguration.check(configuration, given)
        const id = yield* Ids.session
        const createdAt = Ids.timeOf(id)
        const record: SessionRecord = {
          id,
          tenant,
          agentType: request.agentType,
          title: request.title ?? "",
          state: "inactive",
          instanceId: null,
          createdAt,
          updatedAt: createdAt,
          epoch: yield* Ids.unique,
          headSeq: 0,
          secretNames: Object.keys(given),
          configured: LaunchConfiguration.partsOf(configuration),
          titled: request.title !== undefined && request.title !== ""
        }
        const text = encodeRecord(record)
        const bytes = byteLength(text)
        if (bytes > limits.valueBytes) {
          return yield* new SessionTooLarge({
            message: `The session has ${bytes} bytes without its secrets; the limit is ${limits.valueBytes}`
          })
        }
        const key = Loading.keyOf(tenant, id)
        const isConfigured = record.configured.length > 0
        const undo = Effect.suspend(() => {
          secrets.forget(key)
          return isConfigured ? Effect.ignore(events.remove(key)) : Effect.void
        })
        const creation = Effect.gen(function* () {
          yield* secrets.put(key, given)
          // What the record says that there is has to be there before it.
          if (isConfigured) yield* events.configure(key, configuration)
          yield* records.create(text, record, actor)
        }).pipe(Effect.onError(() => undo))
        yield* quota.creating(tenant, creation, error => error._tag !== "StoreUnavailable")
        return view(record)
      }).pipe(
        Effect.catchTag("PreconditionFailed", () =>
          Effect.fail(new SessionConflict({ message: "The id that was drawn is taken; try again" }))
        )
      )

    const listing = new FairPool({ name: "turns for lists", capacity: lists, mostOfOne: listsOfOne })
    const list = Listing.make({
      store,
      events,
      peek: loaded.peek,
      secretsOf: (tenant, id) => secrets.get(Loading.keyOf(tenant, id)),
      keyOf: Loading.keyOf
    })

    const start = (caller: Caller, sessionId: string, given: StartSession = {}) =>
      withSession(caller, sessionId, entity =>
        Effect.gen(function* () {
          if (given.secrets !== undefined || given.environment !== undefined || given.deployment !== undefined) {
            yield* LaunchConfiguration.give(entity, given, given => secrets.put(entity.key, given))
          }
          yield* Lifecycle.ensureActive(entity)
          return entity.view()
        })
      )

    const removal = ({ tenant, actor }: Caller, entity: Entity) =>
      Effect.gen(function* () {
        yield* Lifecycle.stop(entity, "the session was deleted")
        // Without its record nobody could ask what an unanswered creation has led to.
        const request = { agentType: entity.record.agentType }
        yield* entity.journal.update(state =>
          State.silently(
            state.pendingStops.some(({ instanceId }) => instanceId === null) ? { ...state, request } : state
          )
        )
        yield* quota.deleting(tenant, records.remove(tenant, entity.record.id, actor))
        entity.isDeleted = true
        entity.isDirty = false
        secrets.forget(entity.key)
        for (const subscriber of [...entity.subscribers]) subscriber.onDeleted()
        // An instance that could not be given back is remembered until it is.
        const { pendingStops, instance } = entity.journal.state()
        if (instance === null && pendingStops.length === 0) {
          yield* entity.configuring.withPermits(1)(events.remove(entity.key))
          loaded.forget(entity)
        }
      }).pipe(
        Effect.onError(() =>
          Effect.sync(() => {
            entity.isGoing = entity.isDeleted
          })
        ),
        Effect.uninterruptible
      )

    /** What has begun goes on whoever leaves; a caller who cannot leave would hold up the end of the gateway. */
    const remove = (caller: Caller, sessionId: string) =>
      Effect.flatMap(loaded.get(caller.tenant, sessionId), entity => {
        // From now on, not from when the fiber has its turn: whoever starts the session meanwhile comes too late.
        entity.isGoing = true
        return Effect.flatMap(Effect.forkIn(entity.use(removal(caller, entity)), shared.scope), Fiber.join)
      })

    const subscribe = (caller: Caller, sessionId: string, subscriber: Subscriber) =>
      withSession(caller, sessionId, entity =>
        Effect.gen(function* () {
          const found = yield* events.find(entity.key)
          yield* Effect.acquireRelease(
            Effect.sync(() => {
              entity.subscribers.add(subscriber)
              subscriptions++
            }),
            () =>
              Effect.sync(() => {
                entity.subscribers.delete(subscriber)
                subscriptions--
                entity.touch()
              })
          )
          // What is told from here on is behind the place that the answer names, or is read along with what was missed.
          return yield* Effect.sync((): Subscription => {
            const { epoch, headSeq } = entity.journal.history()
            return {
              session: entity.view(),
              epoch,
              headSeq,
              trimmedSeq: Option.match(found, { onNone: () => headSeq, onSome: ({ trimmedSeq }) => trimmedSeq }),
              toldSeq: () => entity.journal.history().headSeq,
              read: (after, limit) =>
                Effect.map(events.read(entity.key, after, limit), page =>
                  Option.match(page, {
                    onNone: () => ({ frames: [], trimmedSeq: headSeq }),
                    onSome: ({ events, history }) => ({
                      frames: Journal.toFrames(events),
                      trimmedSeq: history.trimmedSeq
                    })
                  })
                )
            }
          })
        })
      )

    yield* Watch.start(shared, loaded, records, () => {
      isClosing = true
    })

    return Sessions.of({
      create,
      list: ({ tenant }, page = {}) =>
        listing.use(tenant, 1, () => Effect.zipRight(Listing.nextTurn, list(tenant, page))),
      get: (caller, sessionId) => withSession(caller, sessionId, entity => Effect.sync(() => entity.view())),
      start,
      stop: (caller, sessionId) =>
        withSession(caller, sessionId, entity =>
          Effect.map(Lifecycle.stop(entity, "the session was stopped"), () => entity.view())
        ),
      remove,
      subscribe,
      send: (caller, sessionId, content, clientMessageId) =>
        withSession(caller, sessionId, entity => Talk.send(entity, { content, sub: caller.actor, clientMessageId })),
      interrupt: (caller, sessionId, turnId) =>
        withSession(caller, sessionId, entity => Talk.interrupt(entity, turnId)),
      answer: (caller, sessionId, requestId, answer, clientMessageId) =>
        withSession(caller, sessionId, entity => Talk.answer(entity, { requestId, answer, clientMessageId })),
      listFiles: (caller, sessionId, options) =>
        instanceOf(caller, sessionId)(instanceId => platform.listFiles(instanceId, options)),
      readFile: (caller, { sessionId, path }) =>
        instanceOf(caller, sessionId)(instanceId => platform.readFile(instanceId, path)),
      fileHistory: (caller, { sessionId, path }) =>
        instanceOf(caller, sessionId)(instanceId => platform.fileHistory(instanceId, path)),
      fileAtIteration: (caller, { sessionId, path }, iteration) =>
        instanceOf(caller, sessionId)(instanceId => platform.fileAtIteration(instanceId, path, iteration)),
      subscriptions: () => subscriptions
    })
  })

/** The sessions that a store, a keeper of events and the upstream services make possible. */
export const layer = (settings: Settings) => Layer.scoped(Sessions, make(settings))

/** The number of subscriptions, for `/health`. */
export const layerSubscriptions: Layer.Layer<never, never, Sessions> = Layer.effect(
  Subscriptions,
  Effect.map(Sessions, sessions => ({ count: Effect.sync(() => sessions.subscriptions()) }))
)
