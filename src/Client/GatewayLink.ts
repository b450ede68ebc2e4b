import { closeError, ShedLoad, whyRefused } from "./ConnectionEnd.ts"
import { ConnectionFailed, ResponseTooLarge, refused } from "./Errors.ts"
import type { Answer, RequestFrame } from "./GatewayFrames.ts"
import { parse, type Requests } from "./Requests.ts"
import { isTransient } from "./Retry.ts"
import { AnswerLost, ConnectionClosed, isSessionsError, RequestRefused } from "./SessionErrors.ts"
import type { ConnectionStatus, SessionEvent } from "./SessionModel.ts"
import { Backoff, Lifetime, pause } from "./Time.ts"
import { connect, type WebSocketConstructor, type WebSocketLike } from "./WebSocket.ts"

/** Milliseconds without a frame before a ping is sent, and before the connection is taken for dead. */
const pingAfterMs = 25_000
const silenceMs = 35_000

/** Milliseconds that a handshake may take, the token included. */
const handshakeMs = 15_000

/** How long a connection lasts that counts as a success. */
const stableMs = 60_000

/** The shortest pause after a close code by which the gateway sheds load. */
const rateLimitedMs = 5000

/** Requests without an answer, and frames in a second; the gateway takes 64 and 100. */
const maxUnanswered = 48
const maxPerSecond = 80

/** The most bytes of one request; the gateway closes the connection of a larger one. */
const maxFrameBytes = 1024 * 1024

/** The most bytes of all requests that wait for an answer. */
const maxWaitingBytes = 16 * 1024 * 1024

/** What happens to a request whose answer may have been lost with its connection. */
export type OnLoss =
  /** It is sent again over the next connection, as that changes nothing. */
  | "repeat"
  /** It fails with {@link AnswerLost}. */
  | "fail"
  /** It fails, sent or not: it concerns this connection alone. */
  | "drop"

/** How a request is sent. */
export interface AskOptions {
  readonly onLoss: OnLoss
  readonly signal?: AbortSignal | undefined
  /** Called with the answer before any later frame is read. */
  readonly onAnswer?: (answer: Answer) => void
}

/** Who is told of events and of the connection. */
export interface LinkListener {
  readonly onConnected: () => void
  readonly onDisconnected: () => void
  readonly onEvent: (event: SessionEvent, bytes: number) => void
  /** A subscription has ended. */
  readonly onSubscriptionEnded: (sessionId: string, error: RequestRefused) => void
  /** There will be no connection any more. */
  readonly onEnded: (error: unknown) => void
}

interface Pending {
  readonly id: string
  readonly frame: string
  readonly bytes: number
  readonly onLoss: OnLoss
  readonly settle: (answer: Answer) => void
  readonly fail: (error: unknown) => void
}

/** Where the gateway is, and how it is reached. */
export interface LinkOptions {
  readonly requests: Requests
  readonly path: string
  readonly WebSocket: WebSocketConstructor
  readonly timeoutMs: number
  readonly listener: LinkListener
  readonly onStatus: ((status: ConnectionStatus) => void) | undefined
}

/**
 * A connection to the gateway that is opened when something is to be sent, and again when it was lost while something
 * still waits for it.
 */
export class GatewayLink {
  readonly #lifetime: Lifetime
  readonly #backoff: Backoff
  /** Requests that were not sent over this connection, in order. */
  #waiting: Array<Pending> = []
  /** Requests that were sent over this connection, in order. */
  readonly #unanswered = new Map<string, Pending>()
  #bytes = 0
  #lastId = 0
  #holders = 0
  #socket: WebSocketLike | undefined
  #isRunning = false
  #ended: { readonly error: unknown } | undefined
  /** Whether the last token was refused. */
  #isRefused = false
  #lastError: unknown
  readonly #opening = new Set<{ readonly resolve: () => void; readonly reject: (error: unknown) => void }>()
  /** When the last frames were sent, in monotonic milliseconds. */
  #sentAt: Array<number> = []
  #cancelPump: (() => void) | undefined

  constructor(private readonly options: LinkOptions) {
    this.#lifetime = new Lifetime(options.requests.clock, undefined)
    this.#backoff = new Backoff(options.requests.clock)
  }

  get isOpen(): boolean {
    return this.#socket !== undefined
  }

