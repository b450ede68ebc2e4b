import { closeError, ShedLoad, whyRefused } from "./ConnectionEnd.ts"
import { ConnectionFailed, ResponseTooLarge } from "./Errors.ts"
import type { Answer, RequestFrame } from "./GatewayFrames.ts"
import { parse, type Requests } from "./Requests.ts"
import { type AskOptions, RequestTable, refusalOf } from "./RequestTable.ts"
import { isTransient } from "./Retry.ts"
import { AnswerLost, ConnectionClosed, isSessionsError, RequestRefused } from "./SessionErrors.ts"
import type { ConnectionStatus, SessionEvent } from "./SessionModel.ts"
import { Backoff, Lifetime, pause } from "./Time.ts"
import { connect, type WebSocketConstructor, type WebSocketLike } from "./WebSocket.ts"

/** Milliseconds without a frame before a ping is sent, and before the connection is given up. */
const pingAfterMs = 25_000
const silenceMs = 35_000

/** Milliseconds that a handshake may take, the token included. */
const handshakeMs = 15_000

/** How long a connection lasts that counts as a success. */
const stableMs = 60_000

/** The shortest pause after a close code by which the gateway sheds load. */
const rateLimitedMs = 5000

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
  readonly #table: RequestTable
  #holders = 0
  #socket: WebSocketLike | undefined
  #isRunning = false
  #ended: { readonly error: unknown } | undefined
  /** Whether the last token was refused. */
  #isRefused = false
  #lastError: unknown
  readonly #opening = new Set<{ readonly resolve: () => void; readonly reject: (error: unknown) => void }>()

  constructor(private readonly options: LinkOptions) {
    this.#lifetime = new Lifetime(options.requests.clock, undefined)
    this.#backoff = new Backoff(options.requests.clock)
    this.#table = new RequestTable(options.requests, options.timeoutMs, () => this.#lastError)
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
  ask(request: RequestFrame, options: AskOptions): Promise<Answer> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended.error)
    const answer = this.#table.ask(request, options)
    this.#start()
    return answer
  }

  /** Gives up the connection, as what came over it cannot be right. Another one is opened. */
  abandon(message: string): void {
    this.#giveUp?.(new ConnectionFailed(message, false))
  }

  /** Ends all, with the error that everything fails with from now on. */
  end(error: unknown): void {
    if (this.#ended !== undefined) return
    this.#ended = { error }
    this.#table.failAll(error)
    for (const { reject } of this.#opening) reject(error)
    this.#opening.clear()
    this.options.listener.onEnded(error)
    this.#lifetime.end()
  }

  #giveUp: ((error: Error) => void) | undefined

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
          silence = lifetime.limit(silenceMs, `The gateway has sent nothing for ${silenceMs} ms`)
          heardAt = requests.clock.now()
          const ping = () => {
            const left = heardAt + pingAfterMs - requests.clock.now()
            if (left <= 0) opened.send(`{"type":"ping","id":"${this.#table.nextId()}"}`)
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
    for (const { resolve } of this.#opening) resolve()
    this.#opening.clear()
    this.#tell({ type: "connected" })
    this.options.listener.onConnected()
    this.#table.connected(frame => socket.send(frame))
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
    if (this.#socket === undefined) return
    this.#socket = undefined
    this.#table.disconnected()
    this.options.listener.onDisconnected()
  }

  #onFrame(text: string): void {
    const { listener, requests } = this.options
    if (text.length > requests.maxResponseBytes) throw new ResponseTooLarge(requests.maxResponseBytes)
    const frame = parse<object>(text, frame => typeof frame === "object" && frame !== null, JSON)
    if (frame === undefined) return
    this.#isRefused = false
    if ("seq" in frame) {
      if (isEvent(frame)) listener.onEvent(frame, 2 * text.length)
      return
    }
    const answer = frame as Answer
    if (this.#table.settle(answer)) return
    if (answer.type === "error" && answer.id === undefined && answer.sessionId !== undefined) {
      listener.onSubscriptionEnded(answer.sessionId, refusalOf(answer))
    }
  }
}

const isEvent = (frame: object): frame is SessionEvent => {
  const { seq, sessionId, type } = frame as Partial<SessionEvent>
  return Number.isSafeInteger(seq) && typeof sessionId === "string" && typeof type === "string"
}
