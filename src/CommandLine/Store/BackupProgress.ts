/** How far a backup or a restore has come: a line on a terminal, or with `--json` a record a second. */
import { Effect, Queue, Stream } from "effect"
import type { Progress, Report } from "../../Storage/Backup.ts"
import { Output, record, type WriteError } from "../Terminal/Output.ts"
import * as ProgressLine from "../Terminal/ProgressLine.ts"

/** Milliseconds between two records. */
const pause = 1000

/** Shows one piece of progress after the other. Where nobody looks, that is nothing. */
const display = (json: boolean) =>
  Effect.gen(function* () {
    if (json) {
      const clock = yield* Effect.clock
      const output = yield* Output
      let shownAt = Number.NEGATIVE_INFINITY
      let phase: Progress["phase"] | undefined
      return (progress: Progress) => {
        const now = Number(clock.unsafeCurrentTimeNanos()) / 1e6
        if (progress.phase === phase && now - shownAt < pause) return Effect.void
        shownAt = now
        phase = progress.phase
        return Effect.provideService(record({ type: "progress", ...progress }), Output, output)
      }
    }
    const line = yield* ProgressLine.make(undefined, 0, "bytes")
    let shown = 0
    return ({ done, phase, total }: Progress) => {
      // To verify takes a time that is not known before.
      if (phase === "verify") return done === 0 && process.stderr.isTTY ? line.note("Verifying") : Effect.void
      const more = done - shown
      shown = done
      return line.advance(done, more, total)
    }
  })

/** Does something and shows how far it has come. */
export const showing = <A, E>(
  json: boolean,
  work: (report: Report) => Effect.Effect<A, E>
): Effect.Effect<A, E | WriteError, Output> =>
  Effect.scoped(
    Effect.gen(function* () {
      const show = yield* display(json)
      // Only the newest matters where the terminal is slow.
      const reports = yield* Queue.sliding<Progress>(4)
      const shower = yield* Effect.forkScoped(Stream.runForEach(Stream.fromQueue(reports), show))
      const result = yield* Effect.raceFirst(
        work(progress => void reports.unsafeOffer(progress)),
        Effect.zipRight(shower.await.pipe(Effect.flatten), Effect.never)
      )
      yield* Queue.shutdown(reports)
      return result
    })
  )
