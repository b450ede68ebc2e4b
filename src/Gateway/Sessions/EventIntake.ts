/**
 * Applies the received events of an instance to its session.
 */
import { Effect, type Scope } from "effect"
import type { MetricTags } from "../../MetricTags.ts"
import type { AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import type { Send } from "../../Upstream/FrameSender.ts"
import { type Received, Undelivered } from "../../Upstream/InstanceConnection.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import * as SplitCharacters from "../SplitCharacters.ts"
import { type Ingested, ingest } from "./Ingestion.ts"
import * as State from "./SessionState.ts"

/** The ids of the newest events, which identify events that are sent again. */
export class RecentIds {
  private readonly ids = new Set<string>()

  constructor(private readonly max: number) {}

  /** Whether an event is new. An event without an id always is. */
  isNew(received: Received): boolean {
    if (received instanceof Undelivered || received.id === undefined) return true
    const { id } = received
    if (this.ids.has(id)) return false
    this.ids.add(id)
    if (this.ids.size > this.max) this.ids.delete(this.ids.values().next().value!)
    return true
  }
}

/** Updates the session of an instance. Does nothing if the session has another instance, or none. */
export type UpdateSession = (f: (state: State.SessionState) => State.Update) => Effect.Effect<void>

/** Runs work with events of a size. */
export type Paced = (size: number, work: Effect.Effect<void>) => Effect.Effect<void>

const sizeOf = (received: ReadonlyArray<Received>): number =>
  received.reduce((sum, one) => sum + (one instanceof Undelivered ? 0 : (one.size ?? 0)), 0)

/** The session and the connection of an instance. */
export interface Options {
  readonly updateSession: UpdateSession
  /** Runs an update by large events in their turn. */
  readonly paced: Paced
  readonly send: Send<AgentPlatformConnectionError>
  /** The scope of interrupts that are sent in the background. */
  readonly scope: Scope.Scope
  /** The types of malformed events that were logged, for all sessions of a gateway. */
  readonly reported: Set<string>
  /** The tags of metrics. */
  readonly tags: MetricTags
}

/** Event ids that are kept. A platform may replay more events than requested. */
const maxRecentIds = 4096

/** Events are to be taken one batch after the other, in order. */
export class EventIntake {
  private readonly recent = new RecentIds(maxRecentIds)
  /** Turns that have ended because their message may have been lost. */
  private readonly lost = new Set<string>()
  private halves = SplitCharacters.none

  constructor(private readonly options: Options) {}

  /** Applies the events that are new, in one update. Waits until the update is stored. */
  take(received: ReadonlyArray<Received>): Effect.Effect<void> {
    return Effect.suspend(() => {
      const fresh = received.filter(one => this.recent.isNew(one))
      if (fresh.length === 0) return Effect.void
      let result: Ingested | undefined
      const updated = this.options.updateSession(state => {
        result = ingest(state, fresh, this.halves)
        return result.update
      })
      return Effect.zipRight(
        this.options.paced(sizeOf(fresh), updated),
        Effect.suspend(() => (result === undefined ? Effect.void : this.onApplied(result)))
      )
    })
  }

  private onApplied(result: Ingested): Effect.Effect<void> {
    this.halves = result.halves
    const isUsual = result.undelivered.length === 0 && result.lateStarts.length === 0
    return isUsual ? this.report(result) : Effect.zipRight(this.interruptLateStarts(result), this.report(result))
  }

  /** Interrupts turns that the agent starts after their end was published: clients may have sent them again. */
  private interruptLateStarts({ lateStarts, undelivered }: Ingested): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { scope, send } = this.options
      for (const turnId of undelivered) this.lost.add(turnId)
      while (this.lost.size > State.maxTurns) this.lost.delete(this.lost.values().next().value!)
      return Effect.forEach(
        lateStarts.filter(turnId => this.lost.delete(turnId)),
        turnId => Effect.forkIn(Effect.ignore(send({ type: "interrupt", turnId })), scope),
        { discard: true }
      )
    })
  }

  /** Counts dropped events. Malformed events are logged once for each type. */
  private report({ dropped, malformed }: Ingested): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { reported, tags } = this.options
      for (const type of dropped) GatewayMetrics.dropped.increment(type, tags)
      const types = [...new Set(malformed)].filter(type => !reported.has(type))
      for (const type of types) reported.add(type)
      return Effect.forEach(
        types,
        type =>
          Effect.logWarning("The agent platform sent an event whose fields do not fit its type").pipe(
            Effect.annotateLogs({ type })
          ),
        { discard: true }
      )
    })
  }
}
