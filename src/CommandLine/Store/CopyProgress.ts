/** Shows the progress of a copy of a store: a bar on a terminal, lines in a pipe, or JSON lines. */
import { Clock, Console, Effect } from "effect"
import type { Copied, Progress as CopyProgress } from "../../Storage/StoreCopy.ts"
import { widthOf } from "../Terminal/Table.ts"

/** Bars and lines are written to standard error, JSON to standard output. */
export type Form = "bar" | "lines" | "json"

type Phase = CopyProgress["phase"]

/** The rate of a phase, and its remaining time at that rate. */
export interface Pace {
  readonly rowsPerSecond: number
  readonly bytesPerSecond: number
  readonly secondsLeft: number
}

/** The pace of a phase after so many milliseconds. */
export const paceOf = ({ bytes, rows, totalRows }: CopyProgress, millis: number): Pace => {
  const seconds = Math.max(millis, 1) / 1000
  const rowsPerSecond = rows / seconds
  return {
    rowsPerSecond: Math.round(rowsPerSecond),
    bytesPerSecond: Math.round(bytes / seconds),
    secondsLeft: rows === 0 ? 0 : Math.ceil(Math.max(totalRows - rows, 0) / rowsPerSecond)
  }
}

const whole = (count: number): string => count.toLocaleString("en-US")

const mebibytes = (bytes: number): string => `${(bytes / 1024 / 1024).toFixed(1)} MiB`

/** A time such as 1:05:09 or 0:07. */
export const duration = (seconds: number): string => {
  const two = (part: number): string => String(part).padStart(2, "0")
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60]
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`
}

const paceText = ({ bytesPerSecond, rowsPerSecond, secondsLeft }: Pace): string =>
  `${whole(rowsPerSecond)} rows/s, ${mebibytes(bytesPerSecond)}/s, ${duration(secondsLeft)} left`

const percentage = ({ rows, totalRows }: CopyProgress): number =>
  totalRows === 0 ? 100 : Math.floor((100 * rows) / totalRows)

/** Progress as one line of text. */
export const line = (progress: CopyProgress, pace: Pace): string =>
  `${progress.phase}: ${percentage(progress)} %, ${whole(progress.rows)} of ${whole(progress.totalRows)} rows, ` +
  `${progress.table}, ${paceText(pace)}`

/** A finished copy as text. */
export const summary = ({ epoch, from, isRestarted, tables, to }: Copied): string =>
  [
    ...(isRestarted ? ["An unfinished copy existed and was started again."] : []),
    ...tables.map(({ digest, rows, table }) => `${table.padEnd(22)}${whole(rows).padStart(15)} rows  ${digest}`),
    `Copied ${from} to ${to}, and verified it.`,
    `The change log has the new epoch ${epoch}: its readers list again.`
  ].join("\n")

/** The minimum intervals between two lines, in milliseconds. */
const intervals = { bar: 100, lines: 5000, json: 1000 } as const

interface Output {
  readonly progress: (progress: CopyProgress, pace: Pace) => Effect.Effect<void>
  /** Ends the output. */
  readonly end: Effect.Effect<void>
}

const maxBar = 30

/** Progress as a bar and text of at most `columns` columns. */
export const bar = (progress: CopyProgress, pace: Pace, columns: number): string => {
  const width = Math.min(maxBar, Math.max(columns - 50, 0))
  const full = progress.totalRows === 0 ? width : Math.floor((width * progress.rows) / progress.totalRows)
  const parts = [
    progress.phase.padEnd(6),
    "#".repeat(full) + "-".repeat(width - full),
    `${percentage(progress)} %`,
    paceText(pace)
  ]
  return parts.join(" ").slice(0, columns)
}

const terminal = Effect.sync((): Output => {
  let shown: Phase | undefined
  const print = (text: string) => Effect.sync(() => void process.stderr.write(text))
  return {
    progress: (progress, pace) =>
      Effect.suspend(() => {
        const start = shown === undefined || shown === progress.phase ? "\r" : "\n"
        shown = progress.phase
        return print(`${start}${bar(progress, pace, widthOf(process.stderr.columns) - 1)}\u001b[K`)
      }),
    end: Effect.suspend(() => (shown === undefined ? Effect.void : print("\n")))
  }
})

const lines: Output = {
  progress: (progress, pace) => Console.error(line(progress, pace)),
  end: Effect.void
}

const json: Output = {
  progress: (progress, pace) => Console.log(JSON.stringify({ type: "progress", ...progress, ...pace })),
  end: Effect.void
}

const outputOf = (form: Form): Effect.Effect<Output> =>
  form === "bar" ? terminal : Effect.succeed(form === "json" ? json : lines)

/** Shows progress at limited intervals, and the result. */
export interface Reporter {
  readonly report: (progress: CopyProgress) => Effect.Effect<void>
  readonly done: (copied: Copied) => Effect.Effect<void>
}

/** A reporter of progress in a form. The result is written to standard output, as a record or as text. */
export const make = (form: Form, isRecord: boolean): Effect.Effect<Reporter> =>
  Effect.gen(function* () {
    const output = yield* outputOf(form)
    const now = Effect.map(Clock.currentTimeNanos, nanos => Number(nanos / 1_000_000n))
    let phase: Phase | undefined
    let startedAt = yield* now
    let shownAt = Number.NEGATIVE_INFINITY
    return {
      report: progress =>
        Effect.flatMap(now, moment => {
          if (phase !== progress.phase) {
            // The time of the first phase includes its first page.
            if (phase !== undefined) startedAt = moment
            phase = progress.phase
            shownAt = Number.NEGATIVE_INFINITY
          }
          const isLast = progress.rows === progress.totalRows
          if (moment - shownAt < intervals[form] && !isLast) return Effect.void
          shownAt = moment
          return output.progress(progress, paceOf(progress, moment - startedAt))
        }),
      done: copied =>
        Effect.zipRight(
          output.end,
          Console.log(isRecord ? JSON.stringify({ type: "done", ...copied }) : summary(copied))
        )
    }
  })
