/** The connection to the gateway, which is opened again after a loss. */
import {
  ConnectionClosed,
  ConnectionFailed,
  isClientError,
  isSessionsError,
  type RequestRefused,
  ResponseTooLarge,
  type SessionsError,
  Unauthorized
} from "../Errors.ts"
import { openSocket, parse, type Requests, type WebSocketConstructor, type WebSocketLike } from "../Requests.ts"
import type { ConnectionStatus, SessionEvent } from "../SessionModel.ts"
import { Lifetime, pause, Retries } from "../Time.ts"
import { type Answer, type AnswerOf, type AskOptions, type RequestFrame, RequestTable, refusalOf } from "./Requests.ts"

/** Milliseconds without a frame before a ping is sent, and before the connection is closed. */
const pingAfterMs = 25_000
const silenceMs = 35_000

/** The time limit of a handshake, including the token, in milliseconds. */
const handshakeMs = 15_000

/** The gateway closed the connection because it is overloaded. */
class ShedLoad extends ConnectionFailed {
  /** The minimum pause in milliseconds. */
  readonly retryAfterMs = 5000
}

/** The error of a close code of docs/reference/protocol.md: it decides whether to reconnect, with a new token, or later. */
const closeError = (code: number, reason: string): SessionsError => {
  const message = `The gateway closed the connection: ${code} ${reason}`.trimEnd()
  if (code === 4501) {
    return new Unauthorized({ message, status: 401, requestId: undefined, retryAfterMs: undefined })
  }
  const isFinal = code === 1002 || code === 1007 || code === 1009 || (code >= 4500 && code <= 4999)
  if (isFinal) return new ConnectionClosed(message, code)
  return code === 4001 ? new ShedLoad(message, false) : new ConnectionFailed(message, false)
}

/** Browsers and Node hide why a handshake was refused. An ordinary request to the same address finds the reason. */
const whyRefused = async (requests: Requests, path: string, signal: AbortSignal): Promise<unknown> => {
  const error = new ConnectionFailed("The WebSocket handshake has failed", false)
  try {
    const response = await requests.open({ path }, signal)
    await response.body?.cancel()
  } catch (reason) {
    signal.throwIfAborted()
    if (!isSessionsError(reason)) throw reason
    switch (reason._tag) {
      case "Unauthorized":
      case "Forbidden":
      case "NotFound":
      case "ServiceUnavailable":
      case "ConnectionFailed":
      case "TokenUnavailable":
        return reason
      case "InvalidResponse":
        // Other statuses concern requests that are not handshakes.
        return [401, 403, 404, 429, 502, 503, 504].includes(reason.status) ? reason : error
    }
  }
  return error
}

/** The listeners of events and of the connection. */
export interface LinkListener {
  readonly subscriptions: {
    readonly onConnected: () => void
    readonly onDisconnected: () => void
    readonly onEvent: (event: SessionEvent, bytes: number) => void
    readonly onConversation: (part: AnswerOf<"conversation">) => void
    readonly onSubscriptionEnded: (sessionId: string, error: SessionsError) => void
    /** The link has ended; there will be no further connection. */
    readonly onEnded: (error: unknown) => void
  }
  readonly pages: {
    readonly onDisconnected: () => void
    readonly onEvent: (event: SessionEvent, bytes: number) => void
    readonly onEnd: (id: string, error?: RequestRefused) => void
    readonly onEnded: (error: unknown) => void
  }
}

/** The way to the gateway. */
export interface Link {
  /** The maximum number of characters of a frame, and of what comes in several. */
  readonly maxResponseBytes: number
  /** Whether requests are sent at once. */
  readonly isOpen: boolean
  /** Connects now. Fails if the first attempt fails. */
  readonly open: () => Promise<void>
  /** Keeps the link connected until the returned function is called. */
  readonly hold: () => () => void
  /** Sends a request once connected, and waits for its answer. */
  readonly ask: (request: RequestFrame, options: AskOptions) => Promise<Answer>
  /** Ends what has brought invalid data for a session. It starts again. */
  readonly abandon: (sessionId: string, message: string) => void
  /** Ends the link. All pending and later calls fail with the error. */
  readonly end: (error: unknown) => void
}

