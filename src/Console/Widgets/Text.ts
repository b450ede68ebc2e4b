/** Numbers, times and names as the page shows them. */
import { escapeOf, pictureOf, replaceHidden } from "../../base/HiddenCharacters.ts"

const units = ["B", "KiB", "MiB", "GiB", "TiB"] as const

/** A size, such as `1.5 MiB`. */
export const bytes = (count: number): string => {
  if (!Number.isFinite(count)) return "–"
  let value = count
  let unit = 0
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024
    unit++
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`
}

const grouped = new Intl.NumberFormat("en-US")

/** A whole number with groups of digits: `12,345`. */
export const count = (value: number): string => grouped.format(value)

/** A number that may be larger than it was counted: `20,000+`. */
export const atLeast = (value: number, isComplete: boolean): string => `${count(value)}${isComplete ? "" : "+"}`

export const counted = (number: number, one: string, many: string): string =>
  `${count(number)} ${number === 1 ? one : many}`

/** A number with three digits, such as `1.25k`. */
export const short = (value: number): string => {
  if (!Number.isFinite(value)) return "–"
  if (value >= 1e6) return `${(value / 1e6).toPrecision(3)}M`
  if (value >= 1e4) return `${(value / 1e3).toPrecision(3)}k`
  if (value >= 100 || Number.isInteger(value)) return count(Math.round(value))
  return value >= 10 ? value.toFixed(1) : value.toFixed(2)
}

/** A duration in milliseconds or seconds: `12.5 ms`. */
export const millis = (value: number): string => {
  if (!Number.isFinite(value)) return "–"
  return value >= 1000 ? `${(value / 1000).toPrecision(3)} s` : `${short(value)} ms`
}

const spans = [
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"]
] as const

/** A duration in its two largest units: `3 d 4 h`. */
export const duration = (ms: number): string => {
  const seconds = Math.max(0, Math.floor(ms / 1000))
  const first = spans.findIndex(([size]) => seconds >= size)
  if (first === -1) return "0 s"
  const parts = spans.slice(first, first + 2).map(([size, unit], index) => {
    const value = Math.floor((index === 0 ? seconds : seconds % spans[first]![0]) / size)
    return value === 0 ? [] : `${value} ${unit}`
  })
  return parts.flat().join(" ")
}

const timeFormat = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" })
const dateFormat = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" })
export const time = (at: number): string => timeFormat.format(at)
export const dateAndTime = (at: number): string => dateFormat.format(at)

/** A time, with its date unless it is today. */
export const timeOrDate = (at: number, now = Date.now()): string =>
  new Date(at).toDateString() === new Date(now).toDateString() ? time(at) : dateAndTime(at)

const shortDate = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" })

/** A time for a column, with its day unless it is today: `27 Nov 12:03:10`. */
export const shortTime = (at: number, now = Date.now()): string =>
  new Date(at).toDateString() === new Date(now).toDateString() ? time(at) : `${shortDate.format(at)} ${time(at)}`

/** The time since `at` in one unit, such as `5 min ago`. Both are epoch milliseconds. */
export const ago = (at: number, now: number): string => {
  const seconds = Math.round((now - at) / 1000)
  if (seconds < 5) return "now"
  const [size, unit] = spans.find(([size]) => seconds >= size)!
  return `${Math.floor(seconds / size)} ${unit} ago`
}

/** A name with its hidden characters, and spaces at its ends, replaced by visible ones. */
export const visible = (name: string): string =>
  replaceHidden(name, "name", pictureOf).replace(/^ | $/g, space => pictureOf(space))

/** A text with its hidden characters replaced by visible ones, except tabs and line feeds. */
export const visibleText = (text: string): string => replaceHidden(text, "text", pictureOf)

/** A JSON text of the same value, with escapes for hidden characters. White space stays. */
export const visibleJson = (text: string): string => replaceHidden(text, "json", escapeOf)

const rightToLeft = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/

/** A name within a sentence. If it is written from right to left, the direction of the words around it stays. */
export const isolated = (name: string): string => {
  const shown = visible(name)
  return rightToLeft.test(shown) ? `\u2068${shown}\u2069` : shown
}

/** The start of a text, with an ellipsis if it is longer than `max` UTF-16 code units. */
export const cut = (text: string, max: number): string => (text.length <= max ? text : `${text.slice(0, max - 1)}…`)
