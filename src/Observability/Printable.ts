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

/** Characters of one value that are shown, its parts together. */
const maxLength = 32_768

/** What is charged for a value beside its text: brackets, a comma, a name. */
const overhead = 16

const omitted = "[…]"

/** Prints one value, within one budget. */
class Printer {
  private left = maxLength

  of(value: unknown, above: ReadonlyArray<object>): Printable {
    this.left -= overhead
    if (this.left <= 0) return omitted
    try {
      switch (typeof value) {
        case "string":
          return this.text(value)
        case "boolean":
          return value
        case "number":
          return Number.isFinite(value) ? value : String(value)
        case "object":
          return value === null ? null : this.object(value, above)
        case "function":
          return this.text(`[function ${value.name}]`)
        default:
          return this.text(String(value))
      }
    } catch {
      return "[unreadable]"
    }
  }

  private text(text: string): string {
    const room = Math.max(0, this.left)
    this.left -= text.length
    return text.length <= room ? text : `${text.slice(0, room)}… (${text.length} characters)`
  }

  private object(value: object, above: ReadonlyArray<object>): Printable {
    if (Redacted.isRedacted(value)) return "<redacted>"
    if (above.includes(value)) return "[circular]"
    if (Cause.isCause(value)) return this.text(Cause.pretty(value, { renderErrorCause: true }))
    if (value instanceof Error) return this.text(Cause.pretty(Cause.fail(value), { renderErrorCause: true }))
    if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`
    if (above.length >= maxDepth) return omitted
    const within = [...above, value]
    if (Inspectable.isRedactable(value)) return this.of(Inspectable.redact(value), within)
    if ("toJSON" in value && typeof value.toJSON === "function") return this.of(value.toJSON(), within)
    if (Symbol.iterator in value && typeof value[Symbol.iterator] === "function") {
      return this.iterable(value as Iterable<unknown>, within)
    }
    return this.members(value, within)
  }

  private iterable(values: Iterable<unknown>, within: ReadonlyArray<object>): Printable {
    const shown: Array<Printable> = []
    for (const value of values) {
      shown.push(this.of(value, within))
      if (this.left <= 0) break
    }
    return shown
  }

  private members(value: object, within: ReadonlyArray<object>): Printable {
    const shown: Array<[string, Printable]> = []
    for (const key of Object.keys(value)) {
      const member: unknown = Reflect.get(value, key)
      shown.push([this.text(key), this.of(member, within)])
      if (this.left <= 0) break
    }
    return Object.fromEntries(shown)
  }
}

/** A value as JSON data, with marks where something was left out. */
export const fromUnknown = (value: unknown): Printable => new Printer().of(value, [])

/** A value as one text: texts as they are, anything else as JSON. */
export const toText = (value: unknown): string => {
  const printable = fromUnknown(value)
  return typeof printable === "string" ? printable : JSON.stringify(printable)
}
