/**
 * The implementation of `Sessions`: sessions in memory over a store, a session database and the agent platform.
 */
import { type Context, Duration, Effect, Layer, Option, Runtime, Scope } from "effect"
import * as Limits from "../../base/Limits.ts"
import * as MetricTags from "../../base/MetricTags.ts"
import * as Monotonic from "../../base/Monotonic.ts"
import { Tracer } from "../../base/Observability/Tracer.ts"
import * as Supervision from "../../base/Supervision.ts"
import { Store } from "../../Kv/Store.ts"
import { Subscriptions } from "../../Operations/Health/Report.ts"
import { AgentPlatform } from "../../Upstream/AgentPlatform.ts"
import { Inference } from "../../Upstream/Inference.ts"
import { FairPool, sharedPool } from "../FairPool.ts"
import { NodeLink } from "../Forwarding/NodeLink.ts"
import type { Session } from "../Protocol/Fields.ts"
import { SessionEvents } from "../SessionEvents.ts"
import { SessionNodes } from "../SessionNodes.ts"
import { type ActivationError, type Caller, SessionNotFound, Sessions } from "../Sessions.ts"
import * as OrphanedSessions from "./Background/OrphanedSessions.ts"
import * as SessionReaper from "./Background/SessionReaper.ts"
import * as SessionTransfer from "./Background/SessionTransfer.ts"
import { makeCreate, makeRemove } from "./CreationAndRemoval.ts"
import * as LogSubscriptions from "./LogSubscriptions.ts"
import * as LargeEvents from "./Session/LargeEvents.ts"
import { SecretPool } from "./Session/SecretPool.ts"
import type { Shared } from "./Session/SessionCore.ts"
import { SessionRecords } from "./Session/SessionRecords.ts"
import * as Titles from "./Session/Titles.ts"
import { SessionCache } from "./SessionCache.ts"
import * as SessionSubscriptions from "./SessionSubscriptions.ts"
import { backgroundCleanups, concurrentLists, concurrentListsOfOne, type Settings } from "./Settings.ts"
import * as TenantSessions from "./TenantSessions.ts"

/** How long background work may take to end. */
const shutdownTimeout = Duration.seconds(1)

/** The scope of background work, which ends before what it depends on. After the timeout it is not awaited. */
const backgroundScope = Effect.acquireRelease(Scope.make(), (scope, exit) =>
  Supervision.within(shutdownTimeout, Scope.close(scope, exit))
)

type Service = Context.Tag.Service<Sessions>

/** What all sessions share. Background work ends with the scope. */
const makeShared = (settings: Settings, own: Pick<Shared, "records" | "secrets" | "isClosing">) =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const { currentTraceId } = yield* Tracer
    const generateTitle = yield* Titles.make(yield* Inference)
    const scope = yield* backgroundScope
    const fork = Runtime.runFork(yield* Effect.runtime<never>())
    const shared: Shared = {
      ...own,
      settings,
      platform: yield* AgentPlatform,
      events: yield* SessionEvents,
      scope,
      run: work => void fork(work, { scope }),
      // A clock may have fractions of a millisecond.
      now: () => Math.trunc(clock.unsafeCurrentTimeMillis()),
      monotonic: () => Monotonic.unsafeMillis(clock),
      generateTitle,
      cleanups: sharedPool("capacity for stops", backgroundCleanups, Number.POSITIVE_INFINITY),
      activations: sharedPool("activations", settings.activations),
      pacedFor: LargeEvents.make(),
      traceId: currentTraceId,
      malformedTypes: new Set(),
      tags: yield* MetricTags.current
    }
    return shared
  })

/** How long a request for a session waits for the check of its history. */
const checkTimeout = Duration.millis(500)

/** Calls that read, start and stop a session. */
const lifecycleCalls = (
  cache: Pick<SessionCache, "use">,
  events: Context.Tag.Service<SessionEvents>
): Pick<Service, "get" | "start" | "stop"> => ({
  get: (caller, sessionId) =>
    cache.use(caller, sessionId, entity => {
      if (caller.hasSubscribers === true) entity.follow()
      const view = Effect.suspend(
        (): Effect.Effect<Session, SessionNotFound> =>
          entity.isDeleted ? new SessionNotFound({ sessionId }) : Effect.succeed(entity.view())
      )
      if (!events.isShared) return view
      // Another node may ask because its client has seen more than is stored.
      const check = Supervision.within(checkTimeout, SessionSubscriptions.findHistory(events, entity))
      return Effect.zipRight(
        Effect.catchTag(check, "StoreUnavailable", () => Effect.void),
        view
      )
    }),
  start: (caller, sessionId, given = {}) =>
    cache.use(caller, sessionId, entity =>
      Effect.gen(function* () {
        if (given.secrets !== undefined || given.environment !== undefined || given.deployment !== undefined) {
          yield* entity.configuration.give(given)
        }
        yield* entity.lifecycle.activate()
        return entity.view()
      })
    ),
  stop: (caller, sessionId) =>
    cache.use(caller, sessionId, entity =>
      Effect.map(entity.lifecycle.stop("the session was stopped"), () => entity.view())
    )
})

