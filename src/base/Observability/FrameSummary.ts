/**
 * Summaries of WebSocket frames for debug logs: names and numbers. For texts of users or agents, secrets and
 * environment variables only the length is shown.
 */
import type { LogValue } from "./LogValue.ts"

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
