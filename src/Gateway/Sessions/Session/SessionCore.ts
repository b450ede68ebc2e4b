/**
 * The core of a session in memory: its record, its journal, its subscribers and its use count; and what all sessions
 * share.
 */

import { Cause, type Context, Duration, Effect, Either, Runtime, Scope } from "effect"
import * as MetricTags from "../../../base/Observability/MetricTags.ts"
import { Tracer } from "../../../base/Observability/Tracer.ts"
import * as Supervision from "../../../base/Supervision.ts"
import * as Monotonic from "../../../base/Time/Monotonic.ts"
import { isLarge, turnOf } from "../../../base/Time/PacedWork.ts"
import type { StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import { AgentPlatform } from "../../../Upstream/AgentPlatform.ts"
import { FairPool, sharedPool } from "../../FairPool.ts"
import { type History, type Opened, type SessionElsewhere, SessionEvents } from "../../SessionEvents.ts"
import type { Frame, Subscriber } from "../../Sessions.ts"
import { backgroundCleanups, type Settings, subscriberInterval } from "../Settings.ts"
import { Journal } from "./Journal.ts"
import type { SecretPool } from "./SecretPool.ts"
import { keyOf, type Recorded, randomId, type SessionRecord, type SessionRecords } from "./SessionRecords.ts"
import * as State from "./SessionState.ts"
import { Subscribers } from "./Subscribers.ts"

/** Updates by large events that are stored at a time, of all tenants and of one. */
const largeUpdates = {
  name: "capacity for large events",
  capacity: 2,
  maxOfOne: 1,
  maxWaiting: Number.POSITIVE_INFINITY
}

/** After this time an update by large events no longer delays others: it may wait for a store that is unavailable. */
const patience = "2 seconds"

/**
 * Runs updates of sessions by events of a size. Few large ones are stored at a time, so that the updates of other sessions
 * do not wait behind many MiB; and each holds the event loop for milliseconds, which they take in turns.
 */
export const makePaced = () => {
  const updates = new FairPool(largeUpdates)
  return (tenant: string, size: number, update: Effect.Effect<void>): Effect.Effect<void> => {
    if (!isLarge(size)) return update
    return updates
      .use(tenant, 1, claim => {
        const giveWay = Effect.delay(
          Effect.zipRight(
            Effect.sync(() => claim.release()),
            Effect.never
          ),
          patience
        )
        return Effect.raceFirst(Effect.zipRight(turnOf(size), update), giveWay)
      })
      .pipe(Effect.catchTag("SessionsBusy", Effect.die))
  }
}

/** The services and settings that all sessions share. */
export interface Shared {
  readonly settings: Settings
  readonly platform: Context.Tag.Service<AgentPlatform>
  readonly events: Context.Tag.Service<SessionEvents>
  readonly records: Pick<SessionRecords, "missing" | "save" | "isDirty">
  readonly secrets: SecretPool
  /** The scope of work that outlives the call that started it. */
  readonly scope: Scope.Scope
  /** Runs an effect in that scope, from a callback. */
  readonly run: (work: Effect.Effect<void>) => void
  /** Whole epoch milliseconds, for timestamps. */
  readonly now: () => number
  /** Monotonic milliseconds, for delays and durations. */
  readonly monotonic: () => number
  /** Generates a title for a session from its first message, in the background. */
  readonly generateTitle: (session: SessionCore, message: string) => void
  /** Whether the gateway is shutting down. No session is activated then. */
  readonly isClosing: () => boolean
  /** Limits the calls that stop instances in the background. */
  readonly cleanups: FairPool
  readonly activations: FairPool
  readonly paced: ReturnType<typeof makePaced>
  readonly traceId: Effect.Effect<string>
  /** The platform event types that were logged as malformed. */
  readonly malformedTypes: Set<string>
  /** The tags of metrics. */
  readonly tags: MetricTags.MetricTags
}

/** How long background work may take to end. After that it is not awaited. */
const shutdownTimeout = Duration.seconds(1)

/** Makes what all sessions share. Background work ends with the scope, before what it depends on. */
export const makeShared = (
  own: Pick<Shared, "settings" | "records" | "secrets" | "isClosing" | "generateTitle">
): Effect.Effect<Shared, never, AgentPlatform | SessionEvents | Tracer | Scope.Scope> =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const { currentTraceId } = yield* Tracer
    const scope = yield* Effect.acquireRelease(Scope.make(), (scope, exit) =>
      Supervision.within(shutdownTimeout, Scope.close(scope, exit))
    )
    const fork = Runtime.runFork(yield* Effect.runtime<never>())
    return {
      ...own,
      platform: yield* AgentPlatform,
      events: yield* SessionEvents,
      scope,
      run: work => void fork(work, { scope }),
      // A clock may have fractions of a millisecond.
      now: () => Math.trunc(clock.unsafeCurrentTimeMillis()),
      monotonic: () => Monotonic.unsafeMillis(clock),
      cleanups: sharedPool("capacity for stops", backgroundCleanups, Number.POSITIVE_INFINITY),
      activations: sharedPool("activations", own.settings.activations),
      paced: makePaced(),
      traceId: currentTraceId,
      malformedTypes: new Set(),
      tags: yield* MetricTags.current
    }
  })

