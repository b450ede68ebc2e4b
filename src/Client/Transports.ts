/** The transports of the change log: Server-Sent Events, WebSockets and long polls. */
import { ConnectionFailed, ResponseTooLarge } from "./Errors.ts"
import { readEvents, type StreamEvent, silenceMs } from "./EventStream.ts"
import type { Change, ChangePage, TransportName } from "./Model.ts"
import {
  base64Url,
  epochOf,
  type JsonFormat,
  json,
  openSocket,
  parse,
  type Reader,
  type Requests,
  type WebSocketConstructor,
  type WebSocketLike
} from "./Requests.ts"
import { abortable, Lifetime } from "./Time.ts"

/** The part of the log to read. */
export type FeedQuery = {
  /** Only changes with a greater `seq`. */
  readonly after: number
  /** The epoch of the log to which `after` belongs, if it is known. */
  readonly epoch: string | undefined
  /** Only the changes of this tenant; default all. */
  readonly tenant: string | undefined
  /** Only the changes of this namespace; default all. */
  readonly namespace?: string | undefined
  /** Only the changes of keys that start with this. */
  readonly prefix?: string | undefined
  /** The maximum number of changes in a page. */
  readonly limit: number
}

/** A part of the log, and the epoch of the log; `""` if it is unknown. */
export interface FeedPage extends ChangePage {
  readonly epoch: string
}

/** The selection of changes. */
export type Part = Pick<FeedQuery, "tenant" | "namespace" | "prefix">

/** A position of the log, with the epoch if it is known. */
export type Position = Pick<FeedQuery, "after" | "epoch">

/** Whether a page belongs to another log than the position, or to one that ends before it. */
export const isReset = ({ epoch, lastSeq }: FeedPage, known: Position): boolean =>
  lastSeq < known.after || (known.epoch !== undefined && isOther(epoch, known.epoch))

export const isOther = (epoch: string | undefined, known: string): boolean =>
  epoch !== undefined && epoch !== "" && known !== "" && epoch !== known

/** A connection that delivers changes as they happen. */
export interface Transport {
  readonly name: TransportName
  /**
   * The changes after `query.after` while the connection lasts. The first page is empty and confirms the connection.
   * Fails if the connection is lost. Ends if the log should be read by pages, such as after a reset.
   */
  readonly pages: (query: FeedQuery, signal: AbortSignal) => AsyncGenerator<FeedPage, void>
}

/** Whether an answer is a page of the log. */
export const isPage = ({ changes, lastSeq }: ChangePage): boolean =>
  Number.isSafeInteger(lastSeq) && Array.isArray(changes) && changes.every(({ seq }) => Number.isSafeInteger(seq))

/** The pages of events after a position. Their ids are `<seq>@<epoch>`. A reset has a separate page, the last one. */
const pagesOf = (
  events: ReadonlyArray<StreamEvent>,
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

  async *pages(query, signal) {
    let last: FeedPage = { changes: [], lastSeq: query.after, epoch: query.epoch ?? "" }
    for await (const events of readEvents(requests, { path: "/changes/stream", query }, signal)) {
      const pages = pagesOf(events, last, requests.json)
      yield* pages
      last = pages.at(-1) ?? last
    }
    throw new ConnectionFailed("The event stream has ended", false)
  }
})

/** The maximum number of characters of queued frames. A WebSocket cannot be paused: it is closed beyond that. */
const maxQueued = 4 * 1024 * 1024

class FrameBuffer {
  readonly #frames: Array<string> = []
  #queued = 0
  #isFull = false
  #failure: Error | undefined
  #wake = () => {}

