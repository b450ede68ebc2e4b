/** The requests to the gateway: their frames, and those of a connection that are not answered yet. */

import { AnswerLost, ConnectionFailed, RequestRefused, refused } from "../Errors.ts"
import type { Requests } from "../Requests.ts"
import type { ErrorCode, FileContent, FileEntry, FileIteration, Session } from "../SessionModel.ts"
import { Lifetime } from "../Time.ts"

type OfSession<Type extends string, Fields = unknown> = { readonly type: Type; readonly sessionId: string } & Fields
type Variables = { readonly [name: string]: string }

/** A request without its id. */
export type RequestFrame =
  | {
      readonly type: "create_session"
      readonly agentType: string
      readonly title?: string
      readonly deployment?: unknown
      readonly environment?: Variables
      readonly secrets?: Variables
    }
  | {
      readonly type: "list_sessions"
      readonly order?: "created" | "activity"
      readonly running?: boolean
      readonly waiting?: boolean
      readonly failed?: boolean
      readonly limit?: number
      readonly cursor?: string
    }
  | OfSession<"get_session">
  | OfSession<
      "start_session",
      { readonly secrets?: Variables; readonly environment?: Variables; readonly deployment?: unknown }
    >
  | OfSession<"stop_session">
  | OfSession<"delete_session">
  | OfSession<
      "subscribe",
      {
        readonly afterSeq?: number
        readonly epoch?: string
        readonly fold?: boolean
        readonly untilSeq?: number
        readonly beforeSeq?: number
        readonly limit?: number
      }
    >
  | OfSession<"unsubscribe">
  | OfSession<"send_message", { readonly content: string; readonly clientMessageId?: string }>
  | OfSession<"interrupt_turn", { readonly turnId?: string }>
  | OfSession<"answer", { readonly requestId: string; readonly answer: unknown; readonly clientMessageId?: string }>
  | OfSession<"list_files", { readonly path?: string; readonly depth?: number }>
  | OfSession<"read_file", { readonly path: string }>
  | OfSession<"file_history", { readonly path: string }>
  | OfSession<"file_at_iteration", { readonly path: string; readonly iteration: number }>
  | { readonly type: "ping" }

type To<Type extends string, Fields> = { readonly type: Type; readonly id: string } & Fields

export type Answer =
  | To<"session_created", { readonly session: Session }>
  | To<"session_list", { readonly sessions: ReadonlyArray<Session>; readonly cursor?: string }>
  | To<"session", { readonly session: Session }>
  | To<"session_deleted", { readonly sessionId: string }>
  | To<
      "subscribed",
      { readonly session: Session; readonly epoch: string; readonly headSeq: number; readonly recovered: boolean }
    >
  | {
      readonly type: "conversation"
      readonly sessionId: string
      readonly epoch: string
      readonly seq: number
      readonly index: number
      readonly last: boolean
      readonly text: string
    }
  | To<"subscription_ended", { readonly sessionId: string }>
  | To<"unsubscribed", { readonly sessionId: string }>
  | To<"accepted", { readonly turnId?: string }>
  | To<"file_list", { readonly entries: ReadonlyArray<FileEntry> }>
  | To<"file_content", FileContent>
  | To<"file_history_list", { readonly path: string; readonly iterations: ReadonlyArray<FileIteration> }>
  | To<"pong", { readonly timestamp: number }>
  | {
      readonly type: "error"
      readonly id?: string
      /** The session whose subscription has ended with this error; there is no `id` then. */
      readonly sessionId?: string
      readonly error: {
        readonly code: ErrorCode
        readonly message: string
        readonly retryable: boolean
        readonly traceId: string
      }
    }

export type AnswerOf<Type extends Answer["type"]> = Extract<Answer, { readonly type: Type }>

/** The maximum number of unanswered requests, and of frames per second. The limits of the gateway are 64 and 100. */
const maxUnanswered = 48
const maxPerSecond = 80

/** The maximum size of a request in bytes. The gateway closes the connection after a larger one. */
const maxFrameBytes = 1024 * 1024

/** The maximum size of all pending requests in bytes. */
const maxPendingBytes = 16 * 1024 * 1024

/**
 * Answers may be queued behind many events. Each event and answer that is received therefore restarts the timeouts. No
 * request waits longer than this multiple of its timeout: an answer that is lost on a busy connection still times out.
 */
const maxExtension = 10

/** What happens to a request whose connection is lost before the answer. */
export type OnLoss =
  /** It is sent again over the next connection: it is idempotent. */
  | "repeat"
  /** It fails with {@link AnswerLost}. */
  | "fail"
  /** It fails, sent or not: it concerns only this connection. */
  | "drop"

/** How a request is sent. */
export interface AskOptions {
  readonly onLoss: OnLoss
  readonly signal?: AbortSignal | undefined
  /** Called with the answer before any later frame is read. */
  readonly onAnswer?: (answer: Answer) => void
}

interface Pending {
  readonly id: string
  readonly frame: string
  readonly onLoss: OnLoss
  readonly settle: (answer: Answer) => void
  readonly fail: (error: unknown) => void
}

/** The error of an answer with the type `error`. */
export const refusalOf = ({ error }: Extract<Answer, { type: "error" }>): RequestRefused =>
  new RequestRefused(error.message, error.code, error.retryable, error.traceId)

/** The bytes of pending requests, which are limited. */
export class PendingBytes {
  #bytes = 0

