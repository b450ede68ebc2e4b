/** `causeway migrate-store`: copies the store from SQLite into PostgreSQL, or back. */
import { Clock, Effect, Option } from "effect"
import type { Copied, Location, Progress } from "../../Storage/StoreCopy.ts"
import * as StoreUrl from "../../Storage/StoreUrl.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import { text } from "../CommandOptions.ts"
import * as Connection from "../Connection.ts"
import { Command } from "../Library.ts"
import { answer, Output, record, widthOf } from "../Terminal/Output.ts"
import { mebibytes } from "../Terminal/Progress.ts"

/** Bars and lines are written to standard error, JSON to standard output. */
export type Form = "bar" | "lines" | "json"

/** The rate of a phase after so many milliseconds, and its remaining time at that rate. */
export const paceOf = ({ bytes, rows, totalRows }: Progress, millis: number) => {
  const seconds = Math.max(millis, 1) / 1000
  const rowsPerSecond = rows / seconds
  return {
    rowsPerSecond: Math.round(rowsPerSecond),
    bytesPerSecond: Math.round(bytes / seconds),
    secondsLeft: rows === 0 ? 0 : Math.ceil(Math.max(totalRows - rows, 0) / rowsPerSecond)
  }
}

type Pace = ReturnType<typeof paceOf>

const whole = (count: number): string => count.toLocaleString("en-US")

/** A time such as 1:05:09 or 0:07. */
export const duration = (seconds: number): string => {
  const two = (part: number): string => String(part).padStart(2, "0")
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60]
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`
}

const paceText = ({ bytesPerSecond, rowsPerSecond, secondsLeft }: Pace): string =>
  `${whole(rowsPerSecond)} rows/s, ${mebibytes(bytesPerSecond)}/s, ${duration(secondsLeft)} left`

const percentage = ({ rows, totalRows }: Progress): number =>
  totalRows === 0 ? 100 : Math.floor((100 * rows) / totalRows)

/** Progress as one line of text. */
export const line = (progress: Progress, pace: Pace): string =>
  `${progress.phase}: ${percentage(progress)} %, ${whole(progress.rows)} of ${whole(progress.totalRows)} rows, ` +
  `${progress.table}, ${paceText(pace)}`

const maxBar = 30

/** Progress as a bar and text of at most `columns` columns. */
export const bar = (progress: Progress, pace: Pace, columns: number): string => {
  const width = Math.min(maxBar, Math.max(columns - 50, 0))
  const full = progress.totalRows === 0 ? width : Math.floor((width * progress.rows) / progress.totalRows)
  const hashes = "#".repeat(full) + "-".repeat(width - full)
  return [progress.phase.padEnd(6), hashes, `${percentage(progress)} %`, paceText(pace)].join(" ").slice(0, columns)
}

/** A finished copy as text. */
const summary = ({ epoch, from, isRestarted, tables, to }: Copied): string =>
  [
    ...(isRestarted ? ["An unfinished copy existed and was started again."] : []),
    ...tables.map(({ digest, rows, table }) => `${table.padEnd(22)}${whole(rows).padStart(15)} rows  ${digest}`),
    `Copied ${from} to ${to}, and verified it.`,
    `The change log has the new epoch ${epoch}: its readers list again.`,
    ""
  ].join("\n")

/** The minimum intervals between two lines, in milliseconds. */
const intervals = { bar: 100, lines: 5000, json: 1000 } as const

/**
 * Functions that show progress in a form, at limited intervals, and the result. It is written to standard output, with
 * `json` always as a record.
 */
export const reporter = (form: Form, json: boolean) =>
  Effect.gen(function* () {
    const output = yield* Output
    const now = Effect.map(Clock.currentTimeNanos, nanos => Number(nanos / 1_000_000n))
    let phase: Progress["phase"] | undefined
    let startedAt = yield* now
    let shownAt = Number.NEGATIVE_INFINITY
    const print = (text: string) => Effect.sync(() => void process.stderr.write(text))
    const show = (progress: Progress, pace: Pace, isNext: boolean): Effect.Effect<void> => {
      if (form === "lines") return output.note(line(progress, pace))
      if (form === "bar") {
        return print(`${isNext ? "\n" : "\r"}${bar(progress, pace, widthOf(process.stderr.columns) - 1)}\u001b[K`)
      }
      // A copy continues if its progress is not read.
      const written = Effect.ignore(record({ type: "progress", ...progress, ...pace }))
      return Effect.provideService(written, Output, output)
    }
    return {
      report: (progress: Progress) =>
        Effect.flatMap(now, moment => {
          const before = phase
          if (before !== progress.phase) {
            // The time of the first phase includes its first page.
            if (before !== undefined) startedAt = moment
            phase = progress.phase
            shownAt = Number.NEGATIVE_INFINITY
          }
          const isLast = progress.rows === progress.totalRows
          if (moment - shownAt < intervals[form] && !isLast) return Effect.void
          shownAt = moment
          return show(progress, paceOf(progress, moment - startedAt), before !== undefined && before !== phase)
        }),
      done: (copied: Copied) =>
        Effect.zipRight(
          form === "bar" && phase !== undefined ? print("\n") : Effect.void,
          answer(json, { type: "done", ...copied }, () => summary(copied))
        )
    }
  })

/** Whether the address of a database contains a password, before the host or as a parameter. */
const hasPassword = (text: string): boolean => {
  const { password, searchParams } = new URL(text)
  return password !== "" || searchParams.has("password")
}

/** The location of a store. Messages do not quote the value, which may contain a password. */
const locate = (option: string, text: string): Effect.Effect<Location, CommandFailed> =>
  Option.match(StoreUrl.locate(text), {
    onNone: () => wrong(`${option} is not sqlite:<path of a directory> or postgres://<user>@<host>:<port>/<database>.`),
    onSome: location =>
      Option.isSome(location.postgres) && hasPassword(text)
        ? wrong(
            `${option} must not have a password, as every user of the machine can see the arguments of programs. Leave ${option} out and give the address by the variable STORE_URL, or give the password by PGPASSWORD or in the file that PGPASSFILE names (~/.pgpass without it).`
          )
        : Effect.succeed(location)
  })

