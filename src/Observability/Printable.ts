/**
 * Any value as plain JSON data, for logs: it never throws, never loops, shows no secret and has a bounded size.
 */
import { Cause, Inspectable, Redacted } from "effect"

/** JSON data. */
export type Printable =
  | string
  | number
  | boolean
  | null
  | ReadonlyArray<Printable>
  | { readonly [key: string]: Printable }

/** Levels of arrays and objects that are shown. */
const maxDepth = 8

/** Members of one array or object that are shown. */
const maxMembers = 100

/** Characters of one text that are shown. */
const maxText = 16_384

/** A text cut to a bounded length. */
export const shorten = (text: string): string =>
  text.length <= maxText ? text : `${text.slice(0, maxText)}… (${text.length} characters)`

const ofObject = (value: object, above: ReadonlyArray<object>): Printable => {
  if (Redacted.isRedacted(value)) return "<redacted>"
  if (above.includes(value)) return "[circular]"
  if (Cause.isCause(value)) return shorten(Cause.pretty(value, { renderErrorCause: true }))
  if (value instanceof Error) return shorten(Cause.pretty(Cause.fail(value), { renderErrorCause: true }))
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`
  if (above.length >= maxDepth) return "[…]"
  const within = [...above, value]
  if (Inspectable.isRedactable(value)) return of(Inspectable.redact(value), within)
  if ("toJSON" in value && typeof value.toJSON === "function") return of(value.toJSON(), within)
  if (Symbol.iterator in value && typeof value[Symbol.iterator] === "function") {
    return ofIterable(value as Iterable<unknown>, within)
  }
  return ofMembers(value, within)
}

const ofIterable = (values: Iterable<unknown>, within: ReadonlyArray<object>): Printable => {
  const shown: Array<Printable> = []
  for (const value of values) {
    if (shown.length === maxMembers) {
      shown.push("[…]")
      break
    }
    shown.push(of(value, within))
  }
  return shown
}

const ofMembers = (value: object, within: ReadonlyArray<object>): Printable => {
  const keys = Object.keys(value)
  const members = keys.slice(0, maxMembers).map((key): [string, Printable] => {
    const member: unknown = Reflect.get(value, key)
    return [key, of(member, within)]
  })
  if (keys.length > maxMembers) members.push(["…", `${keys.length - maxMembers} more`])
  return Object.fromEntries(members)
}

const of = (value: unknown, above: ReadonlyArray<object>): Printable => {
  try {
    switch (typeof value) {
      case "string":
        return shorten(value)
      case "boolean":
        return value
      case "number":
        return Number.isFinite(value) ? value : String(value)
      case "object":
        return value === null ? null : ofObject(value, above)
      case "function":
        return `[function ${value.name}]`
      default:
        return String(value)
    }
  } catch {
    return "[unreadable]"
  }
}

/** A value as JSON data, with marks where something was left out. */
export const fromUnknown = (value: unknown): Printable => of(value, [])

/** A value as one text: texts as they are, anything else as JSON. */
export const toText = (value: unknown): string => {
  const printable = fromUnknown(value)
  return typeof printable === "string" ? printable : JSON.stringify(printable)
}
