/** The progress of a long command as text. */
import { truncate } from "./Table.ts"

/** What is counted: entries or bytes. */
export type Unit = "entries" | "bytes"

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

/** The progress as one line of at most `cells` cells. */
export const line = (progress: Progress, cells: number): string => {
  const { done, elapsed, records, total, unit = "entries" } = progress
  const rate = rateOf(progress)
  const left = leftOf(progress)
  const parts = [
    unit === "bytes" ? mebibytes(records) : `${records.toLocaleString("en")} entries`,
    ...(rate === undefined
      ? []
      : [unit === "bytes" ? `${mebibytes(rate)}/s` : `${Math.round(rate).toLocaleString("en")}/s`]),
    left === undefined ? clock(elapsed) : `${clock(left)} left`
  ]
  if (total === undefined) return truncate(parts.join(", "), cells)
  const share = total === 0 ? 1 : Math.min(1, done / total)
  const percent = `${String(Math.floor(share * 100)).padStart(3)} %`
  const text = `${percent}  ${parts.join(", ")}`
  const bar = Math.min(maxBar, cells - text.length - 3)
  if (bar < 5) return truncate(text, cells)
  const full = Math.round(share * bar)
  return `${"#".repeat(full)}${"-".repeat(bar - full)} ${text}`
}
