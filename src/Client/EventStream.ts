/** Server-Sent Events (HTML, section 9.2), by `fetch`: it can send the credential and has back-pressure. */
import { ConnectionFailed, ResponseTooLarge } from "./Errors.ts"
import type { Request, Requests } from "./Requests.ts"
import { Lifetime } from "./Time.ts"

/** The service sends something every 15 seconds: a connection without data for this long is dead. */
export const silenceMs = 40_000

/** One event of an event stream. An event with only an id moves the position. */
export interface StreamEvent {
  readonly type: string
  readonly id: string
  readonly data: string
}

/** Reads Server-Sent Events (HTML, section 9.2.6) from text that arrives in pieces. */
export class EventParser {
  #rest = ""
  #fields = new Map<string, string>()
  /** The number of characters of the fields. */
  #size = 0

  /** @param limit the maximum number of characters of an event */
  constructor(private readonly limit: number) {}

  /** The events that this piece completes. */
  push(text: string): ReadonlyArray<StreamEvent> {
    const events: Array<StreamEvent> = []
    // Only the new text is scanned, however long the line is that it continues.
    const lines = text.split("\n")
    lines[0] = this.#rest + lines[0]
    this.#rest = lines.pop() ?? ""
    for (const ended of lines) {
      const line = ended.endsWith("\r") ? ended.slice(0, -1) : ended
      const [field, value] = fieldOf(line)
      if (field !== "") {
        const before = field === "data" ? this.#fields.get(field) : undefined
        this.#fields.set(field, before === undefined ? value : `${before}\n${value}`)
        this.#size += line.length
      } else if (line === "" && this.#fields.size > 0) {
        const { data = "", event = "message", id = "" } = Object.fromEntries(this.#fields)
        events.push({ type: event, id, data })
        this.#fields.clear()
        this.#size = 0
      }
    }
    if (this.#size + this.#rest.length > this.limit) throw new ResponseTooLarge(this.limit)
    return events
  }
}

/** The field and the value of a line; a comment and an empty line have none. */
const fieldOf = (line: string): readonly [string, string] => {
  const colon = line.indexOf(":")
  if (colon === -1) return [line, ""]
  return [line.slice(0, colon), line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1)]
}

/** The events of a stream, as they arrive. It is read as they are consumed. Ends with the stream; fails if it is cut. */
export async function* readEvents(
  requests: Requests,
  request: Request,
  parent: AbortSignal
): AsyncGenerator<ReadonlyArray<StreamEvent>, void> {
  const lifetime = new Lifetime(requests.clock, parent)
  const { signal } = lifetime
  try {
    const startup = lifetime.limit(silenceMs, "The event stream does not start")
    const { body, headers } = await requests.open(request, signal)
    startup.cancel()
    if (body === null || !headers.get("content-type")?.startsWith("text/event-stream")) {
      throw new ConnectionFailed("The answer is not an event stream", false)
    }
    const reader = body.getReader()
    // The signal ends the request as well, but Deno's `fetch` may lose it after the headers.
    signal.addEventListener("abort", () => void reader.cancel().catch(() => {}))
    const decoder = new TextDecoder()
    const parser = new EventParser(requests.maxResponseBytes)
    for (;;) {
      const silence = lifetime.limit(silenceMs, "The event stream is silent")
      const { done, value } = await requests.attempt(signal, () => reader.read())
      silence.cancel()
      if (done) return
      yield parser.push(decoder.decode(value, { stream: true }))
    }
  } finally {
    lifetime.end()
  }
}
