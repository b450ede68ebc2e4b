/**
 * Subscriptions to sessions of other nodes, whose events are read from the shared log.
 */
import { Cause, type Context, Duration, Effect, Option, type Scope } from "effect"
import type { StoreUnavailable } from "../../Kv/Store.ts"
import * as Supervision from "../../Supervision.ts"
import { NodeLink } from "../Forwarding/NodeLink.ts"
import type { History, SessionEvents } from "../SessionEvents.ts"
import { SessionNodes } from "../SessionNodes.ts"
import { type Caller, SessionNotFound, type Subscriber, type Subscription } from "../Sessions.ts"
import * as HistoryPages from "./HistoryPages.ts"
import { toFrames } from "./Journal.ts"
import { partsOf } from "./LaunchConfiguration.ts"
import { isSessionId, keyOf, lossesOf, randomId, type SessionRecord, toView } from "./SessionRecord.ts"
import type { SessionRecords } from "./SessionRecords.ts"
import type { Settings } from "./Settings.ts"
import { Subscribers } from "./Subscribers.ts"

/** Maximum number of events in one read. */
const pageEvents = 256

/** Sessions whose events are read concurrently. */
const reads = 4

/** The delay before a session that could not be read is read again. */
const retryPause = "500 millis"

/** Number of uses of a session with subscribers on this node within its idle timeout, so that it is not stopped. */
const usesInIdleTime = 4
const longestUseInterval = Duration.minutes(5)

/** Concurrent uses of sessions on other nodes. */
const concurrentUses = 4

/** One session, and its subscribers on this node. */
class Follower {
  /** The newest `seq` that was passed to subscribers. */
  publishedSeq: number
  isReading = false
  isWoken = false

  constructor(
    readonly key: string,
    readonly tenant: string,
    readonly id: string,
    readonly history: History,
    readonly subscribers: Subscribers,
    readonly unwatch: () => void
  ) {
    this.publishedSeq = history.headSeq
  }
}

const logDefect = (session: string, message: string, defect: unknown): Effect.Effect<void> =>
  Effect.annotateLogs(Effect.logError(message, Cause.die(defect)), { session })

export interface Options {
  readonly events: Context.Tag.Service<SessionEvents>
  readonly records: Pick<SessionRecords, "find">
  readonly settings: Pick<Settings, "idleTimeout">
  readonly run: (work: Effect.Effect<void>) => void
}

export interface LogSubscriptions {
  /** A subscription ends with its scope. */
  readonly subscribe: (
    caller: Caller,
    sessionId: string,
    subscriber: Subscriber
  ) => Effect.Effect<Subscription, SessionNotFound | StoreUnavailable, Scope.Scope>
}

