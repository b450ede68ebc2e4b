/** A line on standard error that shows the progress of a command. */
import { Effect, type Scope } from "effect"
import { Output } from "./Output.ts"
import * as Progress from "./Progress.ts"
import { widthOf } from "./Table.ts"

/** Shows the progress of a command. */
export interface ProgressLine {
  /** Updates the total of what is done, adds the number of new records, and sets the size if it is given. */
  readonly advance: (done: number, records: number, total?: number) => Effect.Effect<void>
  /** Writes a line above the progress. */
  readonly note: (text: string) => Effect.Effect<void>
}

/** The minimum interval between two updates, in milliseconds. */
const interval = 100

const erase = "\r\u001b[K"

/** Shows a line until the scope closes. Nothing is drawn if standard error is not a terminal. */
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
    const startedAt = now()
    let drawn = Number.NEGATIVE_INFINITY
    let progress: Progress.Progress = { done: doneBefore, total, doneBefore, records: 0, elapsed: 0, unit }
    const draw = () => {
      drawn = now()
      stderr.write(`${erase}${Progress.line(progress, Math.max(20, widthOf(stderr.columns) - 1))}`)
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
          progress = { ...progress, done, total, records: progress.records + records, elapsed: now() - startedAt }
          if (now() - drawn >= interval) draw()
        }),
      note: text =>
        Effect.sync(() => {
          stderr.write(erase)
        }).pipe(Effect.zipRight(note(text)), Effect.zipRight(Effect.sync(draw)))
    }
    return line
  })
