/**
 * Subscriptions to sessions of other nodes, whose events are read from the shared log.
 */
import { type Context, Duration, Effect, Option, type Scope } from "effect"
import type { StoreUnavailable } from "../../Kv/Store.ts"
import * as Supervision from "../../Supervision.ts"
import { NodeLink, type NodeLinkShape } from "../Forwarding/NodeLink.ts"
import type { SessionEvents } from "../SessionEvents.ts"
import { SessionNodes, type SessionNodesShape } from "../SessionNodes.ts"
import { type Caller, SessionNotFound, type Subscriber, type Subscription } from "../Sessions.ts"
import * as HistoryPages from "./HistoryPages.ts"
import { partsOf } from "./LaunchConfiguration.ts"
import { type FollowedSession, type Log, LogFollower } from "./LogFollower.ts"
import { isSessionId, keyOf, lossesOf, randomId, type SessionRecord, toView } from "./SessionRecord.ts"
import type { SessionRecords } from "./SessionRecords.ts"
import type { Settings } from "./Settings.ts"

/** Sessions whose events are read concurrently. */
const reads = 4

/** Number of uses of a session with subscribers on this node within its idle timeout, so that it is not stopped. */
const usesInIdleTime = 4
const longestUseInterval = Duration.minutes(5)

/** Concurrent uses of sessions on other nodes. */
const concurrentUses = 4

/** Where the events, records and settings of sessions come from. */
export interface Options {
  readonly events: Context.Tag.Service<SessionEvents>
  readonly records: Pick<SessionRecords, "find">
  readonly settings: Pick<Settings, "idleTimeout">
  /** Marks a session that is in this node's memory as used. */
  readonly touch: (key: string) => void
  /** Runs work in the background. */
  readonly run: (work: Effect.Effect<void>) => void
}

/** Subscriptions on this node to sessions of other nodes. */
export interface LogSubscriptions {
  /** A subscription ends with its scope. */
  readonly subscribe: (
    caller: Caller,
    sessionId: string,
    subscriber: Subscriber
  ) => Effect.Effect<Subscription, SessionNotFound | StoreUnavailable, Scope.Scope>
}

/** The followers of the sessions that have subscribers. */
class Followers {
  private readonly byKey = new Map<string, LogFollower>()
  private readonly occupancy = new Supervision.Occupancy()

  constructor(
    private readonly log: Log,
    private readonly nodes: Pick<SessionNodesShape, "watch">
  ) {}

  /** The follower of a session's history. */
  of(session: FollowedSession): LogFollower {
    const known = this.byKey.get(session.key)
    return known?.session.history.epoch === session.history.epoch ? known : this.start(session)
  }

  all(): ReadonlyArray<LogFollower> {
    return [...this.byKey.values()]
  }

  /** Waits until there is a follower. */
  get occupied(): Effect.Effect<void> {
    return this.occupancy.occupied
  }

  private start(session: FollowedSession): LogFollower {
    const { key } = session
    const follower: LogFollower = new LogFollower(session, this.log, () => {
      if (this.byKey.get(key) === follower) this.byKey.delete(key)
      unwatch()
      this.occupancy.set(this.byKey.size > 0)
    })
    const unwatch = this.nodes.watch(key, () => follower.wake())
    this.byKey.set(key, follower)
    this.occupancy.set(true)
    // Events that were appended since the history was read.
    follower.wake()
    return follower
  }
}

/**
 * Uses a session where it is, since its node would stop it as idle otherwise. That may be this node, if the session came
 * to it after the subscription.
 */
const useSession = (
  nodes: Pick<SessionNodesShape, "ownerOf">,
  link: Option.Option<NodeLinkShape>,
  touch: Options["touch"],
  { session: { id, key, tenant } }: LogFollower
): Effect.Effect<void> =>
  Effect.gen(function* () {
    const owner = yield* nodes.ownerOf(key)
    if (Option.isNone(owner)) return touch(key)
    const { address, node } = owner.value
    if (address === null || Option.isNone(link)) return
    const request = { type: "get_session", id: "use", sessionId: id } as const
    const commandId = yield* randomId
    yield* link.value.send({ address, node }, { node, tenant, actor: "gateway", commandId, request })
  }).pipe(Effect.ignore)

/**
 * Runs until the scope closes. Sessions with subscribers are used regularly, so that their nodes do not stop them as idle.
 * Those of other nodes are used by the link, if there is one.
 */
export const make = ({
  events,
  records,
  run,
  settings,
  touch
}: Options): Effect.Effect<LogSubscriptions, never, Scope.Scope> =>
  Effect.gen(function* () {
    const nodes = yield* SessionNodes
    const link = yield* NodeLink
    const reading = yield* Effect.makeSemaphore(reads)
    const followers = new Followers({ events, records, reading, run }, nodes)

    const viewOf = (key: string, record: SessionRecord) =>
      Effect.map(events.summaries([key]), ([summary]) => {
        const parts = summary ? partsOf(summary.hasEnvironment, summary.hasDeployment) : record.configured
        // The other node has its secrets.
        return toView(record, { secrets: [], configuration: lossesOf(record, {}, parts).configuration })
      })

    const subscribe: LogSubscriptions["subscribe"] = ({ tenant }, id, subscriber) =>
      Effect.gen(function* () {
        const missing = new SessionNotFound({ sessionId: id })
        if (!isSessionId(id)) return yield* missing
        const key = keyOf(tenant, id)
        const record = yield* records.find(tenant, id)
        if (Option.isNone(record)) return yield* missing
        const view = yield* viewOf(key, record.value)
        const found = yield* events.find(key)
        if (Option.isNone(found)) return yield* missing
        const history = found.value
        const follower = yield* Effect.acquireRelease(
          Effect.sync(() => {
            const follower = followers.of({ key, tenant, id, history })
            follower.add(subscriber)
            return follower
          }),
          follower => Effect.sync(() => follower.delete(subscriber))
        )
        const { epoch, headSeq, trimmedSeq } = history
        return {
          session: { ...view, epoch, headSeq },
          ...{ epoch, headSeq, trimmedSeq, isElsewhere: true },
          publishedSeq: () => follower.publishedSeq,
          read: HistoryPages.make(events, key, history, () => subscriber.onLost())
        }
      })

    const interval = Duration.min(Duration.times(settings.idleTimeout, 1 / usesInIdleTime), longestUseInterval)
    const useAll = Effect.suspend(() =>
      Effect.forEach(followers.all(), follower => useSession(nodes, link, touch, follower), {
        concurrency: concurrentUses,
        discard: true
      })
    )
    yield* Supervision.tickScoped("use of sessions with subscribers", interval, followers, useAll)
    return { subscribe }
  })
