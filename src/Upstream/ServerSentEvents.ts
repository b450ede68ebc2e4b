/**
 * A parser of Server-Sent Events (HTML Standard, 9.2.6).
 */

/** An event, without fields other than `event` and `data`. */
export interface ServerSentEvent {
  /** `message` if the event has no name. */
  readonly name: string
  readonly data: string
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
}

/** A reader of a text without byte order mark. */
export const reader = (): Reader => {
  let rest = ""
  let data: Array<string> = []
  let length = 0
  let name = ""
  // A CR LF may be split between two pieces.
  let afterReturn = false

  const field = (line: string): void => {
    const colon = line.indexOf(":")
    const key = colon === -1 ? line : line.slice(0, colon)
    const value = colon === -1 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1))
    if (key === "event") name = value
    if (key !== "data") return
    data.push(value)
    length += value.length + 1
  }

  const dispatch = (): ReadonlyArray<ServerSentEvent> => {
    const events = data.length === 0 ? [] : [{ name: name === "" ? "message" : name, data: data.join("\n") }]
    data = []
    length = 0
    name = ""
    return events
  }

  const guard = (): void => {
    if (rest.length + length > longestEvent) {
      throw new EventTooLong(`an event is longer than ${longestEvent} characters`)
    }
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
        guard()
      }
      guard()
      return events
    },
    end: () => {
      if (rest !== "") field(rest)
      rest = ""
      return dispatch()
    }
  }
}
