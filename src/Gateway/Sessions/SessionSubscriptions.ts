/**
 * Subscriptions to sessions: to one in memory, or to the log of one that belongs to another node.
 */
import { Cause, type Context, Effect, Option, type Scope } from "effect"
import * as Supervision from "../../base/Supervision.ts"
import type { StoreUnavailable } from "../../Kv/Store.ts"
import { NodeLink, type NodeLinkShape } from "../Forwarding/NodeLink.ts"
import { type History, SessionElsewhere, type SessionEvents, type SessionUnreadable } from "../SessionEvents.ts"
import { SessionNodes, type SessionNodesShape } from "../SessionNodes.ts"
import { type Caller, type LookupError, SessionNotFound, type Subscriber, type Subscription } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import { viewOfStored } from "./Instance/LaunchConfiguration.ts"
import { isSessionId, keyOf, randomId, type SessionRecords } from "./Session/SessionRecords.ts"
import { pagesOf, Subscribers, toFrames } from "./Session/Subscribers.ts"
import type { SessionCache } from "./SessionCache.ts"
import { type Settings, subscriberInterval } from "./Settings.ts"

/**
 * Finds the history of a session in memory. A stored history that is behind the memory has lost its end, as by a
 * fail-over of the database; the session then continues with what is stored.
 */
export const findHistory = (
  events: Pick<Context.Tag.Service<SessionEvents>, "find">,
  entity: Entity
): Effect.Effect<Option.Option<History>, SessionElsewhere | StoreUnavailable> =>
  Effect.gen(function* () {
    // The store may be ahead of the memory, and not the reverse.
    const { epoch, headSeq } = entity.journal.history()
    const found = yield* events.find(entity.key)
    const isWhole = Option.exists(found, stored => stored.epoch === epoch && stored.headSeq >= headSeq)
    if (isWhole || entity.isDeleting) return found
    if (entity.journal.history().epoch === epoch) {
      entity.journal.lose()
      yield* entity.lifecycle.replaceLost()
      if (entity.isGivenUp) return yield* new SessionElsewhere({ session: entity.key })
    }
    return yield* events.find(entity.key)
  })

const subscribeTo = (
  events: Pick<Context.Tag.Service<SessionEvents>, "find" | "read">,
  entity: Entity,
  subscriber: Subscriber
) =>
  Effect.gen(function* () {
    const found = yield* findHistory(events, entity)
    yield* Supervision.untilClosed(
      Effect.suspend((): Effect.Effect<void, SessionElsewhere | SessionNotFound> => {
        // Since the history was read.
        if (entity.isDeleted) return new SessionNotFound({ sessionId: entity.record.id })
        if (entity.isGivenUp) return new SessionElsewhere({ session: entity.key })
        entity.subscribe(subscriber)
        return Effect.void
      }),
      () => entity.unsubscribe(subscriber)
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
        read: pagesOf(events, entity.key, { epoch, headSeq }, () => subscriber.onLost())
      }
    })
  })

/** Maximum number of events in one read. */
const pageEvents = 256

/** The delay before a session that could not be read is read again. */
const retryPause = "500 millis"

/** What all followers share. */
interface Log {
  readonly events: Pick<Context.Tag.Service<SessionEvents>, "read">
  readonly records: Pick<SessionRecords, "find">
  /** Limits the sessions that are read concurrently. */
  readonly reading: Effect.Semaphore
  /** Runs work in the background. */
  readonly run: (work: Effect.Effect<void>) => void
}

/** A session that is followed. */
interface FollowedSession {
  /** `<tenant>/<id>`. */
  readonly key: string
  readonly tenant: string
  readonly id: string
  /** The history at the time of the first subscription. */
  readonly history: History
}

const logDefect = (session: string, message: string, defect: unknown): Effect.Effect<void> =>
  Effect.annotateLogs(Effect.logError(message, Cause.die(defect)), { session })

/**
 * Reads the new events of one session from the log, and publishes them to its subscribers on this node. It ends with the
 * last of them, or if the session was deleted or its history was lost.
 */
class LogFollower {
  /** The newest `seq` that was passed to subscribers. */
  publishedSeq: number
  private isReading = false
  private isWoken = false
  private readonly subscribers = new Subscribers(defect =>
    this.log.run(logDefect(this.session.key, "A subscriber of a session failed", defect))
  )

