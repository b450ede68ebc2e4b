/** The gateway over HTTP, where WebSockets are blocked: each call is a request, and each subscription an event stream. */
import {
  AnswerLost,
  type ClientError,
  ConnectionFailed,
  Gone,
  InvalidResponse,
  isClientError,
  RequestRefused,
  ResponseError,
  ResponseTooLarge,
  refused,
  ServiceUnavailable,
  type SessionsError
} from "../Errors.ts"
import type { ErrorCode, Session, SessionEvent } from "../SessionModel.ts"
import { Lifetime, pause, Retries } from "../Time.ts"
import { firstOffset, offsetOf, readPages } from "./EventPages.ts"
import { Following, type Gateway } from "./Following.ts"
import { type Link, type LinkOptions, notify } from "./Link.ts"
import { type Answer, type AnswerOf, type AskOptions, PendingBytes, type RequestFrame } from "./Requests.ts"
import { pathOf, type Route, routeOf } from "./Routes.ts"

/** The codes of the statuses with which the gateway refuses requests. */
const codes: Readonly<Record<number, ErrorCode>> = {
  400: "bad_request",
  404: "not_found",
  409: "conflict",
  413: "too_large",
  500: "internal",
  502: "upstream_error",
  503: "upstream_unavailable",
  504: "timeout"
}

/**
 * The error of a request that failed. A 503 with the time of the next attempt is no refusal. Nor is a 404 that concerns
 * no session: there is no such route. Errors of this client have no id.
 */
const refusalIn = (error: unknown, hasSession: boolean): unknown => {
  if (!(error instanceof ResponseError) || error instanceof InvalidResponse) return error
  const { message, requestId, retryAfterMs, status } = error
  const code = codes[status]
  const isLater = retryAfterMs !== undefined
  if (code === undefined || requestId === undefined || (status === 404 && !hasSession)) return error
  return status === 503 && isLater ? error : new RequestRefused(message, code, isLater, requestId)
}

/** Whether a request that failed may have been carried out. It was not if the gateway itself refuses it. */
const mayBeDone = (error: ClientError): boolean =>
  error instanceof ResponseError
    ? error instanceof InvalidResponse || error.requestId === undefined
    : error instanceof ConnectionFailed

/** The maximum number of events of a page, as on the WebSocket. */
const maxPage = 1000

/** How work is repeated. */
interface Persistence {
  readonly signal: AbortSignal
  /** Whether it is repeated if it may have been done. */
  readonly isIdempotent: boolean
  /** Whether it concerns a session. */
  readonly hasSession: boolean
}

type Subscribe = Extract<RequestFrame, { type: "subscribe" }>

interface Older {
  readonly session: Session
  readonly events: ReadonlyArray<readonly [event: SessionEvent, bytes: number]>
  /** Whether all that were asked for are kept. */
  readonly recovered: boolean
}

/** The gateway over HTTP. There is no connection: it is open until it ends. */
export class HttpLink implements Link {
  readonly #pending = new PendingBytes()
  readonly #calls = new Set<Lifetime>()
  /** The subscriptions, by session. */
  readonly #streams = new Map<string, Lifetime>()
  #isReached = false
  #lastId = 0
  #ended: { readonly error: unknown } | undefined

  constructor(private readonly options: Omit<LinkOptions, "WebSocket">) {}

  get maxResponseBytes(): number {
    return this.options.requests.maxResponseBytes
  }

  get isOpen(): boolean {
    return this.#ended === undefined
  }