/**
 * Opens the history of a session. If it ends before `headSeq`, it has lost events that clients may have seen, and gets
 * another epoch.
 */
export const openHistory = (
  { events }: Pick<Shared, "events">,
  key: string,
  { epoch, headSeq }: Pick<SessionRecord, "epoch" | "headSeq">
): Effect.Effect<Opened, SessionElsewhere | StoreBusy | StoreUnavailable> =>
  Effect.gen(function* () {
    // In a shared database the history was created before the record. If it is missing, clients may have seen its events.
    const history = yield* events.open(key, events.isShared ? yield* randomId : epoch)
    if (history.headSeq >= headSeq) return history
    yield* Effect.logWarning("The history of a session, or its end, was lost; it continues in another epoch").pipe(
      Effect.annotateLogs({ session: key, recorded: headSeq, found: history.headSeq })
    )
    return yield* events.renewEpoch(key, yield* randomId)
  })

/**
 * The state that a history ends with. If its lifecycle is not known, the recovery of the session has to add an event.
 */
export const stateOf = (
  { headSeq, recoveryState }: History,
  lifecycle: State.LifecycleState = headSeq === 0 ? "inactive" : "active"
): State.SessionState =>
  Either.getOrElse(State.decodeRecovery(lifecycle, recoveryState), () => ({ ...State.initial, lifecycle }))

/** What the parts of a session in memory share. The other parts are fields of `Entity`. */
export class SessionCore implements Recorded {
  /** `<tenant>/<id>`. */
  readonly key: string
  private currentRecord: SessionRecord
  private currentJournal: Journal
  private deletion: "none" | "begun" | "done" = "none"
  private isElsewhere = false
  private readonly subscribers = new Subscribers(defect =>
    this.shared.run(
      Effect.annotateLogs(Effect.logError("A subscriber of a session failed", Cause.die(defect)), { session: this.key })
    )
  )
  /** The number of calls in progress, and when the last one ended, in monotonic milliseconds. */
  private users = 0
  private usedAt: number
  /** Until when other nodes count as having subscribers, in monotonic milliseconds. */
  private subscribedUntil = Number.NEGATIVE_INFINITY

  constructor(
    readonly shared: Shared,
    record: SessionRecord,
    history: Opened,
    state: State.SessionState
  ) {
    this.key = keyOf(record.tenant, record.id)
    this.currentRecord = { ...record, epoch: history.epoch }
    this.currentJournal = this.journalOf(history, state)
    this.usedAt = shared.monotonic()
  }

  private journalOf(history: Opened, state: State.SessionState): Journal {
    const { events, now, traceId } = this.shared
    return new Journal({
      session: this.key,
      sessionId: this.record.id,
      ...{ events, now, traceId, history, state },
      onUpdate: (update, frames) => {
        this.onUpdate(update, frames)
        if (frames.length > 0) this.subscribers.publish(frames)
      },
      onTaken: () => this.giveUp()
    })
  }

  /** Called with each update that took effect, before subscribers receive its events. */
  protected onUpdate(_update: State.Update, _frames: ReadonlyArray<Frame>): void {}

  get record(): SessionRecord {
    return this.currentRecord
  }

  get journal(): Journal {
    return this.currentJournal
  }

  get state(): State.SessionState {
    return this.currentJournal.state()
  }

  get isRunning(): boolean {
    return State.isRunning(this.state)
  }

