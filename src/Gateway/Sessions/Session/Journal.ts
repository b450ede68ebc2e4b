/** The state of one session and the log of its events. */
import { type Context, Duration, Effect, Exit, Schedule } from "effect"
import * as Direct from "../../../base/Direct.ts"
import { Mutex } from "../../../base/Mutex.ts"
import { type StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import { type EventBody, event } from "../../Protocol/Event.ts"
import type { Append, History, Opened, OutOfStep, SessionElsewhere, SessionEvents } from "../../SessionEvents.ts"
import type { Frame } from "../../Sessions.ts"
import * as Activity from "./Activity.ts"
import { encodeRecovery, type SessionState, type Turns, type Update } from "./SessionState.ts"

/** Ended turns whose trace ids are kept: results may arrive after the end of their turn. */
const maxEnded = 16

/** The trace id of each turn, which is that of the message that started it. Events of the turn carry it. */
export class TurnTraces {
  private readonly traces = new Map<string, string>()

  /** The trace id of the turn of an event, if it is known. */
  of(body: EventBody): string | undefined {
    return "turnId" in body && body.turnId !== undefined ? this.traces.get(body.turnId) : undefined
  }

  /** Whether an open turn has no trace id. */
  lacks({ open }: Turns): boolean {
    for (const turnId of open.keys()) if (!this.traces.has(turnId)) return true
    return false
  }

  /** Sets the trace id of new turns. */
  begin({ open }: Turns, traceId: string): void {
    for (const turnId of open.keys()) if (!this.traces.has(turnId)) this.traces.set(turnId, traceId)
    for (const turnId of this.traces.keys()) {
      if (this.traces.size <= open.size + maxEnded) break
      if (!open.has(turnId)) this.traces.delete(turnId)
    }
  }
}

/** The history that a journal continues, and the state at its end. */
export interface Options {
  readonly session: string
  readonly sessionId: string
  readonly events: Context.Tag.Service<SessionEvents>
  /** Epoch milliseconds. */
  readonly now: () => number
  readonly traceId: Effect.Effect<string>
  readonly history: Opened
  readonly state: SessionState
  /** Called with each update that took effect, and its events as stored. It must not throw. */
  readonly onUpdate: (update: Update, frames: ReadonlyArray<Frame>) => void
  /** Called if the store finds that another node has taken the session. It must not throw. */
  readonly onTaken: () => void
}

/** An append that was sent to the store, the state before it, and whether it is known to have taken effect. */
interface Attempt {
  readonly append: Append
  readonly before: SessionState
  readonly update: Update
  readonly activity: Activity.State
  isApplied: boolean
}

/** Attempts of unknown outcome that are kept. The store may still execute the oldest of them. */
const maxUnknown = 16

/** Used if every event carries the trace of its turn. */
const noTrace = Exit.succeed("")

const firstDelay = Duration.millis(100)

/** Exponential delays of at most two seconds. */
const backoff = Schedule.union(Schedule.exponential(firstDelay), Schedule.spaced("2 seconds"))

const hasReceipt = ({ receipt, revoked }: Update): boolean => receipt !== undefined || revoked !== undefined

/**
 * The state of a session and the log of its events, which change together or not at all.
 *
 * An update is computed from the state. Its events and the recovery state are stored, and only then it takes effect and
 * is published. If the outcome of an append is unknown, the next update determines it first.
 */
export class Journal {
  private readonly mutex = new Mutex()
  private readonly traces = new TurnTraces()
  private headSeq: number
  private recoveryState: string | null
  private current: SessionState
  private currentActivity: Activity.State
  private lastEventAt: number | null
  private lastTimestamp = 0
  private unknown: ReadonlyArray<Attempt> = []
  private lost = false

  /** The history was opened by this node. */
  constructor(private readonly options: Options) {
    this.headSeq = options.history.headSeq
    this.recoveryState = options.history.recoveryState
    this.current = options.state
    this.currentActivity = Activity.initial(options.history.activity)
    this.lastEventAt = options.history.lastEventAt
  }

  state(): SessionState {
    return this.current
  }

  history(): Pick<History, "epoch" | "headSeq"> {
    return { epoch: this.options.history.epoch, headSeq: this.headSeq }
  }

  activity(): Pick<Opened, "activity" | "lastEventAt"> {
    return { activity: this.currentActivity.shown, lastEventAt: this.lastEventAt }
  }

  /** Whether the stored history was replaced or removed, or belongs to another node: no further update takes effect. */
  isLost(): boolean {
    return this.lost
  }

  /** Called after another node has taken the session. */
  lose(): void {
    this.lost = true
  }

  /** Succeeds only if the session belongs to this node, after all earlier updates. */
  confirm(): Effect.Effect<void, StoreBusy | StoreUnavailable> {
    return this.inOrder(() => this.fence())
  }

  /** Applies an update. If it fails, the state is unchanged. */
  update(f: (state: SessionState) => Update): Effect.Effect<Update, StoreBusy | StoreUnavailable> {
    return this.inOrder(() => this.attempt(f, () => {}))
  }

  /**
   * Applies an update, and retries until the store takes it or the history is lost. `onUnavailable` is called once,
   * before the first retry; it must not throw. The effect is direct, unless it has to wait for another update.
   */
  updateWithRetry(
    f: (state: SessionState) => Update,
    onUnavailable?: (reason: StoreBusy | StoreUnavailable) => void
  ): Effect.Effect<void> {
    return Direct.suspend(() => {
      let warned = false
      let last: Attempt | undefined
      const warn = (error: StoreBusy | StoreUnavailable) => {
        if (warned) return Effect.void
        warned = true
        return Effect.logWarning("Events of a session wait for the store").pipe(
          Effect.annotateLogs({ session: this.options.session, reason: error.message })
        )
      }
      // An attempt that turns out to be stored is not repeated, and one that was not stored is repeated unchanged.
      const again = (known: Attempt | undefined): Effect.Effect<Update, StoreBusy | StoreUnavailable> => {
        if (known?.isApplied) return Exit.succeed(known.update)
        if (known !== undefined && known.before === this.current && known.append.after === this.headSeq) {
          return this.submit(known)
        }
        return this.attempt(f, made => {
          last = made
        })
      }
      const once = this.inOrder(() => again(last))
      // Most updates need no retry, and setting up a schedule costs more than an update.
      return Direct.matchEffect(once, {
        onSuccess: () => Exit.void,
        onFailure: error => {
          if (this.lost) return Exit.void
          onUnavailable?.(error)
          const retrying = Effect.retry(Effect.tapError(once, warn), { schedule: backoff, while: () => !this.lost })
          // It fails only if the history is lost.
          return Effect.ignore(Effect.zipRight(warn(error), Effect.delay(retrying, firstDelay)))
        }
      })
    })
  }

  /** Runs one update at a time, after the outcome of earlier ones is known. */
  private inOrder<A>(f: () => Effect.Effect<A, StoreBusy | StoreUnavailable>) {
    return this.mutex.run(
      Direct.flatMap(
        Direct.suspend(() => this.resolve()),
        f
      )
    )
  }

  /** Determines which of the attempts of unknown outcome the store has executed, if any. */
  private resolve(): Effect.Effect<void, StoreUnavailable> {
    if (this.unknown.length === 0) return Exit.void
    const { events, history, session } = this.options
    const fail = Effect.suspend(() => {
      this.lost = true
      return new StoreUnavailable({ reason: `the history of session ${session} is not where it was left` })
    })
    const next = Effect.catchTag(
      events.read(session, this.headSeq, 1),
      "SessionUnreadable",
      ({ reason }) => new StoreUnavailable({ reason })
    )
    return Effect.flatMap(next, page => {
      if (page._tag === "None" || page.value.history.epoch !== history.epoch) return fail
      const { events: next, history: found } = page.value
      const applied = this.unknown.find(({ append: { after, recoveryState, texts }, update }) =>
        texts.length === 0
          ? // Receipts alone leave no trace in the history. They change no state, and may be stored again.
            !hasReceipt(update) && found.headSeq === after && found.recoveryState === recoveryState
          : found.headSeq === after + texts.length && next[0]?.text === texts[0]
      )
      if (applied !== undefined) this.apply(applied)
      else if (found.headSeq !== this.headSeq) return fail
      return Effect.void
    })
  }

  /** Computes an update and submits it. `onAttempt` receives what may take effect even if this fails. */
  private attempt(
    f: (state: SessionState) => Update,
    onAttempt: (attempt: Attempt) => void
  ): Effect.Effect<Update, StoreBusy | StoreUnavailable> {
    const before = this.current
    const update = f(before)
    const recoveryState = encodeRecovery(update.state)
    if (update.events.length === 0 && recoveryState === this.recoveryState && !hasReceipt(update)) {
      const change = Direct.sync(() => {
        this.current = update.state
        this.options.onUpdate(update, [])
        return update
      })
      return this.unknown.length === 0 ? change : Effect.zipRight(this.fence(), change)
    }
    const { turns } = update.state
    const begins = turns !== before.turns && this.traces.lacks(turns)
    const needsTrace = begins || update.events.some(body => this.traces.of(body) === undefined)
    return Direct.flatMap(needsTrace ? this.options.traceId : noTrace, traceId => {
      if (begins) this.traces.begin(turns, traceId)
      const activity = Activity.after(this.currentActivity, update)
      const append = this.appendOf(update, recoveryState, traceId, activity)
      const attempt: Attempt = { append, before, update, activity, isApplied: false }
      onAttempt(attempt)
      return this.submit(attempt)
    })
  }

  private appendOf(update: Update, recoveryState: string | null, traceId: string, activity: Activity.State): Append {
    const { history, now, session, sessionId } = this.options
    const timestamp = Math.max(now(), this.lastTimestamp)
    this.lastTimestamp = timestamp
    const after = this.headSeq
    const texts = update.events.map((body, index) => {
      const seq = after + 1 + index
      return JSON.stringify(event({ sessionId, seq, timestamp, traceId: this.traces.of(body) ?? traceId }, body))
    })
    const { receipt, revoked } = update
    return {
      ...{ session, epoch: history.epoch, after, timestamp, texts, recoveryState },
      ...(hasReceipt(update) ? { receipt, revoked } : {}),
      ...(activity === this.currentActivity ? {} : { activity: { ...activity.shown, at: timestamp } })
    }
  }

  private submit(attempt: Attempt): Effect.Effect<Update, StoreBusy | StoreUnavailable> {
    const { append } = attempt
    const { activity } = append
    // An attempt may be repeated much later. Lists rely on a time that is not long ago.
    const at = Math.max(this.options.now(), append.timestamp)
    const request = activity === undefined ? append : { ...append, activity: { ...activity, at } }
    return Direct.matchEffect(this.options.events.append(request), {
      onSuccess: () => {
        this.apply(attempt)
        return Exit.succeed(attempt.update)
      },
      onFailure: (error): Effect.Effect<never, StoreBusy | StoreUnavailable> => {
        if (error._tag === "SessionElsewhere") return this.isTaken(error)
        if (error._tag === "StoreBusy") return Exit.fail(error)
        this.remember(attempt)
        return error._tag === "OutOfStep" ? this.isAhead(error) : Exit.fail(error)
      }
    })
  }

  /**
   * Fences off the attempts of unknown outcome. The store executes requests in order: after it has taken an empty append
   * at the same position, none of them can succeed.
   */
  private fence(): Effect.Effect<void, StoreBusy | StoreUnavailable> {
    const { events, history, session } = this.options
    const { headSeq: after, lastTimestamp: timestamp, recoveryState } = this
    return events.append({ session, epoch: history.epoch, after, timestamp, texts: [], recoveryState }).pipe(
      Effect.catchTags({ OutOfStep: error => this.isAhead(error), SessionElsewhere: error => this.isTaken(error) }),
      Effect.tap(() => {
        this.unknown = []
      })
    )
  }

  private apply(attempt: Attempt): void {
    const { activity, append, update } = attempt
    const frames = update.events.map(
      (body, index): Frame => ({
        seq: append.after + 1 + index,
        type: body.type,
        data: Buffer.from(append.texts[index]!)
      })
    )
    this.headSeq = append.after + append.texts.length
    this.recoveryState = append.recoveryState
    this.current = update.state
    this.currentActivity = activity
    if (append.texts.length > 0) this.lastEventAt = append.timestamp
    this.unknown = []
    attempt.isApplied = true
    this.options.onUpdate(update, frames)
  }

  private remember(attempt: Attempt): void {
    this.unknown = [...this.unknown.filter(other => other !== attempt), attempt].slice(-maxUnknown)
  }

  private isAhead({ headSeq }: OutOfStep): StoreUnavailable {
    if (headSeq === null) this.lost = true
    return new StoreUnavailable({ reason: `the history of session ${this.options.session} is at ${headSeq}` })
  }

  private isTaken({ message }: SessionElsewhere): Effect.Effect<never, StoreUnavailable> {
    return Effect.suspend(() => {
      this.lost = true
      this.options.onTaken()
      return new StoreUnavailable({ reason: message })
    })
  }
}