/** Calls for the turns of a session. */
const turnCalls = (cache: Pick<SessionCache, "use">): Pick<Service, "send" | "interrupt" | "answer"> => ({
  send: (caller, sessionId, content, clientMessageId) =>
    cache.use(caller, sessionId, ({ commands }) => commands.send(caller, content, clientMessageId)),
  interrupt: (caller, sessionId, turnId) => cache.use(caller, sessionId, ({ commands }) => commands.interrupt(turnId)),
  answer: (caller, sessionId, requestId, answer, clientMessageId) =>
    cache.use(caller, sessionId, ({ commands }) => commands.answer(caller, requestId, answer, clientMessageId))
})

/** Calls for the files of a session's instance, which is started if necessary. */
const fileCalls = (
  cache: Pick<SessionCache, "use">,
  platform: Context.Tag.Service<AgentPlatform>
): Pick<Service, "listFiles" | "readFile" | "fileHistory" | "fileAtIteration"> => {
  const withInstance = <A, E>(
    caller: Caller,
    sessionId: string,
    f: (instanceId: string) => Effect.Effect<A, E>
  ): Effect.Effect<A, E | ActivationError> =>
    cache.use(caller, sessionId, ({ lifecycle }) =>
      Effect.flatMap(lifecycle.activate(), ({ instanceId }) => f(instanceId))
    )
  return {
    listFiles: (caller, sessionId, options) =>
      withInstance(caller, sessionId, instanceId => platform.listFiles(instanceId, options)),
    readFile: (caller, { sessionId, path }) =>
      withInstance(caller, sessionId, instanceId => platform.readFile(instanceId, path)),
    fileHistory: (caller, { sessionId, path }) =>
      withInstance(caller, sessionId, instanceId => platform.fileHistory(instanceId, path)),
    fileAtIteration: (caller, { sessionId, path }, iteration) =>
      withInstance(caller, sessionId, instanceId => platform.fileAtIteration(instanceId, path, iteration))
  }
}

const make = (settings: Settings) =>
  Effect.gen(function* () {
    const store = yield* Store
    const events = yield* SessionEvents
    const limits = yield* Limits.Limits
    const nodes = yield* SessionNodes
    const link = yield* NodeLink
    const records = yield* SessionRecords.make(store, events.isShared)
    /** Whether other nodes forward requests to this one, so that a session can stay where its secrets are. */
    const isReachable = Option.isSome(link)
    const secrets = new SecretPool(
      settings.secretBytes,
      key => cache.peek(key),
      isReachable ? nodes.tokenOf : () => undefined
    )
    let isShuttingDown = false
    const isClosing = () => isShuttingDown

    const shared = yield* makeShared(settings, { records, secrets, isClosing })
    const { monotonic, platform, run, scope } = shared
    const cache: SessionCache = new SessionCache(shared, records, nodes, key => {
      if (isReachable && secrets.has(key)) return
      // It starts at once. After a failure the session belongs to this node until the node stops.
      run(Effect.ignore(events.release(key)))
    })
    const quota = TenantSessions.makeQuota(store, settings.perTenant, monotonic)
    const parts = { cache, events, records, quota, secrets, limits, isReachable, scope }
    const lists = new FairPool({
      name: "capacity for lists",
      capacity: concurrentLists,
      maxOfOne: concurrentListsOfOne
    })
    const list = TenantSessions.makeList({ store, events, nodes, cache, secrets })
    const follow = (key: string): void => cache.peek(key)?.follow()
    const fromLog = yield* LogSubscriptions.make({ events, records, settings, run, follow })
    const { count, subscribe } = SessionSubscriptions.make({ cache, events, fromLog })
    yield* Scope.extend(OrphanedSessions.start({ events, store, cache }), scope)
    const transfer = SessionTransfer.make({ nodes, link, secrets, isClosing })
    const remove = makeRemove(parts)
    yield* SessionReaper.start(shared, cache, records, transfer, remove, () => {
      isShuttingDown = true
    })

    return Sessions.of({
      create: makeCreate(parts),
      list: ({ tenant }, page = {}) => lists.use(tenant, 1, () => list(tenant, page)),
      remove,
      subscribe,
      ...lifecycleCalls(cache, events),
      ...turnCalls(cache),
      ...fileCalls(cache, platform),
      adopt: transfer.adopt,
      subscriptions: count
    })
  })

/** Sessions with the given limits. At the end of the scope all instances are stopped. */
export const layer = (settings: Settings) => Layer.scoped(Sessions, make(settings))

/** The number of subscriptions, for `/health`. */
export const layerSubscriptions: Layer.Layer<never, never, Sessions> = Layer.effect(
  Subscriptions,
  Effect.map(Sessions, sessions => ({ count: Effect.sync(() => sessions.subscriptions()) }))
)