/** The location of a store, by default that of the environment. */
const storeOf = (option: string, given: Option.Option<string>) =>
  Option.match(given, {
    onNone: () => Effect.mapError(StoreUrl.config, error => wrong(String(error))),
    onSome: text => locate(option, text)
  })

const storeOption = (name: string, description: string) =>
  text(name, `${description}; default the store of STORE_URL`, "store")

/** `causeway migrate-store`. */
export const command = Command.make(
  "migrate-store",
  {
    from: storeOption("from", "The store to copy: sqlite:<directory> or postgres://<user>@<host>/<database>"),
    to: storeOption("to", "The store to copy to"),
    json: Connection.options.json
  },
  ({ from, json, to }) =>
    Effect.gen(function* () {
      if (Option.isNone(from) && Option.isNone(to)) {
        return yield* wrong(
          "migrate-store requires --from or --to, or both. The default of each is the store of STORE_URL."
        )
      }
      const locations = { from: yield* storeOf("--from", from), to: yield* storeOf("--to", to) }
      const { done, report } = yield* reporter(json ? "json" : process.stderr.isTTY ? "bar" : "lines", json)
      // It needs the native module of SQLite.
      const StoreCopy = yield* Effect.promise(() => import("../../Storage/StoreCopy.ts"))
      const copied = yield* Effect.catchTags(StoreCopy.copy({ ...locations, report }), {
        StoreCopyRefused: ({ message }) => failed(`Nothing was copied. ${message}`),
        StoreCopyFailed: ({ message }) =>
          failed(`The copy was not finished, and its target is not served: run the command again. ${message}`)
      })
      yield* done(copied)
    })
).pipe(Command.withDescription("Copy a store that no service uses from SQLite into PostgreSQL, or back"))
