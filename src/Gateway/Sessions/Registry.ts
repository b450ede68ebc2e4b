/**
 * The implementation of `Sessions`: sessions in memory over a store, a session database and the agent platform.
 */
import { Duration, Effect, Layer, Option, Runtime, Scope } from "effect"
import { Subscriptions } from "../../Health/Health.ts"
import { Store } from "../../Kv/Store.ts"
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
import { type Caller, Sessions, type StartSession, type Subscriber, type Subscription } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import * as HistoryPages from "./HistoryPages.ts"
import * as LogSubscriptions from "./LogSubscriptions.ts"
import { SecretPool } from "./SecretPool.ts"
import * as SessionCache from "./SessionCache.ts"
import type { Shared } from "./SessionCore.ts"
import * as SessionCreation from "./SessionCreation.ts"
import * as SessionReaper from "./SessionReaper.ts"
import * as Records from "./SessionRecords.ts"
import * as SessionRemoval from "./SessionRemoval.ts"
import * as SessionTransfer from "./SessionTransfer.ts"
import { backgroundCleanups, concurrentLists, concurrentListsOfOne, type Settings } from "./Settings.ts"
import * as TenantSessions from "./TenantSessions.ts"
import * as Titles from "./Titles.ts"

/** How long background work may take to end. */
const shutdownTimeout = Duration.seconds(1)

/** The scope of background work, which ends before what it depends on. After the timeout it is not awaited. */
const backgroundScope = Effect.acquireRelease(Scope.make(), (scope, exit) =>
  Supervision.within(shutdownTimeout, Scope.close(scope, exit))
)

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
    const link = yield* NodeLink
    /** Whether other nodes forward requests to this one, so that a session can stay where its secrets are. */
    const isReachable = Option.isSome(link)
    const secrets = new SecretPool(
      settings.secretBytes,
      key => cache.peek(key),
      isReachable ? nodes.tokenOf : () => undefined
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
      if (isReachable && secrets.has(key)) return
      // It starts at once. After a failure the session belongs to this node until the node stops.
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

    const create = yield* SessionCreation.make({ events, records, quota, secrets, limits, isReachable, scope })
    const remove = SessionRemoval.make({ cache, events, quota, records, secrets, scope })

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

    const subscribeHere = (caller: Caller, sessionId: string, subscriber: Subscriber) =>
      withSession(caller, sessionId, entity =>
        Effect.gen(function* () {
          const found = yield* events.find(entity.key)
          yield* Effect.acquireRelease(
            Effect.sync(() => entity.subscribe(subscriber)),
            () => Effect.sync(() => entity.unsubscribe(subscriber))
          )
          // Subscribers receive all later events. Earlier ones are read from the history.
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

    const transfer = SessionTransfer.make({ nodes, link, secrets, isClosing: () => isClosing })
    yield* SessionReaper.start(shared, cache, records, transfer, () => {
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
      adopt: transfer.adopt,
      subscriptions: () => subscriptions
    })
  })

export const layer = (settings: Settings) => Layer.scoped(Sessions, make(settings))

/** The number of subscriptions, for `/health`. */
export const layerSubscriptions: Layer.Layer<never, never, Sessions> = Layer.effect(
  Subscriptions,
  Effect.map(Sessions, sessions => ({ count: Effect.sync(() => sessions.subscriptions()) }))
)
