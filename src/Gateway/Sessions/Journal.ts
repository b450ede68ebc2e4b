import { type Context, Duration, Effect, Schedule } from "effect"
import { type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { type EventBody, event } from "../Protocol/Event.ts"
import type { Append, History, OutOfStep, SessionElsewhere, SessionEvents } from "../SessionEvents.ts"
import type { Frame } from "../Sessions.ts"
import * as RecoveryState from "./RecoveryState.ts"
import type { SessionState, Turns, Update } from "./SessionState.ts"

/**
 * The state of a session and the log of its events, which change together or not at all.
 *
 * An update is computed from the state, its events and the recovery state are stored, and only then it takes effect and
 * is published. Where the outcome of an append is unknown, the next update finds it out first.
 */
export interface Journal {
  readonly state: () => SessionState
  readonly history: () => Pick<History, "epoch" | "headSeq">
  /** Whether the stored history was replaced or removed, or belongs to another node: no further update takes effect. */
  readonly isLost: () => boolean
  /** Another node has taken the session. */
  readonly lose: () => void
  /** Succeeds only if the session belongs to this node, after all that was begun before. */
  readonly confirm: Effect.Effect<void, StoreBusy | StoreUnavailable>
  /** Applies an update. Where it fails, the state is as it was. */
  readonly update: (f: (state: SessionState) => Update) => Effect.Effect<Update, StoreBusy | StoreUnavailable>
  /**
   * Applies an update, and retries until the store takes it or the history is lost. `onUnavailable` is called once,
   * before the first retry; it must not throw.
   */
  readonly updateWithRetry: (
    f: (state: SessionState) => Update,
    onUnavailable?: (reason: StoreBusy | StoreUnavailable) => void
  ) => Effect.Effect<void>
}

export interface Options {
  readonly session: string
  readonly sessionId: string
  readonly events: Context.Tag.Service<SessionEvents>
  /** Epoch milliseconds. */
  readonly now: () => number
  readonly traceId: Effect.Effect<string>
  readonly history: History
  readonly state: SessionState
  /** Called with each update that took effect, and its events as stored. It must not throw. */
  readonly onUpdate: (update: Update, frames: ReadonlyArray<Frame>) => void
}

/** An append that the store was given, the state before, and whether it is known to have taken effect. */
interface Attempt {
  readonly append: Append
  readonly before: SessionState
  readonly update: Update
  isApplied: boolean
}

/** Attempts of unknown outcome that are remembered: the store may yet carry out the oldest of them. */
const maxUnknown = 16

/** Stands for the current trace where every event has that of its turn. */
const noTrace = Effect.succeed("")

const firstDelay = Duration.millis(100)

/** Doubling delays, of two seconds at most. */
const backoff = Schedule.union(Schedule.exponential(firstDelay), Schedule.spaced("2 seconds"))

const hasReceipt = ({ receipt, revoked }: Update): boolean => receipt !== undefined || revoked !== undefined

/** Whether two states have the same recovery state. */
const isRecoveredAlike = (a: SessionState, b: SessionState): boolean =>
  a.instance === b.instance && a.pendingStops === b.pendingStops && a.turns === b.turns && a.request === b.request

/** Ended turns whose traces are remembered: results may come after the end of their turn. */
const maxEnded = 16

/** The trace of each turn, which is that of the message that started it: events of the turn carry it. */
class TurnTraces {
  private readonly traces = new Map<string, string>()

  /** The trace of the turn of an event, where that is known. */
  of(body: EventBody): string | undefined {
    return "turnId" in body && body.turnId !== undefined ? this.traces.get(body.turnId) : undefined
  }

  /** Whether the trace of an open turn is unknown. */
  lacks({ open }: Turns): boolean {
    for (const turnId of open.keys()) if (!this.traces.has(turnId)) return true
    return false
  }

  /** Sets the trace of new turns. */
  begin({ open }: Turns, traceId: string): void {
    for (const turnId of open.keys()) if (!this.traces.has(turnId)) this.traces.set(turnId, traceId)
    for (const turnId of this.traces.keys()) {
      if (this.traces.size <= open.size + maxEnded) break
      if (!open.has(turnId)) this.traces.delete(turnId)
    }
  }
}

export const make = (options: Options): Journal => {
  const { events, now, onUpdate, session, sessionId } = options
  const mutex = Effect.unsafeMakeSemaphore(1)
  const { epoch } = options.history
  let { headSeq, recoveryState } = options.history
  let { state } = options
  const traces = new TurnTraces()
  let lastTimestamp = 0
  let unknown: ReadonlyArray<Attempt> = []
  let isLost = false
  let encoded: { readonly state: SessionState; readonly recoveryState: string | null } | undefined

  /** Most updates, such as a text delta, leave the recovery state as it is. */
  const encodedState = (state: SessionState): string | null => {
    if (encoded === undefined || !isRecoveredAlike(encoded.state, state)) {
      encoded = { state, recoveryState: RecoveryState.encode(state) }
    }
    return encoded.recoveryState
  }

  const apply = (attempt: Attempt): void => {
    const { append, update } = attempt
    const frames = update.events.map(
      (body, index): Frame => ({
        seq: append.after + 1 + index,
        type: body.type,
        data: Buffer.from(append.texts[index]!)
      })
    )
    headSeq = append.after + append.texts.length
    recoveryState = append.recoveryState
    state = update.state
    unknown = []
    attempt.isApplied = true
    onUpdate(update, frames)
  }

  /** Finds out which of the attempts of unknown outcome the store has carried out, if any. */
  const resolve = Effect.suspend(() => {
    if (unknown.length === 0) return Effect.void
    const lost = Effect.suspend(() => {
      isLost = true
      return new StoreUnavailable({ reason: `the history of session ${session} is not where it was left` })
    })
    const next = Effect.catchTag(
      events.read(session, headSeq, 1),
      "SessionUnreadable",
      ({ reason }) => new StoreUnavailable({ reason })
    )
    return Effect.flatMap(next, page => {
      if (page._tag === "None" || page.value.history.epoch !== epoch) return lost
      const { events: next, history } = page.value
      const applied = unknown.find(({ append: { after, recoveryState, texts }, update }) =>
        texts.length === 0
          ? // Receipts alone leave no trace in the history. They change no state, and may be stored again.
            !hasReceipt(update) && history.headSeq === after && history.recoveryState === recoveryState
          : history.headSeq === after + texts.length && next[0]?.text === texts[0]
      )
      if (applied !== undefined) apply(applied)
      else if (history.headSeq !== headSeq) return lost
      return Effect.void
    })
  })

  const isAhead = ({ headSeq }: OutOfStep) =>
    new StoreUnavailable({ reason: `the history of session ${session} is at ${headSeq}` })

  const isTaken = ({ message }: SessionElsewhere) =>
    Effect.suspend(() => {
      isLost = true
      return new StoreUnavailable({ reason: message })
    })

  const remember = (attempt: Attempt) =>
    Effect.sync(() => {
      unknown = [...unknown.filter(other => other !== attempt), attempt].slice(-maxUnknown)
    })

  const submit = (attempt: Attempt): Effect.Effect<void, StoreBusy | StoreUnavailable> =>
    events.append(attempt.append).pipe(
      Effect.tapErrorTag("StoreUnavailable", () => remember(attempt)),
      Effect.catchTags({
        OutOfStep: error => Effect.zipRight(remember(attempt), isAhead(error)),
        SessionElsewhere: isTaken
      }),
      Effect.zipRight(Effect.sync(() => apply(attempt)))
    )

  /**
   * Fences the attempts of unknown outcome off. The store carries requests out in order: once it has taken an empty
   * append at the same place, none of them can succeed any more.
   */
  const fence: Effect.Effect<void, StoreBusy | StoreUnavailable> = Effect.suspend(() =>
    events.append({ session, epoch, after: headSeq, timestamp: lastTimestamp, texts: [], recoveryState })
  ).pipe(
    Effect.catchTags({ OutOfStep: isAhead, SessionElsewhere: isTaken }),
    Effect.zipRight(
      Effect.sync(() => {
        unknown = []
      })
    )
  )

  /** Computes an update and submits it; `onAttempt` learns of what may take effect although this fails. */
  const attempt = (
    f: (state: SessionState) => Update,
    onAttempt: (attempt: Attempt) => void
  ): Effect.Effect<Update, StoreBusy | StoreUnavailable> =>
    Effect.suspend(() => {
      const before = state
      const update = f(before)
      const nextRecoveryState = encodedState(update.state)
      const { receipt, revoked } = update
      if (update.events.length === 0 && nextRecoveryState === recoveryState && !hasReceipt(update)) {
        const change = (): Update => {
          state = update.state
          onUpdate(update, [])
          return update
        }
        return unknown.length === 0 ? Effect.sync(change) : Effect.zipRight(fence, Effect.sync(change))
      }
      const { turns } = update.state
      const begins = turns !== before.turns && traces.lacks(turns)
      const needsTrace = begins || update.events.some(body => traces.of(body) === undefined)
      return Effect.flatMap(needsTrace ? options.traceId : noTrace, traceId => {
        if (begins) traces.begin(turns, traceId)
        const timestamp = Math.max(now(), lastTimestamp)
        lastTimestamp = timestamp
        const texts = update.events.map((body, index) => {
          const seq = headSeq + 1 + index
          return JSON.stringify(event({ sessionId, seq, timestamp, traceId: traces.of(body) ?? traceId }, body))
        })
        const place = { session, epoch, after: headSeq, timestamp, texts, recoveryState: nextRecoveryState }
        const append: Append = hasReceipt(update) ? { ...place, receipt, revoked } : place
        const attempt: Attempt = { append, before, update, isApplied: false }
        onAttempt(attempt)
        return Effect.as(submit(attempt), update)
      })
    })

  const whilePossible = { schedule: backoff, while: () => !isLost }

  const inOrder = <A, E>(effect: Effect.Effect<A, E>) => mutex.withPermits(1)(Effect.uninterruptible(effect))

  const confirm = inOrder(Effect.zipRight(resolve, fence))

  const update: Journal["update"] = f => inOrder(Effect.flatMap(resolve, () => attempt(f, () => {})))

  const updateWithRetry: Journal["updateWithRetry"] = (f, onUnavailable) =>
    Effect.suspend(() => {
      let warned = false
      let last: Attempt | undefined
      const warn = (error: StoreBusy | StoreUnavailable) => {
        if (warned) return Effect.void
        warned = true
        return Effect.logWarning("Events of a session wait for the store").pipe(
          Effect.annotateLogs({ session, reason: error.message })
        )
      }
      // An attempt that was stored after all is not repeated, and one that was not is repeated unchanged.
      const again = (known: Attempt | undefined): Effect.Effect<Update, StoreBusy | StoreUnavailable> => {
        if (known?.isApplied) return Effect.succeed(known.update)
        if (known !== undefined && known.before === state && known.append.after === headSeq) {
          return Effect.as(submit(known), known.update)
        }
        return attempt(f, made => {
          last = made
        })
      }
      const once = inOrder(Effect.flatMap(resolve, () => again(last)))
      // Most updates need no retry, and setting up a schedule costs more than an update.
      return Effect.catchAll(once, error => {
        if (isLost) return Effect.void
        onUnavailable?.(error)
        const later = Effect.delay(Effect.retry(Effect.tapError(once, warn), whilePossible), firstDelay)
        return Effect.zipRight(warn(error), later)
      })
      // It fails only where the history is lost.
    }).pipe(Effect.ignore)

  const lose = (): void => {
    isLost = true
  }

  return {
    state: () => state,
    history: () => ({ epoch, headSeq }),
    isLost: () => isLost,
    lose,
    confirm,
    update,
    updateWithRetry
  }
}

const typeOf = /^\{"type":"([a-z_]+)"/

/** Stored events as frames. */
export const toFrames = (
  stored: ReadonlyArray<{ readonly seq: number; readonly text: string }>
): ReadonlyArray<Frame> =>
  stored.map(({ seq, text }) => ({ seq, type: typeOf.exec(text)?.[1] ?? "", data: Buffer.from(text) }))
