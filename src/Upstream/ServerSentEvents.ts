/**
 * Reading Server-Sent Events (HTML Standard, 9.2.6): pure, text in and events out.
 */

/** An event whose fields other than `event` and `data` nobody asked for. */
export interface ServerSentEvent {
  /** `message` where the event has no name. */
  readonly name: string
  readonly data: string
}

/** Characters of an event that has not ended yet; beyond, reading fails. */
export const longestEvent = 1024 * 1024

/** An event is longer than allowed. */
export class EventTooLong extends Error {
  override readonly name = "EventTooLong"
}

/** Takes text as it comes, cut anywhere, and gives the events that it completes. */
export interface Reader {
  /** Throws `EventTooLong`. */
  readonly push: (text: string) => ReadonlyArray<ServerSentEvent>
  /**
   * The event that the end of the text cuts off, if any of its lines is whole or the last line is `data`.
   *
   * The standard discards it; whoever waits for a mark of the end may still want to see it.
   */
  readonly end: () => ReadonlyArray<ServerSentEvent>
}

/** A reader at the beginning of a text, whose byte order mark has been taken off. */
export const reader = (): Reader => {
  let rest = ""
  let data: Array<string> = []
  let length = 0
  let name = ""
  // A line feed that begins a piece may belong to a carriage return that ended the one before.
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
      // Only what is new is searched, so that a long line in small pieces stays cheap.
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
