/**
 * The implementation of `Sessions`: sessions in memory over a store, a session database and the agent platform.
 */

import { type Context, Duration, Effect, Fiber, Layer, Option, Scope } from "effect"
import * as Limits from "../../base/Limits.ts"
import * as Supervision from "../../base/Supervision.ts"
import { Store } from "../../Kv/Store.ts"
import { Subscriptions } from "../../Operations/Health/Report.ts"
import type { AgentPlatform } from "../../Upstream/AgentPlatform.ts"
import { Inference } from "../../Upstream/Inference.ts"
import { FairPool } from "../FairPool.ts"
import { NodeLink } from "../Forwarding/NodeLink.ts"
import type { Session } from "../Protocol/Fields.ts"
import { SessionEvents } from "../SessionEvents.ts"
import { SessionNodes } from "../SessionNodes.ts"
import { type Caller, SessionNotFound, Sessions } from "../Sessions.ts"
import * as OrphanedSessions from "./Background/OrphanedSessions.ts"
import * as SessionReaper from "./Background/SessionReaper.ts"
import { SessionTransfer } from "./Background/SessionTransfer.ts"
import * as Creation from "./Creation.ts"
import type { Entity } from "./Entity.ts"
import * as MissingHistories from "./MissingHistories.ts"
import { SecretPool } from "./Session/SecretPool.ts"
import { makeShared } from "./Session/SessionCore.ts"
import * as Records from "./Session/SessionRecords.ts"
import * as Titles from "./Session/Titles.ts"
import { SessionCache } from "./SessionCache.ts"
import * as SessionSubscriptions from "./SessionSubscriptions.ts"
import { concurrentLists, concurrentListsOfOne, type Settings } from "./Settings.ts"
import * as TenantSessions from "./TenantSessions.ts"

type Service = Context.Tag.Service<Sessions>

/** Where the parts of a session are stored. */
interface Parts extends Pick<Creation.Parts, "events" | "quota" | "secrets" | "scope"> {
  readonly cache: Pick<SessionCache, "get" | "evict">
  readonly records: Pick<Records.SessionRecords, "remove">
}

/**
 * `Sessions.remove`: the instance is stopped, the record is removed, and what is stored of the session follows once
 * nothing of it is left to stop.
 */