/** Notifies of the status. An error of the callback must not stop the link. It is thrown separately. */
export const notify = (onStatus: ((status: ConnectionStatus) => void) | undefined, status: ConnectionStatus): void => {
  try {
    onStatus?.(status)
  } catch (error) {
    queueMicrotask(() => {
      throw error
    })
  }
}

/** Whether a received object belongs to a position of a session. */
export const isNumbered = (frame: object): frame is SessionEvent | AnswerOf<"conversation"> => {
  const { seq, sessionId, type } = frame as Partial<SessionEvent>
  return Number.isSafeInteger(seq) && typeof sessionId === "string" && typeof type === "string"
}

/** The gateway and the connection to it. */
export interface LinkOptions {
  readonly requests: Requests
  readonly path: string
  readonly WebSocket: WebSocketConstructor
  readonly timeoutMs: number
  readonly listener: LinkListener
  readonly onStatus: ((status: ConnectionStatus) => void) | undefined
}

/** A connection to the gateway. It is opened when it is needed, and again after a loss while it is still needed. */
export class GatewayLink implements Link {
  readonly #lifetime: Lifetime
  readonly #retries: Retries
  readonly #table: RequestTable
  #holders = 0
  #socket: WebSocketLike | undefined
  #isRunning = false
  #ended: { readonly error: unknown } | undefined
  #lastError: unknown
  readonly #opening = new Set<{ readonly resolve: () => void; readonly reject: (error: unknown) => void }>()

  constructor(private readonly options: LinkOptions) {
    this.#lifetime = new Lifetime(options.requests.clock, undefined)
    this.#retries = new Retries(options.requests)
    this.#table = new RequestTable(options.requests, options.timeoutMs, () => this.#lastError)
  }

  /** The maximum number of characters of a frame, and of what comes in several. */
  get maxResponseBytes(): number {
    return this.options.requests.maxResponseBytes
  }

  get isOpen(): boolean {
    return this.#socket !== undefined
  }