  /** Adds a frame. After the first one that exceeds the limit, all frames are dropped. */
  push(frame: string): void {
    this.#isFull ||= this.#queued > 0 && this.#queued + frame.length > maxQueued
    if (this.#isFull) return this.#wake()
    this.#frames.push(frame)
    this.#queued += frame.length
    this.#wake()
  }

  /** Fails after the queued frames are consumed. */
  fail(failure: Error): void {
    this.#failure ??= failure
    this.#wake()
  }

  /** Waits for the next frame; `undefined` if later frames were dropped. */
  async shift(signal: AbortSignal): Promise<string | undefined> {
    for (;;) {
      const frame = this.#frames.shift()
      if (frame !== undefined) {
        this.#queued -= frame.length
        return frame
      }
      if (this.#isFull) return undefined
      if (this.#failure !== undefined) throw this.#failure
      const changed = new Promise<void>(resolve => {
        this.#wake = resolve
      })
      await abortable(changed, signal)
    }
  }

  get isFull(): boolean {
    return this.#isFull
  }
}

/** A heartbeat and a reset have no changes. */
type Frame = Partial<FeedPage> & Pick<FeedPage, "lastSeq">

const isFrame = ({ changes = [], lastSeq }: Frame): boolean => isPage({ changes, lastSeq })

export const webSocket = (requests: Requests, Constructor: WebSocketConstructor): Transport => ({
  name: "webSocket",

  async *pages(query, parent) {
    const lifetime = new Lifetime(requests.clock, parent)
    let socket: WebSocketLike | undefined
    try {
      const { signal } = lifetime
      const silence = lifetime.limit(silenceMs, "The WebSocket is silent")
      const opened = await openSocket(requests, Constructor, { path: "/changes/ws", query }, signal, base64Url)
      socket = opened
      const frames = new FrameBuffer()
      const receive = (frame: unknown) => {
        silence.restart()
        if (typeof frame === "string") {
          if (frame.length <= requests.maxResponseBytes) frames.push(frame)
          else frames.fail(new ResponseTooLarge(requests.maxResponseBytes))
        }
        if (!frames.isFull) return
        silence.cancel()
        opened.close()
      }
      opened.addEventListener("open", () =>
        receive(JSON.stringify({ type: "heartbeat", lastSeq: query.after, epoch: query.epoch }))
      )
      opened.addEventListener("message", ({ data }) => receive(data))
      opened.addEventListener("error", () => frames.fail(new ConnectionFailed("The WebSocket failed", false)))
      opened.addEventListener("close", ({ code, reason }) =>
        frames.fail(new ConnectionFailed(`The WebSocket was closed: ${code} ${reason}`, false))
      )
      for (let text = await frames.shift(signal); text !== undefined; text = await frames.shift(signal)) {
        const frame = parse(text, isFrame, requests.json)
        if (frame === undefined) throw new ConnectionFailed("A frame is not what the service sends", false)
        const { changes = [], epoch = "", lastSeq } = frame
        yield { changes, lastSeq, epoch }
      }
    } finally {
      lifetime.end()
      socket?.close()
    }
  }
})

/** How long a failed transport is skipped, and how long polls continue before a better one is tried. */
export const skippedMs = 300_000

const pollWaitSeconds = 30

const readChanges = json<ChangePage>(isPage)

const readPage: Reader<PolledPage> = async (response, limitBytes, format) => ({
  ...(await readChanges(response, limitBytes, format)),
  epoch: epochOf(response),
  hasMore: response.headers.get("kv-more") === "true"
})

export interface PolledPage extends FeedPage {
  /** Whether the log may continue after the page, which may have no changes. */
  readonly hasMore: boolean
}

/** A page of the log; with `wait`, the service waits for changes. */
export const poll = (requests: Requests, query: FeedQuery & { readonly wait?: number }, signal: AbortSignal) => {
  const timeoutMs = query.wait === undefined ? undefined : silenceMs
  return requests.ask({ path: "/changes", query, timeoutMs }, signal, readPage)
}

export const longPolling = (requests: Requests): Transport => ({
  name: "longPolling",

  async *pages(query, signal) {
    const { now } = requests.clock
    yield { changes: [], lastSeq: query.after, epoch: query.epoch ?? "" }
    const end = now() + skippedMs
    for (let after = query.after; now() < end; ) {
      const startedAt = now()
      const page = await poll(requests, { ...query, after, wait: pollWaitSeconds }, signal)
      const isEmpty = page.changes.length === 0 && page.lastSeq === after
      if (isEmpty && now() - startedAt < 1000) throw new ConnectionFailed("The poll did not wait", false)
      yield page
      after = page.lastSeq
    }
  }
})
