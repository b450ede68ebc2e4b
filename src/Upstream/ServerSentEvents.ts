/**
 * Server-Sent Events (HTML Standard, 9.2.6) that arrive in pieces.
 */
import { Chunk, Effect, Option, type Scope, Stream } from "effect"

/** A Server-Sent Event, without fields other than `event` and `data`. */
export interface ServerSentEvent {
  /** `message` if the event has no name. */
  readonly name: string
  readonly data: string
  /** Whether it is longer than allowed. Then its data is left out. */
  readonly isTooLong?: boolean
  /** Whether the text ended within it. The standard discards such an event, but it may be a mark of the end. */
  readonly isCut?: boolean
}

/** Maximum characters of an event. */
export const longestEvent = 1024 * 1024

/** Reads a stream of Server-Sent Events that arrives in pieces. */
export interface Reader {
  /** Adds a piece of text. Returns the events that it completes, and those that have become too long. */
  readonly push: (text: string) => ReadonlyArray<ServerSentEvent>
  /** The incomplete event at the end of the text, if it has data. */
  readonly end: () => ReadonlyArray<ServerSentEvent>
  /** The characters of the incomplete event. */
  readonly unfinished: () => number
}

/** A reader of a text without byte order mark. */
export const reader = (longest = longestEvent): Reader => {
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
    const events = data.length === 0 ? [] : [{ name: name === "" ? "message" : name, data: data.join("\n") }]
    isTooLong = false
    data = []
    length = 0
    name = ""
    return events
  }

  /** Leaves out an event that is too long. `unended` are the characters of the line that has not ended. */
  const guard = (unended: number): ReadonlyArray<ServerSentEvent> => {
    if (isTooLong || unended + length <= longest) return []
    isTooLong = true
    data = []
    length = 0
    return [{ name: "message", data: "", isTooLong }]
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
        events.push(...guard(0))
      }
      const isComment = rest.startsWith(":")
      if (!isComment) events.push(...guard(rest.length))
      // A line that is left out continues as a comment.
      if (rest !== "" && (isTooLong || isComment)) rest = ":"
      return events
    },
    end: () => {
      if (rest !== "") field(rest)
      rest = ""
      return dispatch().map(event => ({ ...event, isCut: true }))
    },
    unfinished: () => rest.length + length
  }
}

/**
 * Pulls the events of a body, in which bytes that are no UTF-8 are U+FFFD. Those that arrive together are a chunk, which may
 * be empty, and `onUnfinished` is called with the characters of the incomplete event.
 */
export const pull = <E>(
  body: Stream.Stream<Uint8Array, E>,
  longest = longestEvent,
  onUnfinished: (characters: number) => void = () => {}
): Effect.Effect<Effect.Effect<Chunk.Chunk<ServerSentEvent>, Option.Option<E>>, never, Scope.Scope> =>
  Effect.map(Stream.toPull(body), next => {
    const events = reader(longest)
    const text = new TextDecoder()
    return Effect.matchEffect(next, {
      onFailure: end => {
        const last = Option.isNone(end) ? events.end() : []
        return last.length > 0 ? Effect.succeed(Chunk.unsafeFromArray(last)) : Effect.fail(end)
      },
      onSuccess: pieces => {
        const made = Chunk.toReadonlyArray(pieces).flatMap(piece => events.push(text.decode(piece, { stream: true })))
        onUnfinished(events.unfinished())
        return Effect.succeed(Chunk.unsafeFromArray(made))
      }
    })
  })
