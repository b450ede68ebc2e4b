import { ConnectionFailed, ResponseTooLarge } from "./Errors.ts"
import { parse, type Requests } from "./Requests.ts"
import { abortable, Lifetime } from "./Time.ts"
import { type FeedPage, isPage, silenceMs, type Transport } from "./Transport.ts"
import { base64Url, connect, type WebSocketConstructor, type WebSocketLike } from "./WebSocket.ts"

/** The maximum number of characters of queued frames. A WebSocket cannot be paused: it is closed beyond that. */
const maxQueued = 4 * 1024 * 1024

/** A queue of frames. */
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

/** The change log over a WebSocket. */
export const webSocket = (requests: Requests, Constructor: WebSocketConstructor): Transport => ({
  name: "webSocket",

  async *pages(query, parent) {
    const lifetime = new Lifetime(requests.clock, parent)
    let socket: WebSocketLike | undefined
    try {
      const { signal } = lifetime
      const silence = lifetime.limit(silenceMs, "The WebSocket is silent")
      const url = requests.url({ path: "/changes/ws", query })
      url.protocol = url.protocol.replace("http", "ws")
      const token = await requests.credential(signal)
      const opened = await requests.attempt(signal, async () => connect(Constructor, url.href, token, base64Url(token)))
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
