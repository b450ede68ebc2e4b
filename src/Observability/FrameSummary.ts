/**
 * What debug logs show of a WebSocket frame: its shape, names and numbers. Texts that people or agents wrote, which may
 * hold anything, are shown by their length alone; so are secrets and environments.
 */
import type { LogValue } from "./LogValue.ts"

/** Members whose texts name something. */
const named: ReadonlySet<string> = new Set([
  ...["type", "id", "sessionId", "turnId", "requestId", "callId", "toolCallId", "messageId", "instanceId", "epoch"],
  ...["traceId", "state", "status", "code", "change", "path", "previousPath", "agentType", "encoding", "hash", "name"]
])

/** Objects that are looked into; any other is shown by how many members it has. */
const opened: ReadonlySet<string> = new Set(["error", "session"])

/** Members, and characters of a text, that are shown; and characters of a frame that is read at all. */
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

/** A frame as data. */
export const ofValue = (value: unknown): LogValue =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? members(value) : member("", value)

/** The type of a frame that begins with it, as most do. */
const typeAtStart = /^\{"type":"([\w.]{1,64})"/

/** A frame as text. Of one that is long, only its type is looked for, and one that is no JSON is not looked into. */
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
