/** The line of progress on standard error. */
import { Effect, type Scope } from "effect"
import { Output } from "./Output.ts"
import * as Progress from "./Progress.ts"

/** Shows how far a command has come. */
export interface ProgressLine {
  /** How much is done in all, how many records came with it, and of how much where that was not known before. */
  readonly advance: (done: number, records: number, total?: number) => Effect.Effect<void>
  /** Writes a line above it. */
  readonly note: (text: string) => Effect.Effect<void>
}

/** Milliseconds between two drawings. */
const pause = 100

const erase = "\r\u001b[K"

/** A line until the scope closes; nothing is drawn where standard error is not a terminal. */
export const make = (
  total: number | undefined,
  doneBefore: number,
  unit: Progress.Unit = "entries"
): Effect.Effect<ProgressLine, never, Output | Scope.Scope> =>
  Effect.gen(function* () {
    const { note } = yield* Output
    const { stderr } = process
    if (!stderr.isTTY) return { advance: () => Effect.void, note }
    const clock = yield* Effect.clock
    const now = () => Number(clock.unsafeCurrentTimeNanos()) / 1e6
    const begun = now()
    let drawn = Number.NEGATIVE_INFINITY
    let progress: Progress.Progress = { done: doneBefore, total, doneBefore, records: 0, elapsed: 0, unit }
    const draw = () => {
      drawn = now()
      stderr.write(`${erase}${Progress.line(progress, Math.max(20, stderr.columns - 1))}`)
    }
    yield* Effect.acquireRelease(Effect.sync(draw), () =>
      Effect.sync(() => {
        draw()
        stderr.write("\n")
      })
    )
    const line: ProgressLine = {
      advance: (done, records, total = progress.total) =>
        Effect.sync(() => {
          progress = { ...progress, done, total, records: progress.records + records, elapsed: now() - begun }
          if (now() - drawn >= pause) draw()
        }),
      note: text =>
        Effect.sync(() => {
          stderr.write(erase)
        }).pipe(Effect.zipRight(note(text)), Effect.zipRight(Effect.sync(draw)))
    }
    return line
  })