  /** Changes the state without an event. */
  setState(f: (state: State.SessionState) => State.SessionState) {
    return this.currentJournal.update(state => State.withoutEvents(f(state)))
  }

  toRecord(): SessionRecord {
    const { lifecycle: state, instance } = this.state
    // Clients cannot use an instance that is still to be stopped.
    const instanceId = state === "inactive" || state === "error" ? null : (instance?.instanceId ?? null)
    return { ...this.record, state, instanceId, ...this.currentJournal.history() }
  }

  /** Changes the record and schedules its save. */
  amend(changes: Partial<Pick<SessionRecord, "title" | "titled" | "secretNames" | "configured">> = {}): void {
    this.currentRecord = { ...this.record, ...changes, updatedAt: this.shared.now() }
    this.shared.records.save(this)
  }

  /** Whether it is being deleted or was deleted. It must not be activated. */
  get isDeleting(): boolean {
    return this.deletion !== "none"
  }

  get isDeleted(): boolean {
    return this.deletion === "done"
  }

  beginDeletion(): void {
    if (this.deletion === "none") this.deletion = "begun"
  }

  /** Called after a deletion that failed before the record was removed. */
  abortDeletion(): void {
    if (this.deletion === "begun") this.deletion = "none"
  }

  /** Called after the record was removed. */
  completeDeletion(): void {
    this.deletion = "done"
    this.subscribers.end(subscriber => subscriber.onDeleted())
  }

  /** Whether it belongs to another node now. This node no longer uses or stores it. */
  get isGivenUp(): boolean {
    return this.isElsewhere
  }

  /** Succeeds only if it belongs to this node. */
  get confirm(): Effect.Effect<void, StoreBusy | StoreUnavailable> {
    return this.currentJournal.confirm()
  }

  /** Called after another node has taken the session. That node stops the instance. */
  giveUp(): void {
    this.isElsewhere = true
    this.currentJournal.lose()
    this.shared.secrets.forget(this.key)
    this.dropSubscribers(() => {})
  }

  get hasSubscribers(): boolean {
    return this.subscribers.size > 0
  }

  /** Whether this node or another has subscribers. */
  get isFollowed(): boolean {
    return this.hasSubscribers || this.shared.monotonic() < this.subscribedUntil
  }

  /** How often a client has resumed a turn. */
  resumes = 0

  /** Called when another node has subscribers. One such call may be lost. */
  follow(): void {
    const { monotonic, settings } = this.shared
    this.subscribedUntil = monotonic() + 2 * Duration.toMillis(subscriberInterval(settings))
  }

  subscribe(subscriber: Subscriber): void {
    this.subscribers.add(subscriber)
  }

  unsubscribe(subscriber: Subscriber): void {
    this.subscribers.delete(subscriber)
    this.touch()
  }

  /** Ends all subscriptions. `between` runs before subscribers are notified. */
  dropSubscribers(between: () => void): void {
    this.subscribers.end(subscriber => subscriber.onLost(), between)
  }

  get isUsed(): boolean {
    return this.users > 0
  }

  isUnusedSince(time: number): boolean {
    return this.users === 0 && this.usedAt <= time
  }

  touch(): void {
    this.usedAt = this.shared.monotonic()
  }

  /** Counts as a use while an effect runs: the session is neither stopped as idle nor evicted. */
  use<A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return Effect.acquireUseRelease(
      Effect.sync(() => void this.users++),
      () => effect,
      () =>
        Effect.sync(() => {
          this.users--
          this.touch()
        })
    )
  }

  /** Continues with a new history after one that was lost. Pending stops are kept. */
  replaceHistory(): Effect.Effect<void, SessionElsewhere | StoreBusy | StoreUnavailable> {
    return Effect.gen(this, function* () {
      const history = yield* openHistory(this.shared, this.key, this.toRecord())
      const found = State.releaseInstance(stateOf(history))
      const { pendingStops, request } = State.releaseInstance(this.state)
      const known = new Set(pendingStops.map(({ key }) => key))
      const journal = this.journalOf(history, {
        ...found,
        pendingStops: [...pendingStops, ...found.pendingStops.filter(({ key }) => !known.has(key))],
        ...(request === undefined ? {} : { request })
      })
      this.dropSubscribers(() => {
        this.currentJournal = journal
        this.currentRecord = { ...this.record, epoch: history.epoch }
        if (!this.isDeleted) this.shared.records.save(this)
      })
    })
  }
}
