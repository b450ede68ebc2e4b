/** How far a long command has come. */
import { truncate } from "./Table.ts"

/** What is counted beside the size: records, or bytes. */
export type Unit = "entries" | "bytes"

/** What is known of the progress. Sizes are in the unit of `total`, such as bytes; time is in milliseconds. */
export interface Progress {
  readonly done: number
  /** `undefined` where the end is not known, as with a pipe. */
  readonly total: number | undefined
  readonly records: number
  /** How much of it was done by an earlier run. */
  readonly doneBefore: number
  readonly elapsed: number
  /** What `records` are; entries without it. */
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

/** Records in each second; `undefined` in the first moments, when it would mean nothing. */
export const rateOf = ({ elapsed, records }: Progress): number | undefined =>
  elapsed < 250 || records === 0 ? undefined : (records / elapsed) * 1000

/** How long the rest takes at the pace so far, in milliseconds. */
export const leftOf = ({ done, doneBefore, elapsed, total }: Progress): number | undefined =>
  total === undefined || elapsed < 250 || done <= doneBefore
    ? undefined
    : ((total - done) / (done - doneBefore)) * elapsed

const maxBar = 30

/** The progress in one line of at most `cells` cells. */
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
