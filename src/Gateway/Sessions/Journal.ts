import { type Context, Duration, Effect, Schedule } from "effect"
import { type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { event } from "../Protocol/Event.ts"
import type { Append, History, SessionEvents } from "../SessionEvents.ts"
import type { Frame } from "../Sessions.ts"
import { type Standing, type Step, toBookmark } from "./SessionState.ts"
import { TurnTraces } from "./TurnTraces.ts"

/**
 * A session's standing and its history, which change together or not at all.
 *
 * A step is computed from the standing, its events are stored along with what must outlive the process, and only then
 * it counts and is told. Where a store does not say whether it took a step, the next one finds out first.
 */
export interface Journal {
  readonly standing: () => Standing
  readonly history: () => Pick<History, "epoch" | "headSeq">
  /** Whether the history is not what was stored any more, as where its database was replaced: no step will count. */
  readonly isLost: () => boolean
  /** Takes a step. It fails where the store is away, and then the standing is as it was. */
  readonly update: (f: (standing: Standing) => Step) => Effect.Effect<Step, StoreBusy | StoreUnavailable>
  /**
   * Takes a step, waiting for the store as long as it is away. Where the history is lost it ends without: no step
   * counts any more. `onAway` is told once where it has to wait; it must not throw.
   */
  readonly updateSurely: (
    f: (standing: Standing) => Step,
    onAway?: (reason: StoreBusy | StoreUnavailable) => void
  ) => Effect.Effect<void>
}

export interface Options {
  readonly session: string
  readonly sessionId: string
  readonly events: Context.Tag.Service<SessionEvents>
  readonly traceId: Effect.Effect<string>
  readonly history: History
  readonly standing: Standing
  /** Told of each step that counts, with its events as they are stored. It must not throw. */
  readonly onStep: (step: Step, frames: ReadonlyArray<Frame>) => void
}

/** A step that the store was given, what it was computed from, and whether it is known to count. */
interface Given {
  readonly append: Append
  readonly before: Standing
  readonly step: Step
  counts: boolean
}

/** Steps of which the store did not say whether it took them. One that hangs may yet take the oldest of them. */
const mostDoubtful = 16

/** Stands for the current trace where no event needs it. */
const ofTheirTurns = Effect.succeed("")

const firstDelay = Duration.millis(100)

const patience = Schedule.exponential(firstDelay).pipe(
  Schedule.modifyDelay((_, delay) => Duration.min(delay, Duration.seconds(2)))
)

const hasReceipt = ({ receipt, revoked }: Step): boolean => receipt !== undefined || revoked !== undefined

/** Whether two standings share all that a bookmark is made of. */
const isMarkedAlike = (a: Standing, b: Standing): boolean =>
  a.lease === b.lease && a.debts === b.debts && a.turns === b.turns && a.request === b.request

export const make = (options: Options): Effect.Effect<Journal> =>
  Effect.gen(function* () {
    const { events, session, sessionId, onStep } = options
    const clock = yield* Effect.clock
    const turnstile = yield* Effect.makeSemaphore(1)
    const { epoch } = options.history
    let { headSeq, bookmark } = options.history
    let { standing } = options
    const traces = new TurnTraces()
    let lastTimestamp = 0
    let doubtful: ReadonlyArray<Given> = []
    let isLost = false
    let marked: { readonly standing: Standing; readonly bookmark: string | null } | undefined

    /** The bookmark of a standing, which most steps, such as a piece of text, leave as it is. */
    const bookmarkOf = (standing: Standing): string | null => {
      if (marked === undefined || !isMarkedAlike(marked.standing, standing)) {
        marked = { standing, bookmark: toBookmark(standing) }
      }
      return marked.bookmark
    }

    const settle = (given: Given): void => {
      const { append, step } = given
      const framed = step.events.map(
        (body, index): Frame => ({
          seq: append.after + 1 + index,
          type: body.type,
          data: Buffer.from(append.texts[index]!)
        })
      )
      headSeq = append.after + append.texts.length
      bookmark = append.bookmark
      standing = step.standing
      doubtful = []
      given.counts = true
      onStep(step, framed)
    }

    /** Finds out which of the doubtful steps the store has taken, if any. */
    const resolve = Effect.suspend(() => {
      if (doubtful.length === 0) return Effect.void
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
        const taken = doubtful.find(({ append: { after, bookmark, texts }, step }) =>
          texts.length === 0
            ? // Of receipts alone it is not known. They change no standing, and may be stored again.
              !hasReceipt(step) && history.headSeq === after && history.bookmark === bookmark
            : history.headSeq === after + texts.length && next[0]?.text === texts[0]
        )
        if (taken !== undefined) settle(taken)
        else if (history.headSeq !== headSeq) return lost
        return Effect.void
      })
    })

    const give = (given: Given): Effect.Effect<void, StoreBusy | StoreUnavailable> =>
      events.append(given.append).pipe(
        Effect.tapErrorTag("StoreUnavailable", () => doubt(given)),
        Effect.catchTag("OutOfStep", ({ headSeq }) =>
          Effect.zipRight(
            doubt(given),
            new StoreUnavailable({ reason: `the history of session ${session} is at ${headSeq}` })
          )
        ),
        Effect.zipRight(Effect.sync(() => settle(given)))
      )

    const doubt = (given: Given) =>
      Effect.sync(() => {
        doubtful = [...doubtful.filter(other => other !== given), given].slice(-mostDoubtful)
      })

    /**
     * Makes sure that no doubtful step will count any more. The store takes one thing after the other: once it has
     * taken an append of nothing in the same place, a step that was given before has failed for good. Where it has
     * not, this fails, and the next step finds out what was taken.
     */
    const outrun: Effect.Effect<void, StoreBusy | StoreUnavailable> = Effect.suspend(() =>
      events.append({ session, epoch, after: headSeq, timestamp: lastTimestamp, texts: [], bookmark })
    ).pipe(
      Effect.catchTag(
        "OutOfStep",
        ({ headSeq }) => new StoreUnavailable({ reason: `the history of session ${session} is at ${headSeq}` })
      ),
      Effect.zipRight(
        Effect.sync(() => {
          doubtful = []
        })
      )
    )

    /** Takes a step; `onGiven` learns what the store was given, which may count although this fails. */
    const take = (
      f: (standing: Standing) => Step,
      onGiven: (given: Given) => void
    ): Effect.Effect<Step, StoreBusy | StoreUnavailable> =>
      Effect.suspend(() => {
        const before = standing
        const step = f(before)
        const nextBookmark = bookmarkOf(step.standing)
        const { receipt, revoked } = step
        if (step.events.length === 0 && nextBookmark === bookmark && !hasReceipt(step)) {
          const change = (): Step => {
            standing = step.standing
            onStep(step, [])
            return step
          }
          return doubtful.length === 0 ? Effect.sync(change) : Effect.zipRight(outrun, Effect.sync(change))
        }
        const { turns } = step.standing
        const begins = turns !== before.turns && traces.lacks(turns)
        const needsTrace = begins || step.events.some(body => traces.of(body) === undefined)
        return Effect.flatMap(needsTrace ? options.traceId : ofTheirTurns, traceId => {
          if (begins) traces.begin(turns, traceId)
          const timestamp = Math.max(clock.unsafeCurrentTimeMillis(), lastTimestamp)
          lastTimestamp = timestamp
          const texts = step.events.map((body, index) => {
            const seq = headSeq + 1 + index
            return JSON.stringify(event({ sessionId, seq, timestamp, traceId: traces.of(body) ?? traceId }, body))
          })
          const place = { session, epoch, after: headSeq, timestamp, texts, bookmark: nextBookmark }
          const append: Append = hasReceipt(step) ? { ...place, receipt, revoked } : place
          const given: Given = { append, before, step, counts: false }
          onGiven(given)
          return Effect.as(give(given), step)
        })
      })

    const whilePossible = { schedule: patience, while: () => !isLost }

    const inTurn = <A, E>(effect: Effect.Effect<A, E>) => turnstile.withPermits(1)(Effect.uninterruptible(effect))

    const update: Journal["update"] = f => inTurn(Effect.flatMap(resolve, () => take(f, () => {})))

    const updateSurely: Journal["updateSurely"] = (f, onAway) =>
      Effect.suspend(() => {
        let warned = false
        let lastGiven: Given | undefined
        const warn = (error: StoreBusy | StoreUnavailable) => {
          if (warned) return Effect.void
          warned = true
          return Effect.logWarning("Events of a session wait for the store").pipe(
            Effect.annotateLogs({ session, reason: error.message })
          )
        }
        // A step that was stored after all must not be taken again, and one that was not is given as it was.
        const again = (given: Given | undefined): Effect.Effect<Step, StoreBusy | StoreUnavailable> => {
          if (given?.counts) return Effect.succeed(given.step)
          if (given !== undefined && given.before === standing && given.append.after === headSeq) {
            return Effect.as(give(given), given.step)
          }
          return take(f, made => {
            lastGiven = made
          })
        }
        const attempt = inTurn(Effect.flatMap(resolve, () => again(lastGiven)))
        // Hardly any step needs a schedule, which takes longer to set up than a step takes.
        return Effect.catchAll(attempt, error => {
          if (isLost) return Effect.void
          onAway?.(error)
          const later = Effect.delay(Effect.retry(Effect.tapError(attempt, warn), whilePossible), firstDelay)
          return Effect.zipRight(warn(error), later)
        })
        // It is tried again for ever, unless the history is lost.
      }).pipe(Effect.ignore)

    return {
      standing: () => standing,
      history: () => ({ epoch, headSeq }),
      isLost: () => isLost,
      update,
      updateSurely
    }
  })

const typeOf = /^\{"type":"([a-z_]+)"/

/** Events as they were stored, on their way to those who missed them. */
export const toFrames = (
  stored: ReadonlyArray<{ readonly seq: number; readonly text: string }>
): ReadonlyArray<Frame> =>
  stored.map(({ seq, text }) => ({ seq, type: typeOf.exec(text)?.[1] ?? "", data: Buffer.from(text) }))
