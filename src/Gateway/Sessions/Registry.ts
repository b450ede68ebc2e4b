/**
 * The implementation of `Sessions`: sessions in memory over a store, a session database and the agent platform.
 */
import { Duration, Effect, Fiber, Layer, Option, Runtime, Scope } from "effect"
import { Subscriptions } from "../../Health/Health.ts"
import { Store, StoreUnavailable } from "../../Kv/Store.ts"
import * as Limits from "../../Limits.ts"
import * as MetricTags from "../../MetricTags.ts"
import * as Monotonic from "../../Monotonic.ts"
import { Tracer } from "../../Observability/Tracer.ts"
import * as Supervision from "../../Supervision.ts"
import { AgentPlatform } from "../../Upstream/AgentPlatform.ts"
import { Inference } from "../../Upstream/Inference.ts"
import { FairPool, sharedPool } from "../FairPool.ts"
import { NodeLink } from "../Forwarding/NodeLink.ts"
import { SessionEvents } from "../SessionEvents.ts"
import { SessionNodes } from "../SessionNodes.ts"
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
import type { Entity } from "./Entity.ts"
import * as Handover from "./Handover.ts"
import * as HistoryPages from "./HistoryPages.ts"
import { check, empty, merge, storedParts } from "./LaunchConfiguration.ts"
import * as LogSubscriptions from "./LogSubscriptions.ts"
import { SecretPool } from "./SecretPool.ts"
import * as SessionCache from "./SessionCache.ts"
import type { Shared } from "./SessionCore.ts"
import * as SessionReaper from "./SessionReaper.ts"
import * as Records from "./SessionRecords.ts"
import { backgroundCleanups, concurrentLists, concurrentListsOfOne, type Settings } from "./Settings.ts"
import * as TenantSessions from "./TenantSessions.ts"
import * as Titles from "./Titles.ts"

/** How long background work may take to end. */
const endLimit = Duration.seconds(1)

/** Of background work: it ends before what it depends on, or is left to the end of the process. */
const backgroundScope = Effect.acquireRelease(Scope.make(), (scope, exit) =>
  Supervision.within(endLimit, Scope.close(scope, exit))
)

/** How often it is tried to remove launch configurations whose sessions were not created. */
const removalInterval = "5 seconds"

/** Of so many that wait to be removed, no session with another one is created. */
const maxLeftOver = 10_000

