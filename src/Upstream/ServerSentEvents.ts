/**
 * Server-Sent Events (HTML Standard, 9.2.6) that arrive in pieces.
 */

/** A Server-Sent Event, without fields other than `event` and `data`. */
export interface ServerSentEvent {
  /** `message` if the event has no name. */
  readonly name: string
  readonly data: string
  /** Whether it was longer than allowed. Then its data is left out. */
  readonly isTooLong?: boolean
}

/** Maximum characters of an event. */
export const longestEvent = 1024 * 1024

/** An event is longer than allowed. */
export class EventTooLong extends Error {
  override readonly name = "EventTooLong"
}

/** Reads a stream of Server-Sent Events that arrives in pieces. */
export interface Reader {
  /** Adds a piece of text. Returns the events that it completes. Throws `EventTooLong`. */
  readonly push: (text: string) => ReadonlyArray<ServerSentEvent>
  /**
   * The incomplete event at the end of the text, if it has data.
   *
   * The standard discards it, but it may be a mark of the end.
   */
  readonly end: () => ReadonlyArray<ServerSentEvent>
  /** The characters of the incomplete event. */
  readonly unfinished: () => number
}

/** A reader of a text without byte order mark. `leavesOut`: it throws nothing, and leaves out data that is too long. */
export const reader = (longest = longestEvent, leavesOut = false): Reader => {
  let rest = ""
  let data: Array<string> = []
  let length = 0
  let name = ""
  // A CR LF may be split between two pieces.
  let afterReturn = false
  let isTooLong = false

  const field = (line: string): void => {
    const colon = line.indexOf(":")
    const key = colon === -1 ? line : line.slice(0, colon)
    const value = colon === -1 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1))
    if (key === "event") name = value
    if (key !== "data" || isTooLong) return
    data.push(value)
    length += value.length + 1
  }

  const dispatch = (): ReadonlyArray<ServerSentEvent> => {
    const named = { name: name === "" ? "message" : name, data: data.join("\n") }
    const events = isTooLong ? [{ ...named, isTooLong }] : data.length === 0 ? [] : [named]
    isTooLong = false
    data = []
    length = 0
    name = ""
    return events
  }

  /** `unended` are the characters of the line that has not ended. */
  const guard = (unended: number): void => {
    if (unended + length <= longest) return
    if (!leavesOut) throw new EventTooLong(`an event is longer than ${longest} characters`)
    isTooLong = true
    data = []
    length = 0
  }

  /** A line that is left out continues as a comment. */
  const guardRest = (): void => {
    if (!leavesOut || !rest.startsWith(":")) guard(rest.length)
    if (leavesOut && rest !== "" && (isTooLong || rest.startsWith(":"))) rest = ":"
  }

  return {
    push: text => {
      const fresh = afterReturn && text.startsWith("\n") ? text.slice(1) : text
      if (text !== "") afterReturn = text.endsWith("\r")
      // Only the new text is searched, so that a long line in small pieces takes linear time.
      const lines = fresh.split(/\r\n|\r|\n/)
      lines[0] = rest + lines[0]
      rest = lines.pop()!
      const events: Array<ServerSentEvent> = []
      for (const line of lines) {
        if (line === "") events.push(...dispatch())
        else field(line)
        guard(leavesOut ? 0 : rest.length)
      }
      guardRest()
      return events
    },
    end: () => {
      if (rest !== "") field(rest)
      rest = ""
      return dispatch()
    },
    unfinished: () => rest.length + length
  }
}