const makeRemove = ({ cache, events, quota, records, scope, secrets }: Parts): Service["remove"] => {
  const removal = ({ tenant, actor }: Caller, entity: Entity) =>
    Effect.gen(function* () {
      yield* entity.lifecycle.stop("the session was deleted")
      // A creation of unknown outcome can be repeated only with what the record has.
      const { agentType } = entity.record
      yield* entity.setState(state =>
        state.pendingStops.some(({ instanceId }) => instanceId === null) ? { ...state, request: { agentType } } : state
      )
      yield* quota.deleting(tenant, records.remove(entity, actor))
      entity.completeDeletion()
      secrets.forget(entity.key)
      // A session with pending stops is kept until they are done.
      const { instance, pendingStops } = entity.state
      if (instance === null && pendingStops.length === 0) {
        yield* entity.configuration.remove()
        cache.evict(entity)
        // Any change of what is stored notifies the other nodes.
      } else if (events.isShared) yield* Effect.ignore(entity.confirm)
    }).pipe(
      Effect.onError(() => Effect.sync(() => entity.abortDeletion())),
      Effect.uninterruptible
    )

  // It runs in its own fiber: a caller that cannot be interrupted would delay the gateway's shutdown.
  return (caller, sessionId) =>
    Effect.flatMap(cache.get(caller.tenant, sessionId), entity => {
      // Before the fiber runs, so that no activation starts in the meantime.
      entity.beginDeletion()
      return Effect.flatMap(Effect.forkIn(entity.use(removal(caller, entity)), scope), Fiber.join)
    })
}

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
      if (caller.resumes === true) entity.resumes++
      const view = Effect.suspend(
        (): Effect.Effect<Session, SessionNotFound> =>
          entity.isDeleted ? new SessionNotFound({ sessionId }) : Effect.succeed(entity.view())
      )
      const waited = caller.awaitsMessages === true ? entity.commands.settled(caller.run) : Effect.void
      if (!events.isShared) return Effect.zipRight(waited, view)
      // Another node may ask because its client has seen more than is stored.
      const check = Supervision.within(checkTimeout, SessionSubscriptions.findHistory(events, entity))
      return Effect.zipRight(
        Effect.zipRight(
          waited,
          Effect.catchTag(check, "StoreUnavailable", () => Effect.void)
        ),
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

/** How long the interruption of a turn waits for a caller that resumes. */
const resumeTime = Duration.seconds(1)

/** Calls for the turns of a session. */
const turnCalls = (cache: Pick<SessionCache, "use">): Pick<Service, "send" | "interrupt" | "answer"> => ({
  send: (caller, sessionId, content, clientMessageId) =>
    cache.use(caller, sessionId, ({ commands }) => commands.send(caller, content, clientMessageId)),
  interrupt: (caller, sessionId, turnId) =>
    cache.use(caller, sessionId, entity => {
      const interrupted = entity.commands.interrupt(caller, turnId)
      if (caller.unlessResumed !== true) return interrupted
      const { resumes } = entity
      const unlessResumed = Effect.suspend(() =>
        entity.resumes === resumes ? interrupted : Effect.succeed(turnId ?? "")
      )
      return Effect.delay(unlessResumed, resumeTime)
    }),
  answer: (caller, sessionId, requestId, answer, clientMessageId) =>
    cache.use(caller, sessionId, ({ commands }) => commands.answer(caller, requestId, answer, clientMessageId))
})

/** Calls for the files of a session's instance, which is started if necessary. */
const fileCalls = (
  cache: Pick<SessionCache, "use">,
  platform: Context.Tag.Service<AgentPlatform>
): Pick<Service, "listFiles" | "readFile" | "fileHistory" | "fileAtIteration"> => {
  const withInstance = <A, E>(caller: Caller, sessionId: string, f: (instanceId: string) => Effect.Effect<A, E>) =>
    cache.use(caller, sessionId, ({ lifecycle }) =>
      Effect.flatMap(lifecycle.activate(), ({ instanceId }) => f(instanceId))
    )
  return {
    listFiles: (caller, sessionId, options) => withInstance(caller, sessionId, id => platform.listFiles(id, options)),
    readFile: (caller, { sessionId, path }) => withInstance(caller, sessionId, id => platform.readFile(id, path)),
    fileHistory: (caller, { sessionId, path }) => withInstance(caller, sessionId, id => platform.fileHistory(id, path)),
    fileAtIteration: (caller, { sessionId, path }, iteration) =>
      withInstance(caller, sessionId, id => platform.fileAtIteration(id, path, iteration))
  }
}

const make = (settings: Settings) =>
  Effect.gen(function* () {
    const store = yield* Store
    const events = yield* SessionEvents
    const limits = yield* Limits.Limits
    const nodes = yield* SessionNodes
    const link = yield* NodeLink
    const records = yield* Records.SessionRecords.make(store, events.isShared)
    /** Whether other nodes forward requests to this one, so that a session can stay where its secrets are. */
    const isReachable = Option.isSome(link)
    const secrets = new SecretPool(
      settings.secretBytes,
      key => cache.peek(key),
      isReachable ? nodes.tokenOf : () => undefined
    )
    let isShuttingDown = false
    const isClosing = () => isShuttingDown

    const generateTitle = yield* Titles.make(yield* Inference)
    const shared = yield* makeShared({ settings, records, secrets, isClosing, generateTitle })
    const { monotonic, platform, run, scope } = shared
    const cache: SessionCache = new SessionCache(shared, records, nodes, key => {
      if (isReachable && secrets.has(key)) return
      // It starts at once. After a failure the session belongs to this node until the node stops.
      run(Effect.ignore(events.release(key)))
    })
    const quota = new TenantSessions.Quota(store, settings.perTenant, monotonic)
    const parts = { cache, events, records, quota, secrets, limits, isReachable, scope }
    const lists = new FairPool({
      name: "capacity for lists",
      capacity: concurrentLists,
      maxOfOne: concurrentListsOfOne
    })
    const createMissing = MissingHistories.make({ store, events, records })
    const list = TenantSessions.makeList({ store, events, nodes, cache, secrets, createMissing })
    const { count, subscribe } = yield* SessionSubscriptions.make({ cache, events, records, settings, run })
    yield* Scope.extend(OrphanedSessions.start({ events, records, cache }), scope)
    const transfer = new SessionTransfer({ nodes, link, secrets, isClosing })
    const remove = makeRemove(parts)
    yield* SessionReaper.start(shared, cache, records, transfer, remove, () => {
      isShuttingDown = true
    })

    return Sessions.of({
      create: Creation.make(parts),
      list: ({ tenant }, page = {}) => lists.use(tenant, 1, () => list(tenant, page)),
      remove,
      subscribe,
      ...lifecycleCalls(cache, events),
      ...turnCalls(cache),
      ...fileCalls(cache, platform),
      adopt: transferred => transfer.adopt(transferred),
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
