import { type Context, Effect, type Scope } from "effect"
import type { StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import type { AgentPlatform } from "../../Upstream/AgentPlatform.ts"
import type { FairPool } from "../FairPool.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import type { EventBody } from "../Protocol/Event.ts"
import type { LostPart, Session } from "../Protocol/Session.ts"
import type { SessionEvents } from "../SessionEvents.ts"
import type { Frame, SessionConflict, Subscriber } from "../Sessions.ts"
import { Order } from "./CommandQueue.ts"
import type { Errand } from "./Errand.ts"
import type { Creation } from "./InstanceCreation.ts"
import type { InstanceLink } from "./InstanceLink.ts"
import type { Journal } from "./Journal.ts"
import type { Secrets } from "./Secrets.ts"
import { lossOf, missingParts, missingSecrets, type SessionRecord, view, withMissing } from "./SessionRecord.ts"
import type { InstanceRequest, Update } from "./SessionState.ts"
import type { Settings } from "./Settings.ts"
import { isRunning } from "./StateMachine.ts"

/** What all sessions share. */
export interface Shared {
  readonly settings: Settings
  readonly platform: Context.Tag.Service<AgentPlatform>
  readonly events: Context.Tag.Service<SessionEvents>
  /** Where everything lives that goes on without a caller. */
  readonly scope: Scope.Scope
  /** Whole epoch milliseconds, for timestamps. */
  readonly now: () => number
  /** Monotonic milliseconds, for all that waits or is measured. */
  readonly monotonic: () => number
  /** Has a record written soon. */
  readonly save: (entity: Entity) => void
  /** Told when a session's first turn was completed. */
  readonly onFirstTurn: (entity: Entity) => void
  /** Whether the gateway ends: nothing is brought up any more. */
  readonly isClosing: () => boolean
  /** The turn of what is given back to the platform while nobody waits for it: a few at a time, of all sessions. */
  readonly aside: FairPool
  /** The turn of instances that are brought up. */
  readonly activations: FairPool
  /** The trace to which what happens now belongs. */
  readonly traceId: Effect.Effect<string>
}

/** Questions and approvals remembered as open; beyond, the oldest are forgotten, and answers to them refused. */
const mostRequests = 1024

/** A message on its way from the history to the network. */
export interface Outgoing {
  readonly turnId: string
  /** Takes it back, unless it has been handed over. */
  readonly withdraw: () => boolean
}

/** One session in memory. Its state is in the journal; here is what only the living process has. */
export class Entity {
  readonly subscribers = new Set<Subscriber>()
  /** Questions and approvals that wait for an answer. */
  readonly requests = new Set<string>()
  /** What clients say to the instance, in the order in which they say it. */
  readonly talk: Order<StoreBusy | StoreUnavailable>
  /** The message that is recorded and about to be handed over. */
  outgoing: Outgoing | undefined
  /** The journal; there as soon as the session is loaded. */
  journal!: Journal
  secrets: Secrets = {}
  /** Which parts of its launch configuration the session database has. */
  kept: ReadonlyArray<LostPart> = []
  /** Rises whenever the launch configuration changes. */
  edition = 0
  /** Held while what the session was given is changed. */
  readonly configuring = Effect.unsafeMakeSemaphore(1)
  /** What a deleted session that an earlier run has left is asked for with. */
  request: InstanceRequest | undefined
  link: InstanceLink | undefined
  errand: Errand | undefined
  /** Creations that are under way, or whose outcome is not stored yet, by key: of the instance, and of pendingStops. */
  readonly creations = new Map<string, Creation>()
  /** The key that this process has last asked for an instance with, and what went along. */
  posted: { readonly key: string; readonly secrets: Secrets; readonly edition: number } | undefined
  firstMessage: string | undefined
  /** Calls that use the session at this moment. */
  users = 0
  /** Since when nobody has used it, in monotonic milliseconds. */
  idleSince: number
  isDeleted = false
  /** It is being deleted: what would bring an instance up again comes too late. */
  isGoing = false
  /** Whether the record in the store is behind. */
  isDirty = false
  /** When what an activation has left behind is given up, in monotonic milliseconds. */
  giveUpAt = Number.NEGATIVE_INFINITY
  /** Failed attempts to give instances back, when to try again, and how many attempts are under way. */
  debtTries = 0
  debtsAt = Number.NEGATIVE_INFINITY
  payers = 0

  constructor(
    /** `<tenant>/<id>`. */
    readonly key: string,
    public record: SessionRecord,
    readonly shared: Shared
  ) {
    this.talk = new Order(shared.scope)
    this.idleSince = shared.monotonic()
  }

  get isRunning(): boolean {
    return isRunning(this.journal.state().lifecycle)
  }

  /** Why no instance can be made, where something that it would need was lost. */
  get loss(): SessionConflict | undefined {
    return lossOf(missingSecrets(this.record, this.secrets), missingParts(this.record, this.kept))
  }

  /** What clients see. */
  view(): Session {
    const { kept, record, secrets } = this
    return withMissing(this.stored(), missingSecrets(record, secrets), missingParts(record, kept))
  }

  private stored(): Session {
    const { lifecycle: state, instance } = this.journal.state()
    const { epoch, headSeq } = this.journal.history()
    // An instance that is still to be given back is nothing that a client could use.
    const instanceId = state === "inactive" || state === "error" ? null : (instance?.instanceId ?? null)
    return { ...view(this.record), state, instanceId, epoch, headSeq }
  }

  /** The record as it is to be stored. */
  toRecord(): SessionRecord {
    return { ...this.record, ...this.stored() }
  }

  /** Changes what the record holds beside the state. */
  amend(changes: Partial<Pick<SessionRecord, "title" | "titled" | "secretNames" | "configured">>): void {
    this.record = { ...this.record, ...changes, updatedAt: this.shared.now() }
    this.shared.save(this)
  }

  /** Whether it could be forgotten without loss. */
  isSpare(): boolean {
    return this.subscribers.size === 0 && this.isAtRest()
  }

  /** Whether those who follow it are all that keeps it from being forgotten. */
  isAtRest(): boolean {
    const { pendingStops, instance, turns } = this.journal.state()
    return (
      this.users === 0 &&
      this.errand === undefined &&
      this.link === undefined &&
      instance === null &&
      pendingStops.length === 0 &&
      turns.open.size === 0 &&
      !this.isDirty &&
      !this.isRunning
    )
  }

  /** Whether nobody has had any use of its instance since `time`. */
  isIdleSince(time: number): boolean {
    return (
      this.isRunning &&
      this.subscribers.size === 0 &&
      this.users === 0 &&
      this.journal.state().turns.open.size === 0 &&
      this.idleSince <= time
    )
  }

  /** Notes that somebody has had a use of it. */
  touch(): void {
    this.idleSince = this.shared.monotonic()
  }

  /** Uses it for as long as an effect runs: it is neither idle nor forgotten meanwhile. */
  use<A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return Effect.acquireUseRelease(
      Effect.sync(() => {
        this.users++
      }),
      () => effect,
      () =>
        Effect.sync(() => {
          this.users--
          this.touch()
        })
    )
  }

  /** Takes note of a step that counts, and tells the subscribers. */
  onUpdate({ events }: Update, frames: ReadonlyArray<Frame>): void {
    for (const event of events) this.note(event)
    if (frames.length === 0) return
    for (const subscriber of this.subscribers) subscriber.onFrames(frames)
  }

  private note(event: EventBody): void {
    switch (event.type) {
      case "session_state":
        this.record = { ...this.record, updatedAt: this.shared.now() }
        this.shared.save(this)
        this.touch()
        // The event may be about the instance, which says that it is starting while the session runs.
        if (!this.isRunning) this.requests.clear()
        return
      case "turn_started":
        GatewayMetrics.turnsStarted.unsafeUpdate(1, [])
        return
      case "turn_completed":
        this.touch()
        GatewayMetrics.turnsCompleted.unsafeUpdate(1, [])
        if (!this.record.titled) this.shared.onFirstTurn(this)
        return
      case "turn_errored":
        this.touch()
        GatewayMetrics.turnsErrored.unsafeUpdate(1, [])
        return
      case "turn_interrupted":
        this.touch()
        return
      case "question_requested":
      case "approval_requested":
        this.requests.add(event.requestId)
        if (this.requests.size > mostRequests) this.requests.delete(this.requests.values().next().value!)
        return
      case "question_resolved":
      case "approval_resolved":
        this.requests.delete(event.requestId)
        return
      default:
        return
    }
  }
}
