/** Figures and times as people read them. */

const units = ["B", "KiB", "MiB", "GiB", "TiB"] as const

export const bytes = (count: number): string => {
  let value = count
  let unit = 0
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024
    unit++
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`
}

const grouped = new Intl.NumberFormat("en-US")

export const count = (value: number): string => grouped.format(value)

/** A figure with three digits, as `1.25k`. */
export const short = (value: number): string => {
  if (!Number.isFinite(value)) return "–"
  if (value >= 1e6) return `${(value / 1e6).toPrecision(3)}M`
  if (value >= 1e4) return `${(value / 1e3).toPrecision(3)}k`
  if (value >= 100 || Number.isInteger(value)) return count(Math.round(value))
  return value >= 10 ? value.toFixed(1) : value.toFixed(2)
}

export const millis = (value: number): string => {
  if (!Number.isFinite(value)) return "–"
  return value >= 1000 ? `${(value / 1000).toPrecision(3)} s` : `${short(value)} ms`
}

/** A span as its two largest units: `3 d 4 h`. */
export const duration = (ms: number): string => {
  const seconds = Math.max(0, Math.floor(ms / 1000))
  const parts = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"]
  ] as const
  const first = parts.findIndex(([value]) => value > 0)
  if (first === -1) return "0 s"
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ")
}

const timeFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" })
const dateFormat = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit"
})

export const time = (at: number): string => timeFormat.format(at)
export const dateAndTime = (at: number): string => dateFormat.format(at)

/** How long ago, in one unit. */
export const ago = (at: number, now: number): string => {
  const seconds = Math.round((now - at) / 1000)
  if (seconds < 5) return "now"
  if (seconds < 60) return `${seconds} s ago`
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h ago`
  return `${Math.round(seconds / 86_400)} d ago`
}

/** What has no shape of its own, or changes the order in which others are shown. */
const unseen =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]/g

const hex = (character: string): string => character.charCodeAt(0).toString(16).padStart(4, "0")

const pictureOf = (character: string): string => {
  const code = character.charCodeAt(0)
  if (code <= 0x20) return String.fromCharCode(0x2400 + code)
  return code === 0x7f ? "\u2421" : `<U+${hex(character).toUpperCase()}>`
}

/**
 * A name as it is shown: characters that are not seen, and those that would turn others around, become visible, as do
 * spaces at its ends. So names that differ look different.
 */
export const visible = (name: string): string => name.replace(unseen, pictureOf).replace(/^ | $/g, pictureOf)

/** A JSON text on one line as it is shown: the same value, with escapes for such characters. */
export const visibleJson = (text: string): string => text.replace(unseen, character => `\\u${hex(character)}`)

const rightToLeft = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/

/** A name within a sentence. One that is written from right to left does not turn the words and figures beside it. */
export const isolated = (name: string): string => {
  const shown = visible(name)
  return rightToLeft.test(shown) ? `\u2068${shown}\u2069` : shown
}

/** Text of one line, cut with an ellipsis. */
export const cut = (text: string, most: number): string => (text.length <= most ? text : `${text.slice(0, most - 1)}…`)