  constructor(
    readonly session: FollowedSession,
    private readonly log: Log,
    /** Called when it has ended, before subscribers are notified. It may be called again. */
    private readonly onEnd: () => void
  ) {
    this.publishedSeq = session.history.headSeq
  }

  add(subscriber: Subscriber): void {
    this.subscribers.add(subscriber)
  }

  delete(subscriber: Subscriber): void {
    this.subscribers.delete(subscriber)
    if (this.subscribers.size === 0) this.onEnd()
  }

  /** Reads in the background, because there may be new events. */
  wake(): void {
    this.isWoken = true
    if (this.isReading) return
    this.isReading = true
    this.log.run(this.readWhileWoken())
  }

  private readWhileWoken(): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.isWoken = false
      return this.read()
    }).pipe(
      this.log.reading.withPermits(1),
      Effect.catchAll(() => {
        this.isWoken = true
        return Effect.sleep(retryPause)
      }),
      Effect.zipRight(
        Effect.suspend(() => {
          if (this.isWoken && this.subscribers.size > 0) return this.readWhileWoken()
          this.isReading = false
          return Effect.void
        })
      ),
      // Subscribers start again with a new follower.
      Effect.catchAllDefect(defect => {
        this.end(subscriber => subscriber.onLost())
        return logDefect(this.session.key, "The events of a session of another node cannot be read", defect)
      })
    )
  }

  /** Reads and publishes the next page. */
  private read(): Effect.Effect<void, SessionUnreadable | StoreUnavailable> {
    const { history, key } = this.session
    return Effect.flatMap(this.log.events.read(key, this.publishedSeq, pageEvents), found => {
      if (Option.isNone(found)) return this.endIfGone(true)
      const { epoch, headSeq } = found.value.history
      // Events that were read no longer exist, for example after a fail-over of the database.
      const isCut = headSeq < this.publishedSeq
      if (isCut || epoch !== history.epoch) return this.endIfGone(true)
      const frames = toFrames(found.value.events)
      if (frames.length === 0) return this.endIfGone(false)
      this.publishedSeq = frames.at(-1)!.seq
      this.subscribers.publish(frames)
      if (this.publishedSeq < headSeq) this.isWoken = true
      return Effect.void
    })
  }

  /** Ends the subscriptions if the session was deleted or its history was lost. */
  private endIfGone(isLost: boolean): Effect.Effect<void, StoreUnavailable> {
    return Effect.map(this.log.records.find(this.session.tenant, this.session.id), record => {
      if (Option.isNone(record)) this.end(subscriber => subscriber.onDeleted())
      else if (isLost) this.end(subscriber => subscriber.onLost())
    })
  }

  private end(notify: (subscriber: Subscriber) => void): void {
    this.onEnd()
    this.subscribers.end(notify)
  }
}

/** Sessions whose events are read concurrently. */
const reads = 4

/** Owners of sessions that are notified of subscribers concurrently. */
const concurrentCalls = 4

/** Where sessions, their events and their records come from. */
interface Options {
  readonly cache: Pick<SessionCache, "peek" | "use">
  readonly events: Context.Tag.Service<SessionEvents>
  readonly records: Pick<SessionRecords, "find">
  readonly settings: Pick<Settings, "idleTimeout">
  /** Runs work in the background. */
  readonly run: (work: Effect.Effect<void>) => void
}

/** The followers of the sessions that have subscribers. */
class Followers {
  private readonly byKey = new Map<string, LogFollower>()
  private readonly occupancy = new Supervision.Occupancy()
  /** Waits until there is a follower. */
  readonly occupied = this.occupancy.occupied

  constructor(
    private readonly log: Log,
    private readonly nodes: Pick<SessionNodesShape, "watch">,
    private readonly onStart: (follower: LogFollower) => void
  ) {}

  all(): ReadonlyArray<LogFollower> {
    return [...this.byKey.values()]
  }

  has(follower: LogFollower): boolean {
    return this.byKey.get(follower.session.key) === follower
  }