  /** Connects now. Fails with the first try. */
  open(): Promise<void> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended.error)
    if (this.isOpen) return Promise.resolve()
    return new Promise((resolve, reject) => {
      this.#opening.add({ resolve, reject })
      this.#start()
    })
  }

  /** Keeps the connection, or another one after it, until the function that it returns is called. */
  hold(): () => void {
    if (this.#ended !== undefined) throw this.#ended.error
    this.#holders++
    this.#start()
    return () => {
      this.#holders--
    }
  }

  /** Sends a request when there is a connection, and waits for its answer. */
  ask(request: RequestFrame, { onAnswer, onLoss, signal }: AskOptions): Promise<Answer> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended.error)
    const id = String(++this.#lastId)
    const frame = JSON.stringify({ ...request, id })
    const bytes = new TextEncoder().encode(frame).length
    if (bytes > maxFrameBytes) {
      return Promise.reject(refused(`The request has ${bytes} bytes; the limit is ${maxFrameBytes}`))
    }
    if (this.#bytes + bytes > maxWaitingBytes) {
      return Promise.reject(refused(`Requests of ${this.#bytes} bytes wait; the limit is ${maxWaitingBytes}`))
    }
    const { requests, timeoutMs } = this.options
    const lifetime = new Lifetime(requests.clock, signal)
    lifetime.limit(timeoutMs, `There is no answer within ${timeoutMs} ms`)
    this.#bytes += bytes
    const answered = new Promise<Answer>((resolve, reject) => {
      const settle = (answer: Answer) => {
        if (answer.type === "error") return reject(refusalOf(answer))
        onAnswer?.(answer)
        resolve(answer)
      }
      const pending: Pending = { id, frame, bytes, onLoss, settle, fail: reject }
      const abort = () => {
        const isTimeout = lifetime.signal.reason instanceof ConnectionFailed
        this.#forget(pending)
        reject(isTimeout && !this.isOpen && this.#lastError !== undefined ? this.#lastError : lifetime.signal.reason)
      }
      if (lifetime.signal.aborted) return abort()
      lifetime.signal.addEventListener("abort", abort)
      this.#waiting.push(pending)
      this.#start()
      this.#pump()
    })
    return answered.finally(() => {
      this.#bytes -= bytes
      lifetime.end()
    })
  }

  /** Gives up the connection, as what came over it cannot be right. Another one is opened. */
  abandon(message: string): void {
    this.#giveUp?.(new ConnectionFailed(message, false))
  }

  /** Ends all, with the error that everything fails with from now on. */
  end(error: unknown): void {
    if (this.#ended !== undefined) return
    this.#ended = { error }
    this.#cancelPump?.()
    const pending = [...this.#unanswered.values(), ...this.#waiting]
    this.#unanswered.clear()
    this.#waiting = []
    for (const { fail } of pending) fail(error)
    for (const { reject } of this.#opening) reject(error)
    this.#opening.clear()
    this.options.listener.onEnded(error)
    this.#lifetime.end()
  }

  #giveUp: ((error: Error) => void) | undefined

  get #isWanted(): boolean {
    return this.#holders > 0 || this.#waiting.length > 0 || this.#unanswered.size > 0 || this.#opening.size > 0
  }

  #start(): void {
    if (this.#isRunning || this.#ended !== undefined) return
    this.#isRunning = true
    void this.#run()
  }

  async #run(): Promise<void> {
    const { clock } = this.options.requests
    while (this.#isWanted && this.#ended === undefined) {
      const begun = clock.now()
      try {
        await this.#connection()
      } catch (error) {
        if (this.#ended !== undefined) break
        if (clock.now() - begun > stableMs) this.#backoff.reset()
        const retryInMs = this.#retryIn(error)
        if (retryInMs === undefined) {
          this.end(error)
          break
        }
        this.#lastError = error
        for (const { reject } of this.#opening) reject(error)
        this.#opening.clear()
        this.#tell({ type: "disconnected", error: error as Error, retryInMs })
        await pause(clock, retryInMs, this.#lifetime.signal).catch(() => {})
      }
    }
    this.#isRunning = false
  }

  /** The pause before the next connection, or `undefined` where there must be none. */
  #retryIn(error: unknown): number | undefined {
    if (!isSessionsError(error) || error instanceof ResponseTooLarge) return undefined
    if (error instanceof RequestRefused || error instanceof AnswerLost || error instanceof ConnectionClosed) {
      return undefined
    }
    // A new token may do better, but once.
    const mayRenew = error._tag === "Unauthorized" && this.options.requests.isTokenRenewable && !this.#isRefused
    if (!mayRenew && !isTransient(error)) return undefined
    if (error._tag === "Unauthorized") this.#isRefused = true
    const least = error instanceof ShedLoad ? rateLimitedMs : 0
    return this.#backoff.next("retryAfterMs" in error ? error.retryAfterMs : least)
  }

  /** Opens a connection and serves it. It fails with the reason of its end. */
  async #connection(): Promise<never> {
    const { path, requests, WebSocket } = this.options
    const lifetime = new Lifetime(requests.clock, this.#lifetime.signal)
    const { signal } = lifetime
    let socket: WebSocketLike | undefined
    let cancelPing = () => {}
    try {
      const handshake = lifetime.limit(handshakeMs, "The handshake takes too long")
      const url = requests.url({ path })
      url.protocol = url.protocol.replace("http", "ws")
      const token = await requests.credential(signal)
      const opened = await requests.attempt(signal, async () => connect(WebSocket, url.href, token || undefined, token))
      socket = opened
      let isOpen = false
      return await new Promise<never>((_, reject) => {
        this.#giveUp = reject
        signal.addEventListener("abort", () => reject(signal.reason))
        let isRefused = false
        const refused = () => {
          if (!isRefused) whyRefused(requests, path, signal).then(reject, reject)
          isRefused = true
        }
        // A close follows each error, but for a refused handshake on Node 22.
        opened.addEventListener("error", () => {
          if (!isOpen) refused()
        })
        opened.addEventListener("close", ({ code, reason }) => {
          if (isOpen) reject(closeError(code, reason))
          else refused()
        })
        let silence = handshake
        let heardAt = 0
        opened.addEventListener("open", () => {
          if (signal.aborted) return
          isOpen = true
          handshake.cancel()
          silence = lifetime.limit(silenceMs, "The gateway gives no sign of life")
          heardAt = requests.clock.now()
          const ping = () => {
            const left = heardAt + pingAfterMs - requests.clock.now()
            if (left <= 0) opened.send(`{"type":"ping","id":"${++this.#lastId}"}`)
            cancelPing = requests.clock.after(left > 0 ? left : pingAfterMs, ping)
          }
          cancelPing = requests.clock.after(pingAfterMs, ping)
          this.#onOpen(opened)
        })
        opened.addEventListener("message", ({ data }) => {
          // What a connection that was given up still brings comes again over the next one.
          if (signal.aborted) return
          silence.restart()
          heardAt = requests.clock.now()
          try {
            if (typeof data === "string") this.#onFrame(data)
          } catch (error) {
            reject(error)
          }
        })
      })
    } finally {
      cancelPing()
      this.#giveUp = undefined
      lifetime.end()
      socket?.close()
      this.#onLost()
    }
  }

  #onOpen(socket: WebSocketLike): void {
    this.#socket = socket
    this.#sentAt = []
    for (const { resolve } of this.#opening) resolve()
    this.#opening.clear()
    this.#tell({ type: "connected" })
    this.options.listener.onConnected()
    this.#pump()
  }

  /** What the callback throws is an error of its own, and must not stop the connection. */
  #tell(status: ConnectionStatus): void {
    try {
      this.options.onStatus?.(status)
    } catch (error) {
      queueMicrotask(() => {
        throw error
      })
    }
  }

  #onLost(): void {
    this.#cancelPump?.()
    if (this.#socket === undefined) return
    this.#socket = undefined
    const sent = [...this.#unanswered.values()]
    this.#unanswered.clear()
    const message = "The connection was lost before the answer came; the request may have been carried out"
    for (const { fail, onLoss } of sent) if (onLoss !== "repeat") fail(new AnswerLost(message))
    for (const { fail, onLoss } of this.#waiting) if (onLoss === "drop") fail(new AnswerLost(message))
    const repeated = sent.filter(({ onLoss }) => onLoss === "repeat")
    this.#waiting = [...repeated, ...this.#waiting.filter(({ onLoss }) => onLoss !== "drop")]
    this.options.listener.onDisconnected()
  }

  /** Sends what waits, within the limits of the gateway. */
  #pump(): void {
    this.#cancelPump?.()
    const { clock } = this.options.requests
    while (this.#socket !== undefined && this.#waiting.length > 0 && this.#unanswered.size < maxUnanswered) {
      const now = clock.now()
      this.#sentAt = this.#sentAt.filter(at => at > now - 1000)
      if (this.#sentAt.length >= maxPerSecond) {
        this.#cancelPump = clock.after(this.#sentAt[0]! + 1000 - now, () => this.#pump())
        return
      }
      this.#sentAt.push(now)
      const pending = this.#waiting.shift()!
      this.#unanswered.set(pending.id, pending)
      this.#socket.send(pending.frame)
    }
  }

  #onFrame(text: string): void {
    const { listener, requests } = this.options
    if (text.length > requests.maxResponseBytes) throw new ResponseTooLarge(requests.maxResponseBytes)
    const frame = parse<object>(text, frame => typeof frame === "object" && frame !== null)
    if (frame === undefined) return
    this.#isRefused = false
    if ("seq" in frame) {
      if (isEvent(frame)) listener.onEvent(frame, 2 * text.length)
      return
    }
    const answer = frame as Answer
    const pending = this.#unanswered.get(answer.id ?? "")
    if (pending !== undefined) {
      this.#unanswered.delete(pending.id)
      pending.settle(answer)
      this.#pump()
    } else if (answer.type === "error" && answer.id === undefined && answer.sessionId !== undefined) {
      listener.onSubscriptionEnded(answer.sessionId, refusalOf(answer))
    }
  }

  #forget(pending: Pending): void {
    this.#unanswered.delete(pending.id)
    this.#waiting = this.#waiting.filter(other => other !== pending)
  }
}

const isEvent = (frame: object): frame is SessionEvent => {
  const { seq, sessionId, type } = frame as Partial<SessionEvent>
  return Number.isSafeInteger(seq) && typeof sessionId === "string" && typeof type === "string"
}

const refusalOf = ({ error }: Extract<Answer, { type: "error" }>): RequestRefused =>
  new RequestRefused(error.message, error.code, error.retryable, error.traceId)
