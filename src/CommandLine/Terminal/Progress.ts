/** The progress of a long command: a line on standard error. */
import { Effect, type Scope } from "effect"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import { Output, record, truncate, widthOf } from "./Output.ts"

/** What is counted. */
export type Unit = "entries" | "rows" | "bytes"

/** The progress of a command. Sizes are in the unit of `total`, such as bytes; times are in milliseconds. */
export interface Progress {
  readonly done: number
  /** `undefined` if the size is not known, for example of a pipe. */
  readonly total: number | undefined
  readonly records: number
  /** The part that an earlier run has done. */
  readonly doneBefore: number
  readonly elapsed: number
  /** The unit of `records`; default entries. */
  readonly unit?: Unit
}

/** A size in MiB. */
const mebibytes = (bytes: number): string => `${(bytes / 1024 / 1024).toFixed(1)} MiB`

const clock = (milliseconds: number): string => {
  const seconds = Math.ceil(milliseconds / 1000)
  const minutes = Math.floor(seconds / 60)
  const parts = [Math.floor(minutes / 60), minutes % 60, seconds % 60]
  const [hours = 0, ...rest] = parts
  const digits = rest.map(part => String(part).padStart(2, "0")).join(":")
  return hours === 0 ? digits : `${hours}:${digits}`
}

/** Records per second; `undefined` in the first 250 ms, when the figure would be arbitrary. */
export const rateOf = ({ elapsed, records }: Progress): number | undefined =>
  elapsed < 250 || records === 0 ? undefined : (records / elapsed) * 1000

/** The remaining time at the rate so far, in milliseconds. */
export const leftOf = ({ done, doneBefore, elapsed, total }: Progress): number | undefined =>
  total === undefined || elapsed < 250 || done <= doneBefore
    ? undefined
    : ((total - done) / (done - doneBefore)) * elapsed

const maxBar = 30

/** The progress without its bar. */
const textOf = (progress: Progress): string => {
  const { done, elapsed, records, total, unit = "entries" } = progress
  const rate = rateOf(progress)
  const left = leftOf(progress)
  const sizeOf = (size: number): string => (unit === "bytes" ? mebibytes(size) : Math.round(size).toLocaleString("en"))
  const parts = [
    unit === "bytes" ? mebibytes(records) : `${sizeOf(records)} ${unit}`,
    ...(rate === undefined ? [] : [`${sizeOf(rate)}/s`]),
    left === undefined ? clock(elapsed) : `${clock(left)} left`
  ]
  if (total === undefined) return parts.join(", ")
  return `${String(Math.floor(shareOf(done, total) * 100)).padStart(3)} %  ${parts.join(", ")}`
}

const shareOf = (done: number, total: number): number => (total === 0 ? 1 : Math.min(1, done / total))

/** The progress as one line of at most `cells` cells. */
export const line = (progress: Progress, cells: number): string => {
  const { done, total } = progress
  const text = textOf(progress)
  const bar = Math.min(maxBar, cells - text.length - 3)
  if (total === undefined || bar < 5) return truncate(text, cells)
  const full = Math.round(shareOf(done, total) * bar)
  return `${"#".repeat(full)}${"-".repeat(bar - full)} ${text}`
}

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
  unit: Unit = "entries"
): Effect.Effect<ProgressLine, never, Output | Scope.Scope> =>
  Effect.gen(function* () {
    const { note } = yield* Output
    const { stderr } = process
    if (!stderr.isTTY) return { advance: () => Effect.void, note }
    const clock = yield* Effect.clock
    const now = () => Number(clock.unsafeCurrentTimeNanos()) / 1e6
    const startedAt = now()
    let drawn = Number.NEGATIVE_INFINITY
    let progress: Progress = { done: doneBefore, total, doneBefore, records: 0, elapsed: 0, unit }
    const draw = () => {
      drawn = now()
      stderr.write(`${erase}${line(progress, Math.max(20, widthOf(stderr.columns) - 1))}`)
    }
    yield* Effect.acquireRelease(Effect.sync(draw), () =>
      Effect.sync(() => {
        draw()
        stderr.write("\n")
      })
    )
    const shown: ProgressLine = {
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
    return shown
  })

/** The forms of progress, and the minimum intervals between two updates, in milliseconds. */
const intervals = { bar: interval, lines: 5000, json: 1000 } as const

export type Form = keyof typeof intervals

/** The form for a command: records on standard output; on standard error a bar, and lines without a terminal. */
export const formOf = (json: boolean): Form => (json ? "json" : process.stderr.isTTY ? "bar" : "lines")

/**
 * Shows the progress of a command that has phases until the scope closes, and always the end of a phase. A command
 * continues if its progress is not read. `of` returns what is done of a phase, in the unit.
 */
export const reporter = <Phased extends { readonly phase: string }>(
  form: Form,
  unit: Unit,
  of: (progress: Phased) => { readonly done: number; readonly total: number }
): Effect.Effect<(progress: Phased) => Effect.Effect<void>, never, Output | Scope.Scope> =>
  Effect.gen(function* () {
    const output = yield* Output
    const clock = yield* Effect.clock
    const { stderr } = process
    let phase = ""
    let startedAt = Monotonic.unsafeMillis(clock)
    let shownAt = Number.NEGATIVE_INFINITY
    const endLine = (): void => {
      if (form === "bar" && phase !== "") stderr.write("\n")
    }
    yield* Effect.addFinalizer(() => Effect.sync(endLine))
    return progress =>
      Effect.suspend(() => {
        const now = Monotonic.unsafeMillis(clock)
        const { done, total } = of(progress)
        if (progress.phase !== phase) {
          endLine()
          // The time of the first phase includes its first page.
          if (phase !== "") startedAt = now
          phase = progress.phase
          shownAt = Number.NEGATIVE_INFINITY
        }
        if (now - shownAt < intervals[form] && done !== total) return Effect.void
        shownAt = now
        if (form === "json") {
          return Effect.ignore(Effect.provideService(record({ type: "progress", ...progress }), Output, output))
        }
        const shown = { done, total, records: done, doneBefore: 0, elapsed: now - startedAt, unit }
        if (form === "lines") return output.note(`${phase}: ${textOf(shown).trimStart()}`)
        const cells = Math.max(20, widthOf(stderr.columns) - 1) - phase.length - 1
        return Effect.sync(() => void stderr.write(`${erase}${phase} ${line(shown, cells)}`))
      })
  })