  /** Counts a request until the returned function is called. Throws `BadRequest` if it exceeds a limit. */
  add(text: string): () => void {
    const bytes = new TextEncoder().encode(text).length
    if (bytes > maxFrameBytes) throw refused(`The request has ${bytes} bytes; the limit is ${maxFrameBytes}`)
    if (this.#bytes + bytes > maxPendingBytes) {
      throw refused(`Requests of ${this.#bytes} bytes are pending; the limit is ${maxPendingBytes}`)
    }
    this.#bytes += bytes
    return () => {
      this.#bytes -= bytes
    }
  }
}

/** The pending requests. Sends them within the limits of the gateway. */
export class RequestTable {
  /** Requests that are not sent yet over this connection, in order. */
  #waiting: Array<Pending> = []
  /** Requests that are sent over this connection, in order. */
  readonly #unanswered = new Map<string, Pending>()
  readonly #bytes = new PendingBytes()
  #lastId = 0
  /** Sends a frame; absent without a connection. */
  #send: ((frame: string) => void) | undefined
  /** When the last frames were sent, in monotonic milliseconds. */
  #sentAt: Array<number> = []
  #cancelPump: (() => void) | undefined
  /** When the last event or answer was received, in monotonic milliseconds. */
  #receivedAt = Number.NEGATIVE_INFINITY

  constructor(
    private readonly requests: Requests,
    private readonly timeoutMs: number,
    /** Why there is no connection; `undefined` if it is unknown. */
    private readonly whyOffline: () => unknown
  ) {}

  get isEmpty(): boolean {
    return this.#waiting.length === 0 && this.#unanswered.size === 0
  }

  /** A unique id of a request. */
  nextId(): string {
    return String(++this.#lastId)
  }

  /** Sends a request once connected, and waits for its answer. */
  async ask(request: RequestFrame, { onAnswer, onLoss, signal }: AskOptions): Promise<Answer> {
    const id = this.nextId()
    const frame = JSON.stringify({ ...request, id })
    const release = this.#bytes.add(frame)
    const lifetime = new Lifetime(this.requests.clock, signal)
    const latest = this.requests.clock.now() + (maxExtension - 1) * this.timeoutMs
    const lastActivity = () => Math.min(this.#receivedAt, latest)
    lifetime.limit(this.timeoutMs, `There is no answer within ${this.timeoutMs} ms`, lastActivity)
    const answered = new Promise<Answer>((resolve, reject) => {
      const settle = (answer: Answer) => {
        if (answer.type === "error") return reject(refusalOf(answer))
        onAnswer?.(answer)
        resolve(answer)
      }
      const pending: Pending = { id, frame, onLoss, settle, fail: reject }
      const abort = () => {
        const isOffline = lifetime.signal.reason instanceof ConnectionFailed && this.#send === undefined
        this.#forget(pending)
        reject((isOffline ? this.whyOffline() : undefined) ?? lifetime.signal.reason)
      }
      if (lifetime.signal.aborted) return abort()
      lifetime.signal.addEventListener("abort", abort)
      this.#waiting.push(pending)
      this.#pump()
    })
    return answered.finally(() => {
      release()
      lifetime.end()
    })
  }

  /** Called when a connection is open. */
  connected(send: (frame: string) => void): void {
    this.#send = send
    this.#sentAt = []
    this.#pump()
  }

  /** Called when the connection is lost. Requests that may be repeated wait for the next one. */
  disconnected(): void {
    this.#cancelPump?.()
    this.#send = undefined
    const sent = [...this.#unanswered.values()]
    this.#unanswered.clear()
    const message = "The connection was lost before the answer came; the request may have been carried out"
    for (const { fail, onLoss } of sent) if (onLoss !== "repeat") fail(new AnswerLost(message))
    for (const { fail, onLoss } of this.#waiting) if (onLoss === "drop") fail(new AnswerLost(message))
    const repeated = sent.filter(({ onLoss }) => onLoss === "repeat")
    this.#waiting = [...repeated, ...this.#waiting.filter(({ onLoss }) => onLoss !== "drop")]
  }

  /** Settles the request of an answer. Returns whether there is one. */
  settle(answer: Answer): boolean {
    const pending = "id" in answer ? this.#unanswered.get(answer.id ?? "") : undefined
    if (pending === undefined) return false
    this.#unanswered.delete(pending.id)
    this.#receivedAt = this.requests.clock.now()
    pending.settle(answer)
    this.#pump()
    return true
  }

  onEvent(): void {
    this.#receivedAt = this.requests.clock.now()
  }

  /** Fails all requests with an error. */
  failAll(error: unknown): void {
    this.#cancelPump?.()
    const pending = [...this.#unanswered.values(), ...this.#waiting]
    this.#unanswered.clear()
    this.#waiting = []
    for (const { fail } of pending) fail(error)
  }

  /** Sends waiting requests within the limits of the gateway. */
  #pump(): void {
    this.#cancelPump?.()
    const { clock } = this.requests
    while (this.#send !== undefined && this.#waiting.length > 0 && this.#unanswered.size < maxUnanswered) {
      const now = clock.now()
      this.#sentAt = this.#sentAt.filter(at => at > now - 1000)
      if (this.#sentAt.length >= maxPerSecond) {
        this.#cancelPump = clock.after(this.#sentAt[0]! + 1000 - now, () => this.#pump())
        return
      }
      this.#sentAt.push(now)
      const pending = this.#waiting.shift()!
      this.#unanswered.set(pending.id, pending)
      this.#send(pending.frame)
    }
  }

  #forget(pending: Pending): void {
    this.#unanswered.delete(pending.id)
    this.#waiting = this.#waiting.filter(other => other !== pending)
  }
}
