import { Clock, type Context, Duration, Effect, Schedule } from "effect"
import { type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { event } from "../Protocol/Event.ts"
import { type Standing, type Step, toBookmark } from "../Session.ts"
import type { Append, History, SessionEvents } from "../SessionEvents.ts"
import type { Frame } from "../Sessions.ts"

/**
 * A session's standing and its history, which change together or not at all.
 *
 * A step is computed from the standing, its events are stored along with what must outlive the process, and only then
 * it counts and is told. Where a store does not say whether it took a step, the next one finds out first.
 */
export interface Journal {
  readonly standing: () => Standing
  readonly history: () => Pick<History, "epoch" | "headSeq">
  /** Takes a step. It fails where the store is away, and then the standing is as it was. */
  readonly update: (f: (standing: Standing) => Step) => Effect.Effect<Step, StoreBusy | StoreUnavailable>
  /** Takes a step, waiting for the store as long as it is away. */
  readonly updateSurely: (f: (standing: Standing) => Step) => Effect.Effect<Step>
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

/** A step that the store was given. */
interface Given {
  readonly append: Append
  readonly step: Step
}

const patience = Schedule.exponential("100 millis").pipe(
  Schedule.modifyDelay((_, delay) => Duration.min(delay, Duration.seconds(2)))
)

export const make = (options: Options): Effect.Effect<Journal> =>
  Effect.gen(function* () {
    const { events, session, sessionId, onStep } = options
    const turnstile = yield* Effect.makeSemaphore(1)
    const { epoch } = options.history
    let { headSeq, bookmark } = options.history
    let { standing } = options
    let lastTimestamp = 0
    let unsure: Given | undefined

    const settle = ({ append, step }: Given): void => {
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
      onStep(step, framed)
    }

    /** Whether a step that the store was given is there. */
    const isThere = ({ append }: Given): Effect.Effect<boolean, StoreUnavailable> =>
      Effect.flatMap(events.find(session), found => {
        const there = found._tag === "Some" && found.value.epoch === epoch ? found.value : undefined
        const after = append.after + append.texts.length
        if (there?.headSeq === after && there.bookmark === append.bookmark) return Effect.succeed(true)
        if (there?.headSeq === append.after) return Effect.succeed(false)
        return new StoreUnavailable({ reason: `the history of session ${session} is not where it was left` })
      })

    const resolve = Effect.suspend(() => {
      const given = unsure
      if (given === undefined) return Effect.void
      return Effect.map(isThere(given), is => {
        unsure = undefined
        if (is) settle(given)
      })
    })

    const give = (given: Given): Effect.Effect<void, StoreBusy | StoreUnavailable> =>
      Effect.suspend(() => {
        unsure = given
        return events.append(given.append)
      }).pipe(
        Effect.catchTag("StoreBusy", error => {
          unsure = undefined
          return error
        }),
        Effect.catchTag("OutOfStep", ({ headSeq }) =>
          Effect.fail(new StoreUnavailable({ reason: `the history of session ${session} is at ${headSeq}` }))
        ),
        Effect.zipRight(
          Effect.sync(() => {
            unsure = undefined
            settle(given)
          })
        )
      )

    const take = (f: (standing: Standing) => Step): Effect.Effect<Step, StoreBusy | StoreUnavailable> =>
      Effect.gen(function* () {
        yield* resolve
        const step = f(standing)
        const nextBookmark = toBookmark(step.standing)
        if (step.events.length === 0 && nextBookmark === bookmark) {
          standing = step.standing
          onStep(step, [])
          return step
        }
        const timestamp = Math.max(yield* Clock.currentTimeMillis, lastTimestamp)
        lastTimestamp = timestamp
        const traceId = yield* options.traceId
        const texts = step.events.map((body, index) =>
          JSON.stringify(event({ sessionId, seq: headSeq + 1 + index, timestamp, traceId }, body))
        )
        const append = { session, epoch, after: headSeq, timestamp, texts, bookmark: nextBookmark }
        yield* give({ append, step })
        return step
      })

    const update: Journal["update"] = f => turnstile.withPermits(1)(Effect.uninterruptible(take(f)))

    const updateSurely: Journal["updateSurely"] = f =>
      Effect.suspend(() => {
        let warned = false
        const warn = (error: StoreBusy | StoreUnavailable) => {
          if (warned) return Effect.void
          warned = true
          return Effect.logWarning("Events of a session wait for the store").pipe(
            Effect.annotateLogs({ session, reason: error.message })
          )
        }
        return Effect.retry(Effect.tapError(update(f), warn), patience)
      }).pipe(Effect.catchAll(Effect.die))

    return {
      standing: () => standing,
      history: () => ({ epoch, headSeq }),
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
