import { ConnectionFailed, ResponseTooLarge } from "./Errors.ts"
import { parse, type Requests } from "./Requests.ts"
import { abortable, Lifetime } from "./Time.ts"
import { type FeedPage, isPage, silenceMs, type Transport } from "./Transport.ts"
import { base64Url, connect, type WebSocketConstructor, type WebSocketLike } from "./WebSocket.ts"

/** Characters of frames that wait to be taken. Beyond that the connection is given up, as it cannot be paused. */
const maxWaiting = 4 * 1024 * 1024

/** Frames that wait to be taken. */
class FrameBuffer {
  readonly #frames: Array<string> = []
  #waiting = 0
  #isFull = false
  #failure: Error | undefined
  #wake = () => {}

  /** Takes a frame, unless too many characters wait already; from then on none is taken. */
  push(frame: string): void {
    this.#isFull ||= this.#waiting > 0 && this.#waiting + frame.length > maxWaiting
    if (this.#isFull) return this.#wake()
    this.#frames.push(frame)
    this.#waiting += frame.length
    this.#wake()
  }

  /** Fails once the frames that wait are taken. */
  fail(failure: Error): void {
    this.#failure ??= failure
    this.#wake()
  }

  /** The next frame, once there is one; `undefined` where frames after it were not taken. */
  async shift(signal: AbortSignal): Promise<string | undefined> {
    for (;;) {
      const frame = this.#frames.shift()
      if (frame !== undefined) {
        this.#waiting -= frame.length
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
      const silence = lifetime.limit(silenceMs, "Nothing comes over the WebSocket")
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
