/**
 * Converts any value to JSON data for a log line. It never throws, ends on cycles, shows no secret and bounds the size.
 */
import { Cause, Inspectable, Redacted } from "effect"

/** JSON data. */
export type LogValue = string | number | boolean | null | ReadonlyArray<LogValue> | { readonly [key: string]: LogValue }

/** Levels of arrays and objects that are shown. */
const maxDepth = 8

/** Characters that are shown of one value and its parts together. */
const maxLength = 32_768

/** Characters that are counted for a value in addition to its text, for brackets, a comma and a name. */
const overhead = 16

const omitted = "[…]"

/** Converts one value within one budget of characters. */
class Printer {
  private left = maxLength

  of(value: unknown, above: ReadonlyArray<object>): LogValue {
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

  private object(value: object, above: ReadonlyArray<object>): LogValue {
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

  private iterable(values: Iterable<unknown>, within: ReadonlyArray<object>): LogValue {
    const shown: Array<LogValue> = []
    for (const value of values) {
      shown.push(this.of(value, within))
      if (this.left <= 0) break
    }
    return shown
  }

  private members(value: object, within: ReadonlyArray<object>): LogValue {
    const shown: Array<[string, LogValue]> = []
    for (const key of Object.keys(value)) {
      const member: unknown = Reflect.get(value, key)
      shown.push([this.text(key), this.of(member, within)])
      if (this.left <= 0) break
    }
    return Object.fromEntries(shown)
  }
}

/** A value as JSON data, with marks for omitted parts. */
export const fromUnknown = (value: unknown): LogValue => new Printer().of(value, [])

/** A string unchanged, any other value as JSON text. */
export const toText = (value: unknown): string => {
  const shown = fromUnknown(value)
  return typeof shown === "string" ? shown : JSON.stringify(shown)
}

/** Members whose strings are shown. */
const named: ReadonlySet<string> = new Set([
  ...["type", "id", "sessionId", "turnId", "requestId", "callId", "toolCallId", "messageId", "instanceId", "epoch"],
  ...["traceId", "state", "status", "code", "change", "path", "previousPath", "agentType", "encoding", "hash", "name"]
])

/** Members whose objects are shown; of other objects only the number of members is. */
const opened: ReadonlySet<string> = new Set(["error", "session"])

/** Members of an object and characters of a string that are shown; characters of a frame that is parsed. */
const limits = { members: 32, text: 128, frame: 65_536 }

const lengthOf = (text: string): string => `<${text.length} characters>`

const member = (name: string, value: unknown): LogValue => {
  switch (typeof value) {
    case "string":
      return named.has(name) && value.length <= limits.text ? value : lengthOf(value)
    case "number":
    case "boolean":
      return value
    case "object":
      if (value === null) return null
      if (Array.isArray(value)) return `<${value.length} elements>`
      return opened.has(name) ? members(value) : `<${Object.keys(value).length} members>`
    default:
      return `<${typeof value}>`
  }
}

const members = (value: object): LogValue =>
  Object.fromEntries(
    Object.entries(value)
      .slice(0, limits.members)
      .map(([name, value]) => [name.length <= limits.text ? name : lengthOf(name), member(name, value)])
  )

/** The summary of a parsed frame. */
export const ofValue = (value: unknown): LogValue =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? members(value) : member("", value)

/** The type of a frame, if it is the first member. */
const typeAtStart = /^\{"type":"([\w.]{1,64})"/

/** The summary of a frame as text: only type and length if it is long, only the length if it is not JSON. */
export const ofText = (text: string): LogValue => {
  if (text.length > limits.frame) {
    const type = typeAtStart.exec(text)?.[1]
    return type === undefined ? lengthOf(text) : { type, frame: lengthOf(text) }
  }
  try {
    return ofValue(JSON.parse(text))
  } catch {
    return lengthOf(text)
  }
}