  open(): Promise<void> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended.error)
    if (this.isOpen) return Promise.resolve()
    return new Promise((resolve, reject) => {
      this.#opening.add({ resolve, reject })
      this.#start()
    })
  }

  hold(): () => void {
    if (this.#ended !== undefined) throw this.#ended.error
    this.#holders++
    this.#start()
    return () => {
      this.#holders--
    }
  }

  ask(request: RequestFrame, options: AskOptions): Promise<Answer> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended.error)
    const answer = this.#table.ask(request, options)
    this.#start()
    return answer
  }

  /** Closes the connection, which all sessions share. Another one is opened. */
  abandon(_sessionId: string, message: string): void {
    this.#abandon?.(new ConnectionFailed(message, false))
  }

  end(error: unknown): void {
    if (this.#ended !== undefined) return
    this.#ended = { error }
    this.#table.failAll(error)
    for (const { reject } of this.#opening) reject(error)
    this.#opening.clear()
    this.options.listener.subscriptions.onEnded(error)
    this.options.listener.pages.onEnded(error)
    this.#lifetime.end()
  }

  #abandon: ((error: Error) => void) | undefined

  get #isWanted(): boolean {
    return this.#holders > 0 || this.#opening.size > 0 || !this.#table.isEmpty
  }

  #start(): void {
    if (this.#isRunning || this.#ended !== undefined) return
    this.#isRunning = true
    void this.#run()
  }

  async #run(): Promise<void> {
    const { clock } = this.options.requests
    while (this.#isWanted && this.#ended === undefined) {
      const startedAt = clock.now()
      try {
        await this.#connection()
      } catch (error) {
        if (this.#ended !== undefined) break
        this.#retries.ended(startedAt)
        const retryInMs = isClientError(error) ? this.#retries.after(error) : undefined
        if (retryInMs === undefined) {
          this.end(error)
          break
        }
        this.#lastError = error
        for (const { reject } of this.#opening) reject(error)
        this.#opening.clear()
        notify(this.options.onStatus, { type: "disconnected", error: error as Error, retryInMs })
        await pause(clock, retryInMs, this.#lifetime.signal).catch(() => {})
      }
    }
    this.#isRunning = false
  }

  /** Opens a connection and serves it. Fails with the reason of its end. */
  async #connection(): Promise<never> {
    const { path, requests, WebSocket } = this.options
    const lifetime = new Lifetime(requests.clock, this.#lifetime.signal)
    const { signal } = lifetime
    let socket: WebSocketLike | undefined
    let cancelPing = () => {}
    try {
      const handshake = lifetime.limit(handshakeMs, "The handshake takes too long")
      const opened = await openSocket(requests, WebSocket, { path }, signal)
      socket = opened
      let isOpen = false
      return await new Promise<never>((_, reject) => {
        this.#abandon = reject
        signal.addEventListener("abort", () => reject(signal.reason))
        let isRefused = false
        const refused = () => {
          if (!isRefused) whyRefused(requests, path, signal).then(reject, reject)
          isRefused = true
        }
        // A close follows each error, except for a refused handshake on Node 22.
        opened.addEventListener("error", () => {
          if (!isOpen) refused()
        })
        opened.addEventListener("close", ({ code, reason }) => {
          if (isOpen) reject(closeError(code, reason))
          else refused()
        })
        let silence = handshake
        let receivedAt = 0
        opened.addEventListener("open", () => {
          if (signal.aborted) return
          isOpen = true
          handshake.cancel()
          silence = lifetime.limit(silenceMs, `The gateway has sent nothing for ${silenceMs} ms`)
          receivedAt = requests.clock.now()
          const ping = () => {
            const left = receivedAt + pingAfterMs - requests.clock.now()
            if (left <= 0) opened.send(`{"type":"ping","id":"${this.#table.nextId()}"}`)
            cancelPing = requests.clock.after(left > 0 ? left : pingAfterMs, ping)
          }
          cancelPing = requests.clock.after(pingAfterMs, ping)
          this.#onOpen(opened)
        })
        opened.addEventListener("message", ({ data }) => {
          // The next connection delivers the frames of an abandoned one again.
          if (signal.aborted) return
          silence.restart()
          receivedAt = requests.clock.now()
          try {
            if (typeof data === "string") this.#onFrame(data)
          } catch (error) {
            reject(error)
          }
        })
      })
    } finally {
      cancelPing()
      this.#abandon = undefined
      lifetime.end()
      socket?.close()
      this.#onLost()
    }
  }

  #onOpen(socket: WebSocketLike): void {
    this.#socket = socket
    for (const { resolve } of this.#opening) resolve()
    this.#opening.clear()
    notify(this.options.onStatus, { type: "connected" })
    this.options.listener.subscriptions.onConnected()
    this.#table.connected(frame => socket.send(frame))
  }

  #onLost(): void {
    if (this.#socket === undefined) return
    this.#socket = undefined
    this.#table.disconnected()
    this.options.listener.subscriptions.onDisconnected()
    this.options.listener.pages.onDisconnected()
  }

  #onFrame(text: string): void {
    const {
      listener: { pages, subscriptions },
      requests
    } = this.options
    if (text.length > requests.maxResponseBytes) throw new ResponseTooLarge(requests.maxResponseBytes)
    const frame = parse<object>(text, frame => typeof frame === "object" && frame !== null, JSON)
    if (frame === undefined) return
    this.#retries.accepted()
    if ("seq" in frame) {
      if (!isNumbered(frame)) return
      this.#table.onEvent()
      if (frame.type === "conversation") return subscriptions.onConversation(frame)
      subscriptions.onEvent(frame, 2 * text.length)
      pages.onEvent(frame, 2 * text.length)
      return
    }
    const answer = frame as Answer
    if (this.#table.settle(answer)) return
    if (answer.type === "subscription_ended") pages.onEnd(answer.id)
    if (answer.type !== "error") return
    if (answer.id !== undefined) pages.onEnd(answer.id, refusalOf(answer))
    else if (answer.sessionId !== undefined) subscriptions.onSubscriptionEnded(answer.sessionId, refusalOf(answer))
  }
}