const make = (settings: Settings) =>
  Effect.gen(function* () {
    const store = yield* Store
    const events = yield* SessionEvents
    const platform = yield* AgentPlatform
    const tracer = yield* Tracer
    const limits = yield* Limits.Limits
    const clock = yield* Effect.clock
    const monotonic = () => Monotonic.unsafeMillis(clock)
    const records = yield* Records.make(store, events.isShared)
    const quota = TenantSessions.makeQuota(store, settings.perTenant, monotonic)
    const generateTitle = yield* Titles.make(yield* Inference)
    const nodes = yield* SessionNodes
    /** Whether requests that reach other nodes come here, so that a session may stay where its secrets are. */
    const link = yield* NodeLink
    const isReached = Option.isSome(link)
    const secrets = new SecretPool(
      settings.secretBytes,
      key => cache.peek(key),
      isReached ? nodes.tokenOf : () => undefined
    )
    let isClosing = false
    let subscriptions = 0

    const scope = yield* backgroundScope
    const fork = Runtime.runFork(yield* Effect.runtime<never>())
    const run = (work: Effect.Effect<void>): void => void fork(work, { scope })
    const shared: Shared = {
      settings,
      platform,
      events,
      records,
      secrets,
      scope,
      run,
      // A clock may have fractions of a millisecond.
      now: () => Math.trunc(clock.unsafeCurrentTimeMillis()),
      monotonic,
      generateTitle,
      isClosing: () => isClosing,
      cleanups: sharedPool("capacity for stops", backgroundCleanups, Number.POSITIVE_INFINITY),
      activations: sharedPool("activations", settings.activations),
      traceId: tracer.currentTraceId,
      malformedTypes: new Set(),
      tags: yield* MetricTags.current
    }
    const cache: SessionCache.SessionCache = SessionCache.make(shared, records, key => {
      if (isReached && secrets.has(key)) return
      // It begins at once. Where it fails, the session stays with this node until that is gone.
      run(Effect.ignore(events.release(key)))
    })

    /** Finds a session, which counts as used while `f` runs. */
    const withSession = <A, E, R>(
      { tenant }: Caller,
      sessionId: string,
      f: (entity: Entity) => Effect.Effect<A, E, R>
    ) => Effect.flatMap(cache.get(tenant, sessionId), entity => entity.use(f(entity)))

    const withInstance =
      (caller: Caller, sessionId: string) =>
      <A, E>(f: (instanceId: string) => Effect.Effect<A, E>) =>
        withSession(caller, sessionId, ({ lifecycle }) =>
          Effect.flatMap(lifecycle.activate(), ({ instanceId }) => f(instanceId))
        )

    /** Sessions that were not created, and whose launch configurations nothing else would ever remove. */
    const leftOver = new Set<string>()
    const leftOvers = new Supervision.Occupancy()
    // One at a time, and no more after a failure: while the database is unavailable all of them cost no more than one.
    const removeLeftOver = Effect.suspend(() =>
      Effect.forEach([...leftOver], key => Effect.map(events.remove(key), () => leftOver.delete(key)), {
        discard: true
      })
    ).pipe(Effect.ensuring(Effect.sync(() => leftOvers.set(leftOver.size > 0))))
    const removingLeftOver = Supervision.tick(removalInterval, leftOvers, Effect.ignore(removeLeftOver))
    yield* Supervision.forkIn("removal of launch configurations", removingLeftOver, shared.scope)

    const create = ({ tenant, actor }: Caller, request: CreateSession) =>
      Effect.gen(function* () {
        const configuration = merge(empty, request)
        const given = request.secrets ?? {}
        yield* check(configuration, given)
        const id = yield* Records.sessionId
        const createdAt = Records.timeOf(id)
        const { agentType, title = "" } = request
        const record: Records.SessionRecord = {
          ...{ id, tenant, agentType, title, state: "inactive", instanceId: null, createdAt, updatedAt: createdAt },
          epoch: yield* Records.randomId,
          headSeq: 0,
          secretNames: Object.keys(given),
          configured: storedParts(configuration),
          titled: title !== ""
        }
        const text = Records.encodeRecord(record)
        const bytes = Buffer.byteLength(text)
        if (bytes > limits.valueBytes) {
          return yield* new SessionTooLarge({
            message: `The session has ${bytes} bytes without its secrets; the limit is ${limits.valueBytes}`
          })
        }
        const key = Records.keyOf(tenant, id)
        const isConfigured = record.configured.length > 0
        /** The session begins where its secrets are. */
        const isOwned = isReached && record.secretNames.length > 0
        if (isConfigured && leftOver.size >= maxLeftOver) {
          return yield* new StoreUnavailable({ reason: `${leftOver.size} launch configurations wait to be removed` })
        }
        const undo = Effect.suspend(() => {
          secrets.forget(key)
          if (!isConfigured && !isOwned) return Effect.void
          return Effect.catchAll(events.remove(key), () =>
            Effect.sync(() => {
              leftOver.add(key)
              leftOvers.set(true)
            })
          )
        })
        const creation = Effect.gen(function* () {
          // Nobody else knows its id.
          if (isOwned) yield* Effect.catchTag(events.open(key, record.epoch), "SessionElsewhere", Effect.die)
          yield* secrets.put(key, given)
          // Before the record, which tells that it is there.
          if (isConfigured) {
            yield* Effect.catchTag(events.configure(key, configuration), "SessionElsewhere", Effect.die)
          }
          yield* records.create(text, record, actor)
        }).pipe(Effect.onError(() => undo))
        yield* quota.creating(tenant, creation)
        return Records.toView(record, { secrets: [], configuration: [] })
      }).pipe(
        Effect.catchTag("PreconditionFailed", () =>
          Effect.fail(new SessionConflict({ message: "The id that was drawn is taken; try again" }))
        )
      )

    const lists = new FairPool({
      name: "capacity for lists",
      capacity: concurrentLists,
      maxOfOne: concurrentListsOfOne
    })
    const list = TenantSessions.makeList({ store, events, nodes, peek: cache.peek, secrets })

    const start = (caller: Caller, sessionId: string, given: StartSession = {}) =>
      withSession(caller, sessionId, entity =>
        Effect.gen(function* () {
          if (given.secrets !== undefined || given.environment !== undefined || given.deployment !== undefined) {
            yield* entity.configuration.give(given)
          }
          yield* entity.lifecycle.activate()
          return entity.view()
        })
      )

    const removal = ({ tenant, actor }: Caller, entity: Entity) =>
      Effect.gen(function* () {
        yield* entity.lifecycle.stop("the session was deleted")
        // A creation that was not answered cannot be repeated without the record.
        const { agentType } = entity.record
        yield* entity.setState(state =>
          state.pendingStops.some(({ instanceId }) => instanceId === null)
            ? { ...state, request: { agentType } }
            : state
        )
        yield* quota.deleting(tenant, records.remove(entity, actor))
        entity.completeDeletion()
        secrets.forget(entity.key)
        // A session with pending stops is kept until they are done.
        const { instance, pendingStops } = entity.state
        if (instance === null && pendingStops.length === 0) {
          yield* entity.configuration.remove()
          cache.evict(entity)
          // Other nodes are told by any change of what is stored.
        } else if (events.isShared) yield* Effect.ignore(entity.confirm)
      }).pipe(
        Effect.onError(() => Effect.sync(() => entity.abortDeletion())),
        Effect.uninterruptible
      )

    /** It goes on when the caller is interrupted: one that cannot be would delay the gateway's shutdown. */
    const remove = (caller: Caller, sessionId: string) =>
      Effect.flatMap(cache.get(caller.tenant, sessionId), entity => {
        // Before the fiber runs, so that no activation begins meanwhile.
        entity.beginDeletion()
        return Effect.flatMap(Effect.forkIn(entity.use(removal(caller, entity)), shared.scope), Fiber.join)
      })

    const subscribeHere = (caller: Caller, sessionId: string, subscriber: Subscriber) =>
      withSession(caller, sessionId, entity =>
        Effect.gen(function* () {
          const found = yield* events.find(entity.key)
          yield* Effect.acquireRelease(
            Effect.sync(() => entity.subscribe(subscriber)),
            () => Effect.sync(() => entity.unsubscribe(subscriber))
          )
          // Subscribers are told of all later events. Earlier ones are read from the history.
          return yield* Effect.sync((): Subscription => {
            const { epoch, headSeq } = entity.journal.history()
            return {
              session: entity.view(),
              epoch,
              headSeq,
              trimmedSeq: Option.match(found, { onNone: () => headSeq, onSome: ({ trimmedSeq }) => trimmedSeq }),
              isElsewhere: false,
              publishedSeq: () => entity.journal.history().headSeq,
              read: HistoryPages.make(events, entity.key, { epoch, headSeq }, () => subscriber.onLost())
            }
          })
        })
      )

    const fromLog = yield* LogSubscriptions.make({ events, records, settings, run })

    const counted = Effect.acquireRelease(
      Effect.sync(() => subscriptions++),
      () => Effect.sync(() => subscriptions--)
    )

    const subscribe = (caller: Caller, sessionId: string, subscriber: Subscriber) =>
      Effect.zipLeft(
        Effect.catchTag(subscribeHere(caller, sessionId, subscriber), "SessionElsewhere", () =>
          fromLog.subscribe(caller, sessionId, subscriber)
        ),
        counted
      )

    const handover = Handover.make({ nodes, link, secrets, isClosing: () => isClosing })
    yield* SessionReaper.start(shared, cache, records, handover, () => {
      isClosing = true
    })

    return Sessions.of({
      create,
      list: ({ tenant }, page = {}) => lists.use(tenant, 1, () => list(tenant, page)),
      get: (caller, sessionId) => withSession(caller, sessionId, entity => Effect.sync(() => entity.view())),
      start,
      stop: (caller, sessionId) =>
        withSession(caller, sessionId, entity =>
          Effect.map(entity.lifecycle.stop("the session was stopped"), () => entity.view())
        ),
      remove,
      subscribe,
      send: (caller, sessionId, content, clientMessageId) =>
        withSession(caller, sessionId, ({ commands }) => commands.send(caller, content, clientMessageId)),
      interrupt: (caller, sessionId, turnId) =>
        withSession(caller, sessionId, ({ commands }) => commands.interrupt(turnId)),
      answer: (caller, sessionId, requestId, answer, clientMessageId) =>
        withSession(caller, sessionId, ({ commands }) => commands.answer(caller, requestId, answer, clientMessageId)),
      listFiles: (caller, sessionId, options) =>
        withInstance(caller, sessionId)(instanceId => platform.listFiles(instanceId, options)),
      readFile: (caller, { sessionId, path }) =>
        withInstance(caller, sessionId)(instanceId => platform.readFile(instanceId, path)),
      fileHistory: (caller, { sessionId, path }) =>
        withInstance(caller, sessionId)(instanceId => platform.fileHistory(instanceId, path)),
      fileAtIteration: (caller, { sessionId, path }, iteration) =>
        withInstance(caller, sessionId)(instanceId => platform.fileAtIteration(instanceId, path, iteration)),
      adopt: handover.adopt,
      subscriptions: () => subscriptions
    })
  })

export const layer = (settings: Settings) => Layer.scoped(Sessions, make(settings))

/** The number of subscriptions, for `/health`. */
export const layerSubscriptions: Layer.Layer<never, never, Sessions> = Layer.effect(
  Subscriptions,
  Effect.map(Sessions, sessions => ({ count: Effect.sync(() => sessions.subscriptions()) }))
)
