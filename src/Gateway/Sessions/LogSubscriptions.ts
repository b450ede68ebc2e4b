/**
 * Subscriptions to sessions of other nodes, whose events are read from the shared log.
 */
import { type Context, Effect, Option, type Scope } from "effect"
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
import { type Settings, subscriberInterval } from "./Settings.ts"

/** Sessions whose events are read concurrently. */
const reads = 4

/** Owners of sessions that are notified of subscribers concurrently. */
const concurrentCalls = 4

/** Where the events, records and settings of sessions come from. */
export interface Options {
  readonly events: Context.Tag.Service<SessionEvents>
  readonly records: Pick<SessionRecords, "find">
  readonly settings: Pick<Settings, "idleTimeout">
  /** Marks a session that is in this node's memory as one with subscribers. */
  readonly follow: (key: string) => void
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
  private readonly started = new Set<LogFollower>()
  private readonly starts = new Supervision.Occupancy()

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

  /** Waits until there is a follower that {@link takeStarted} has not returned. */
  get anyStarted(): Effect.Effect<void> {
    return this.starts.occupied
  }

  /** The followers that have started since the last call. */
  takeStarted(): ReadonlyArray<LogFollower> {
    const started = [...this.started]
    this.started.clear()
    this.starts.set(false)
    return started
  }

  private start(session: FollowedSession): LogFollower {
    const { key } = session
    const follower: LogFollower = new LogFollower(session, this.log, () => {
      if (this.byKey.get(key) === follower) this.byKey.delete(key)
      unwatch()
      this.started.delete(follower)
      this.occupancy.set(this.byKey.size > 0)
    })
    const unwatch = this.nodes.watch(key, () => follower.wake())
    this.byKey.set(key, follower)
    this.occupancy.set(true)
    this.started.add(follower)
    this.starts.set(true)
    // Events that were appended since the history was read.
    follower.wake()
    return follower
  }
}

/**
 * Notifies the owner of a session that has subscribers here, so that it does not stop the session. The owner may be this
 * node, if the session came to it after the subscription.
 */
const notifyOwner = (
  nodes: Pick<SessionNodesShape, "ownerOf">,
  link: Option.Option<NodeLinkShape>,
  follow: Options["follow"],
  { session: { id, key, tenant } }: LogFollower
): Effect.Effect<void> =>
  Effect.gen(function* () {
    const owner = yield* nodes.ownerOf(key)
    if (Option.isNone(owner)) return follow(key)
    const { address, node } = owner.value
    if (address === null || Option.isNone(link)) return
    const request = { type: "get_session", id: "follow", sessionId: id } as const
    const caller = { tenant, actor: "gateway", commandId: yield* randomId, hasSubscribers: true }
    yield* link.value.send({ address, node }, { node, ...caller, request })
  }).pipe(Effect.ignore)

/**
 * Runs until the scope closes. The owner of a session with subscribers is notified at the first subscription and then
 * regularly, by the link if there is one.
 */
export const make = ({
  events,
  follow,
  records,
  run,
  settings
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

    const notify = (some: ReadonlyArray<LogFollower>) =>
      Effect.forEach(some, follower => notifyOwner(nodes, link, follow, follower), {
        concurrency: concurrentCalls,
        discard: true
      })
    const notifyAll = Effect.suspend(() => notify(followers.all()))
    const notifyStarted = Effect.suspend(() => notify(followers.takeStarted()))
    yield* Supervision.tickScoped("notification of subscribers", subscriberInterval(settings), followers, notifyAll)
    yield* Supervision.tickScoped(
      "notification of new subscribers",
      0,
      { occupied: followers.anyStarted },
      notifyStarted
    )
    return { subscribe }
  })