  /** The follower of a session's history. */
  of(session: FollowedSession): LogFollower {
    const { key } = session
    const known = this.byKey.get(key)
    if (known?.session.history.epoch === session.history.epoch) return known
    const follower: LogFollower = new LogFollower(session, this.log, () => {
      if (this.has(follower)) this.byKey.delete(key)
      unwatch()
      this.occupancy.set(this.byKey.size > 0)
    })
    const unwatch = this.nodes.watch(key, () => follower.wake())
    this.byKey.set(key, follower)
    this.occupancy.set(true)
    this.onStart(follower)
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
  cache: Options["cache"],
  { session: { id, key, tenant } }: LogFollower
): Effect.Effect<void> =>
  Effect.gen(function* () {
    const owner = yield* nodes.ownerOf(key)
    if (Option.isNone(owner)) return cache.peek(key)?.follow()
    const { address, node } = owner.value
    if (address === null || Option.isNone(link)) return
    const request = { type: "get_session", id: "follow", sessionId: id } as const
    const caller = { tenant, actor: "gateway", commandId: yield* randomId, hasSubscribers: true }
    yield* link.value.send({ address, node }, { node, ...caller, request })
  }).pipe(Effect.ignore)

/**
 * Subscribes to logs until the scope closes. The owner of a session with subscribers is notified at the first subscription
 * and then regularly, by the link if there is one.
 */
const makeFromLog = ({ cache, events, records, run, settings }: Options) =>
  Effect.gen(function* () {
    const nodes = yield* SessionNodes
    const link = yield* NodeLink
    const reading = yield* Effect.makeSemaphore(reads)
    const calling = yield* Effect.makeSemaphore(concurrentCalls)
    const followers: Followers = new Followers({ events, records, reading, run }, nodes, follower =>
      run(notify(follower))
    )
    const notify = (follower: LogFollower) =>
      calling.withPermits(1)(
        Effect.suspend(() => (followers.has(follower) ? notifyOwner(nodes, link, cache, follower) : Effect.void))
      )
    const notifyAll = Effect.suspend(() =>
      Effect.forEach(followers.all(), notify, { concurrency: concurrentCalls, discard: true })
    )
    yield* Supervision.tickScoped("notification of subscribers", subscriberInterval(settings), followers, notifyAll)

    return ({ tenant }: Caller, id: string, subscriber: Subscriber) =>
      Effect.gen(function* () {
        const missing = new SessionNotFound({ sessionId: id })
        if (!isSessionId(id)) return yield* missing
        const key = keyOf(tenant, id)
        const record = yield* records.find(tenant, id)
        if (Option.isNone(record)) return yield* missing
        const [summary] = yield* events.summaries([key])
        const found = yield* events.find(key)
        if (Option.isNone(found)) return yield* missing
        const history = found.value
        const follower = yield* Supervision.untilClosed(
          Effect.sync(() => {
            const follower = followers.of({ key, tenant, id, history })
            follower.add(subscriber)
            return follower
          }),
          follower => follower.delete(subscriber)
        )
        const { epoch, headSeq, trimmedSeq } = history
        return {
          session: { ...viewOfStored(record.value, summary), epoch, headSeq },
          ...{ epoch, headSeq, trimmedSeq, isElsewhere: true },
          publishedSeq: () => follower.publishedSeq,
          read: pagesOf(events, key, history, () => subscriber.onLost())
        } satisfies Subscription
      })
  })

/** `Sessions.subscribe`, and the number of subscriptions. */
export const make = (options: Options) =>
  Effect.map(makeFromLog(options), fromLog => {
    const { cache, events } = options
    let subscriptions = 0
    const counted = Supervision.untilClosed(
      Effect.sync(() => subscriptions++),
      () => subscriptions--
    )
    const subscribe = (
      caller: Caller,
      sessionId: string,
      subscriber: Subscriber
    ): Effect.Effect<Subscription, LookupError, Scope.Scope> =>
      cache
        .use(caller, sessionId, entity => subscribeTo(events, entity, subscriber))
        .pipe(
          Effect.catchTag("SessionElsewhere", () => fromLog(caller, sessionId, subscriber)),
          Effect.zipLeft(counted)
        )
    return { subscribe, count: () => subscriptions }
  })