  /** Sends a request that has no effect. */
  open(): Promise<void> {
    return this.#limited(undefined, async signal => {
      try {
        await this.#send(routeOf({ type: "list_sessions", limit: 1 }), signal)
      } catch (error) {
        throw refusalIn(error, false)
      }
    })
  }

  hold(): () => void {
    if (this.#ended !== undefined) throw this.#ended.error
    return () => {}
  }

  async ask(frame: RequestFrame, options: AskOptions): Promise<Answer> {
    if (this.#ended !== undefined) throw this.#ended.error
    if (frame.type === "subscribe") {
      return frame.beforeSeq === undefined ? this.#subscribe(frame, options.onAnswer) : this.#readOlder(frame, options)
    }
    if (frame.type === "unsubscribe") {
      this.#drop(frame.sessionId)
      return { type: "unsubscribed", id: "", sessionId: frame.sessionId }
    }
    const route = routeOf(frame)
    const release = this.#pending.add(route.request.body ?? "")
    const rest = { isIdempotent: options.onLoss === "repeat", hasSession: "sessionId" in frame }
    const call = (signal: AbortSignal) => this.#persist({ signal, ...rest }, () => this.#send(route, signal))
    return this.#limited(options.signal, call).finally(release)
  }

  abandon(sessionId: string, message: string): void {
    this.#drop(sessionId)
    this.options.listener.subscriptions.onSubscriptionEnded(
      sessionId,
      new RequestRefused(message, "internal", true, "")
    )
  }

  end(error: unknown): void {
    if (this.#ended !== undefined) return
    this.#ended = { error }
    for (const lifetime of [...this.#calls, ...this.#streams.values()]) lifetime.end(error)
    this.options.listener.subscriptions.onEnded(error)
    this.options.listener.pages.onEnded(error)
  }

  /** Runs a call within the time limit. */
  async #limited<A>(parent: AbortSignal | undefined, call: (signal: AbortSignal) => Promise<A>): Promise<A> {
    if (this.#ended !== undefined) throw this.#ended.error
    const { requests, timeoutMs } = this.options
    const lifetime = new Lifetime(requests.clock, parent)
    lifetime.limit(timeoutMs, `There is no answer within ${timeoutMs} ms`)
    this.#calls.add(lifetime)
    try {
      return await call(lifetime.signal)
    } finally {
      this.#calls.delete(lifetime)
      lifetime.end()
    }
  }

  async #send({ read, request }: Route, signal: AbortSignal): Promise<Answer> {
    const { path, requests } = this.options
    const answer = await requests.ask({ ...request, path: path + request.path }, signal, read)
    this.#onReached()
    return answer
  }

  #onReached(): void {
    if (this.#isReached) return
    this.#isReached = true
    notify(this.options.onStatus, { type: "connected" })
  }

  /** Repeats work until it succeeds or fails permanently. After a timeout it fails with the last error. */
  async #persist<A>(
    { hasSession, isIdempotent, signal }: Persistence,
    work: (retries: Retries) => Promise<A>
  ): Promise<A> {
    const { onStatus, requests } = this.options
    const retries = new Retries(requests)
    for (let last: ClientError | undefined; ; ) {
      const startedAt = requests.clock.now()
      try {
        signal.throwIfAborted()
        return await work(retries)
      } catch (cause) {
        if (signal.aborted) throw (signal.reason instanceof ConnectionFailed ? last : undefined) ?? signal.reason
        const error = refusalIn(cause, hasSession)
        if (!isClientError(error)) {
          this.#onReached()
          throw error
        }
        retries.ended(startedAt)
        const retryInMs = retries.after(error)
        if (retryInMs === undefined) throw error
        if (!isIdempotent && mayBeDone(error)) {
          throw new AnswerLost(`There is no answer, and the request may have been carried out: ${error.message}`)
        }
        // If the store was unavailable, it is not known whether the request was carried out.
        if (!isIdempotent && error instanceof ServiceUnavailable) throw error
        last = error
        this.#isReached = false
        notify(onStatus, { type: "disconnected", error, retryInMs })
        await pause(requests.clock, retryInMs, signal).catch(() => {})
      }
    }
  }

  #drop(sessionId: string): void {
    this.#streams.get(sessionId)?.end()
    this.#streams.delete(sessionId)
  }

  #subscribe(frame: Subscribe, onAnswer: AskOptions["onAnswer"]): Promise<Answer> {
    const { listener, path, requests } = this.options
    const { sessionId } = frame
    this.#drop(sessionId)
    const lifetime = new Lifetime(requests.clock, undefined)
    this.#streams.set(sessionId, lifetime)
    const { signal } = lifetime
    const gateway: Gateway = {
      requests,
      path,
      session: (id, signal) => this.#session(id, signal),
      listener: listener.subscriptions,
      onReached: () => this.#onReached()
    }
    return new Promise((resolve, reject) => {
      const following = new Following(gateway, frame, signal, answer => {
        onAnswer?.(answer)
        resolve(answer)
      })
      const follow = (retries: Retries) => following.run(retries)
      this.#persist({ signal, isIdempotent: true, hasSession: true }, follow).catch((error: SessionsError) => {
        if (signal.aborted) return
        this.#drop(sessionId)
        if (error instanceof RequestRefused && !following.isAnswered) reject(error)
        else listener.subscriptions.onSubscriptionEnded(sessionId, error)
      })
    })
  }

  async #session(sessionId: string, signal: AbortSignal): Promise<Session> {
    const answer = await this.#send(routeOf({ type: "get_session", sessionId }), signal)
    return (answer as AnswerOf<"session">).session
  }

  /** Reads a page of older events, and passes it on as the WebSocket does. */
  async #readOlder(frame: Subscribe, { onAnswer, signal }: AskOptions): Promise<Answer> {
    const { pages } = this.options.listener
    const { limit = 1 } = frame
    if (!(Number.isInteger(limit) && limit >= 1 && limit <= maxPage)) throw refused(`limit must be 1 to ${maxPage}`)
    const { events, recovered, session } = await this.#limited(signal, signal =>
      this.#persist({ signal, isIdempotent: true, hasSession: true }, () => this.#older(frame, signal))
    )
    const id = String(++this.#lastId)
    const { epoch, headSeq } = session
    const answer: Answer = { type: "subscribed", id, session, epoch, headSeq, recovered }
    onAnswer?.(answer)
    for (const [event, bytes] of events) pages.onEvent(event, bytes)
    pages.onEnd(id)
    return answer
  }

  /** Reads older events from a stream, which it then ends. */
  async #older(frame: Subscribe, signal: AbortSignal): Promise<Older> {
    const { path, requests } = this.options
    const { beforeSeq = 1, limit = 1, sessionId } = frame
    const session = await this.#session(sessionId, signal)
    const { epoch, headSeq } = session
    const last = Math.min(beforeSeq - 1, headSeq)
    const events: Array<readonly [SessionEvent, number]> = []
    if (last < 1 || (frame.epoch !== undefined && frame.epoch !== epoch)) return { session, events, recovered: false }
    const read = async (offset: string): Promise<void> => {
      let bytes = 0
      for await (const page of readPages(requests, path + pathOf(sessionId), offset, signal)) {
        if (page.epoch !== epoch) throw new ConnectionFailed("The history has been replaced", false)
        for (const event of page.events) if (event.seq <= last) events.push([event, page.eventBytes])
        bytes += page.events.length * page.eventBytes
        if (bytes / 2 > this.maxResponseBytes) throw new ResponseTooLarge(this.maxResponseBytes)
        if (page.seq >= last) return
      }
      throw new ConnectionFailed("The event stream has ended", false)
    }
    try {
      await read(offsetOf({ epoch, seq: Math.max(0, last - limit) }))
      return { session, events, recovered: true }
    } catch (error) {
      if (!(error instanceof Gone)) throw error
      await read(firstOffset)
      return { session, events, recovered: false }
    }
  }
}
