import { ConnectionFailed, ResponseTooLarge } from "./Errors.ts"
import type { Change, ChangePage } from "./Model.ts"
import { type JsonFormat, parse, type Requests } from "./Requests.ts"
import { Lifetime } from "./Time.ts"
import { type FeedPage, isPage, silenceMs, type Transport } from "./Transport.ts"

/** One event of an event stream. An event with only an id moves the position. */
interface Event {
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
  push(text: string): ReadonlyArray<Event> {
    const events: Array<Event> = []
    const lines = (this.#rest + text).split("\n")
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

/** The pages of events after a position. Their ids are `<seq>@<epoch>`. A reset has a separate page, the last one. */
const pagesOf = (
  events: ReadonlyArray<Event>,
  before: FeedPage,
  format: JsonFormat
): readonly [FeedPage, ...Array<FeedPage>] => {
  const changes: Array<Change> = []
  let { epoch, lastSeq } = before
  for (const { data, id, type } of events) {
    if (id === "") continue
    const [number = "", newEpoch = ""] = id.split("@")
    const seq = Number.parseInt(number, 10)
    const isReset = type === "reset"
    const page = parse<ChangePage>(`{"changes":[${isReset ? "" : data}],"lastSeq":${seq}}`, isPage, format)
    if (page === undefined) throw new ConnectionFailed("An event is not what the service sends", false)
    // Events after a reset are read again.
    if (isReset)
      return [
        { changes, lastSeq, epoch },
        { ...page, epoch: newEpoch }
      ]
    lastSeq = seq
    epoch = newEpoch
    changes.push(...page.changes)
  }
  return [{ changes, lastSeq, epoch }]
}

/** The change log as Server-Sent Events, by `fetch`: it can send the credential and has back-pressure. */
export const eventStream = (requests: Requests): Transport => ({
  name: "serverSentEvents",

  async *pages(query, parent) {
    const lifetime = new Lifetime(requests.clock, parent)
    const { signal } = lifetime
    try {
      const startup = lifetime.limit(silenceMs, "The event stream does not start")
      const { body, headers } = await requests.open({ path: "/changes/stream", query }, signal)
      startup.cancel()
      if (body === null || !headers.get("content-type")?.startsWith("text/event-stream")) {
        throw new ConnectionFailed("The answer is not an event stream", false)
      }
      const reader = body.getReader()
      const decoder = new TextDecoder()
      const parser = new EventParser(requests.maxResponseBytes)
      for (let last: FeedPage = { changes: [], lastSeq: query.after, epoch: query.epoch ?? "" }; ; ) {
        const silence = lifetime.limit(silenceMs, "The event stream is silent")
        const { done, value } = await requests.attempt(signal, () => reader.read())
        silence.cancel()
        if (done) throw new ConnectionFailed("The event stream has ended", false)
        const pages = pagesOf(parser.push(decoder.decode(value, { stream: true })), last, requests.json)
        yield* pages
        last = pages.at(-1) ?? last
      }
    } finally {
      lifetime.end()
    }
  }
})
