/** The progress of a backup or a restore: a line on a terminal, or with `--json` a record each second. */
import { Effect, Queue, Stream } from "effect"
import type { Progress, Report } from "../../Storage/Backup.ts"
import { Output, record, type WriteError } from "../Terminal/Output.ts"
import * as ProgressLine from "../Terminal/ProgressLine.ts"

/** The minimum interval between two records, in milliseconds. */
const interval = 1000

/** A function that shows progress. */
const display = (json: boolean) =>
  Effect.gen(function* () {
    if (json) {
      const clock = yield* Effect.clock
      const output = yield* Output
      let shownAt = Number.NEGATIVE_INFINITY
      let phase: Progress["phase"] | undefined
      return (progress: Progress) => {
        const now = Number(clock.unsafeCurrentTimeNanos()) / 1e6
        if (progress.phase === phase && now - shownAt < interval) return Effect.void
        shownAt = now
        phase = progress.phase
        return Effect.provideService(record({ type: "progress", ...progress }), Output, output)
      }
    }
    const line = yield* ProgressLine.make(undefined, 0, "bytes")
    let shown = 0
    return ({ done, phase, total }: Progress) => {
      // The duration of the verification is not known in advance.
      if (phase === "verify") return done === 0 && process.stderr.isTTY ? line.note("Verifying") : Effect.void
      const more = done - shown
      shown = done
      return line.advance(done, more, total)
    }
  })

/** Runs work and shows its progress. */
export const showing = <A, E>(
  json: boolean,
  work: (report: Report) => Effect.Effect<A, E>
): Effect.Effect<A, E | WriteError, Output> =>
  Effect.scoped(
    Effect.gen(function* () {
      const show = yield* display(json)
      // For a slow terminal only the newest progress matters.
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