export const make = ({
  events,
  records,
  run,
  settings
}: Options): Effect.Effect<LogSubscriptions, never, Scope.Scope> =>
  Effect.gen(function* () {
    const nodes = yield* SessionNodes
    const link = yield* NodeLink
    const followers = new Map<string, Follower>()
    const occupancy = new Supervision.Occupancy()
    const reading = Effect.unsafeMakeSemaphore(reads)

    /** Ends all subscriptions to a session. */
    const end = (follower: Follower, notify: (subscriber: Subscriber) => void): void => {
      drop(follower)
      follower.subscribers.end(notify)
    }

    const drop = (follower: Follower): void => {
      if (followers.get(follower.key) === follower) followers.delete(follower.key)
      follower.unwatch()
      occupancy.set(followers.size > 0)
    }

    const publish = (follower: Follower, page: ReturnType<typeof toFrames>): void => {
      follower.publishedSeq = page.at(-1)!.seq
      follower.subscribers.publish(page)
    }

    /** Ends the subscriptions if the session was deleted or its history was lost. */
    const endIfGone = (follower: Follower, isLost: boolean) =>
      Effect.map(records.find(follower.tenant, follower.id), record => {
        if (Option.isNone(record)) end(follower, subscriber => subscriber.onDeleted())
        else if (isLost) end(follower, subscriber => subscriber.onLost())
      })

    /** Reads the new events of a session. */
    const read = (follower: Follower): Effect.Effect<void> =>
      Effect.suspend(() => {
        follower.isWoken = false
        return Effect.flatMap(events.read(follower.key, follower.publishedSeq, pageEvents), found => {
          if (Option.isNone(found)) return endIfGone(follower, true)
          const { epoch, headSeq } = found.value.history
          // Events that were read no longer exist, for example after a fail-over of the database.
          const isCut = headSeq < follower.publishedSeq
          if (isCut || epoch !== follower.history.epoch) return endIfGone(follower, true)
          const frames = toFrames(found.value.events)
          if (frames.length === 0) return endIfGone(follower, false)
          publish(follower, frames)
          if (follower.publishedSeq < headSeq) follower.isWoken = true
          return Effect.void
        })
      }).pipe(
        reading.withPermits(1),
        Effect.catchAll(() => {
          follower.isWoken = true
          return Effect.sleep(retryPause)
        }),
        Effect.zipRight(
          Effect.suspend(() => {
            if (follower.isWoken && follower.subscribers.size > 0) return read(follower)
            follower.isReading = false
            return Effect.void
          })
        ),
        // Subscribers start again with a new follower.
        Effect.catchAllDefect(defect => {
          end(follower, subscriber => subscriber.onLost())
          return logDefect(follower.key, "The events of a session of another node cannot be read", defect)
        })
      )

    const wake = (follower: Follower): void => {
      follower.isWoken = true
      if (follower.isReading) return
      follower.isReading = true
      run(read(follower))
    }

    const begin = (key: string, tenant: string, id: string, history: History): Follower => {
      const unwatch = nodes.watch(key, () => wake(follower))
      const subscribers = new Subscribers(defect => run(logDefect(key, "A subscriber of a session failed", defect)))
      const follower: Follower = new Follower(key, tenant, id, history, subscribers, unwatch)
      followers.set(key, follower)
      occupancy.set(true)
      // Events that were appended since the history was read.
      wake(follower)
      return follower
    }

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
        const follower = yield* Effect.acquireRelease(
          Effect.sync(() => {
            const known = followers.get(key)
            const follower = known?.history.epoch === found.value.epoch ? known : begin(key, tenant, id, found.value)
            follower.subscribers.add(subscriber)
            return follower
          }),
          follower =>
            Effect.sync(() => {
              follower.subscribers.delete(subscriber)
              if (follower.subscribers.size === 0) drop(follower)
            })
        )
        const { epoch, headSeq, trimmedSeq } = found.value
        return {
          session: { ...view, epoch, headSeq },
          ...{ epoch, headSeq, trimmedSeq, isElsewhere: true },
          publishedSeq: () => follower.publishedSeq,
          read: HistoryPages.make(events, key, found.value, () => subscriber.onLost())
        }
      })

    /** Uses the sessions on their nodes, which would stop them as idle otherwise. */
    const useThere = ({ id, key, tenant }: Follower) =>
      Effect.gen(function* () {
        const owner = yield* nodes.ownerOf(key)
        if (Option.isNone(link) || Option.isNone(owner)) return
        const { address, node } = owner.value
        if (address === null) return
        const request = { type: "get_session", id: "use", sessionId: id } as const
        const commandId = yield* randomId
        yield* link.value.send({ address, node }, { node, tenant, actor: "gateway", commandId, request })
      }).pipe(Effect.ignore)
    const interval = Duration.min(Duration.times(settings.idleTimeout, 1 / usesInIdleTime), longestUseInterval)
    if (Option.isSome(link)) {
      const useAll = Effect.suspend(() =>
        Effect.forEach([...followers.values()], useThere, { concurrency: concurrentUses, discard: true })
      )
      yield* Supervision.tickScoped(
        "use of sessions of other nodes",
        interval,
        { occupied: occupancy.occupied },
        useAll
      )
    }
    return { subscribe }
  })
