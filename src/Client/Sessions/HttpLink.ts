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
  type SessionsError
} from "../Errors.ts"
import type { ErrorCode } from "../SessionModel.ts"
import { Lifetime, pause, Retries } from "../Time.ts"
import { type EventPage, firstOffset, offsetOf, readPages } from "./EventPages.ts"
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

/** Whether a request that failed may have been carried out: unless the gateway itself refuses it. */
const mayBeDone = (error: ClientError): boolean =>
  error instanceof ResponseError
    ? error instanceof InvalidResponse || error.requestId === undefined
    : error instanceof ConnectionFailed

/** A stream that is empty and ends before this time, in milliseconds, has failed. */
const shortestStreamMs = 1000

/** How work is repeated. */
interface Persistence {
  readonly signal: AbortSignal
  /** Whether it is repeated if it may have been done. */
  readonly isIdempotent: boolean
  /** Whether it concerns a session. */
  readonly hasSession: boolean
}

/** A subscription. */
interface Following {
  readonly sessionId: string
  /** The beginning of the next stream. */
  offset: string
  /** The epoch of the last answer; absent until the subscription is answered. */
  epoch: string | undefined
  readonly answer: (answer: AnswerOf<"subscribed">) => void
}

/** The gateway over HTTP. There is no connection: it is open until it ends. */
export class HttpLink implements Link {
  readonly #pending = new PendingBytes()
  readonly #calls = new Set<Lifetime>()
  /** The subscriptions, by session. */
  readonly #streams = new Map<string, Lifetime>()
  #isReached = false
  #ended: { readonly error: unknown } | undefined

  constructor(private readonly options: Omit<LinkOptions, "WebSocket">) {}

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

  async ask(frame: RequestFrame, { onAnswer, onLoss, signal }: AskOptions): Promise<Answer> {
    if (this.#ended !== undefined) throw this.#ended.error
    if (frame.type === "subscribe") return this.#subscribe(frame, onAnswer)
    if (frame.type === "unsubscribe") {
      this.#drop(frame.sessionId)
      return { type: "unsubscribed", id: "", sessionId: frame.sessionId }
    }
    const route = routeOf(frame)
    const release = this.#pending.add(route.request.body ?? "")
    const rest = { isIdempotent: onLoss === "repeat", hasSession: "sessionId" in frame }
    const call = (signal: AbortSignal) => this.#persist({ signal, ...rest }, () => this.#send(route, signal))
    return this.#limited(signal, call).finally(release)
  }

  abandon(sessionId: string, message: string): void {
    this.#drop(sessionId)
    this.options.listener.onSubscriptionEnded(sessionId, new RequestRefused(message, "internal", true, ""))
  }

  end(error: unknown): void {
    if (this.#ended !== undefined) return
    this.#ended = { error }
    for (const lifetime of [...this.#calls, ...this.#streams.values()]) lifetime.end(error)
    this.options.listener.onEnded(error)
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
        last = error
        this.#isReached = false
        notify(onStatus, { type: "disconnected", error, retryInMs })
        await pause(requests.clock, retryInMs, signal).catch(() => {})
      }
    }
  }

  /** Ends a subscription. */
  #drop(sessionId: string): void {
    this.#streams.get(sessionId)?.end()
    this.#streams.delete(sessionId)
  }

  #subscribe(
    { afterSeq = 0, epoch, sessionId }: Extract<RequestFrame, { type: "subscribe" }>,
    onAnswer: AskOptions["onAnswer"]
  ): Promise<Answer> {
    const { listener, requests } = this.options
    this.#drop(sessionId)
    const lifetime = new Lifetime(requests.clock, undefined)
    this.#streams.set(sessionId, lifetime)
    const { signal } = lifetime
    let isAnswered = false
    return new Promise((resolve, reject) => {
      const following: Following = {
        sessionId,
        offset: epoch === undefined ? firstOffset : offsetOf({ epoch, seq: afterSeq }),
        epoch: undefined,
        answer: answer => {
          isAnswered = true
          onAnswer?.(answer)
          resolve(answer)
        }
      }
      const follow = (retries: Retries) => this.#follow(following, signal, retries)
      this.#persist({ signal, isIdempotent: true, hasSession: true }, follow).catch((error: SessionsError) => {
        if (signal.aborted) return
        this.#drop(sessionId)
        if (error instanceof RequestRefused && !isAnswered) reject(error)
        else listener.onSubscriptionEnded(sessionId, error)
      })
    })
  }

  /** Reads consecutive streams. Fails if one cannot be read, or the session is deleted. */
  async #follow(following: Following, signal: AbortSignal, retries: Retries): Promise<never> {
    const { path, requests } = this.options
    for (;;) {
      const startedAt = requests.clock.now()
      const { offset } = following
      try {
        for await (const page of readPages(requests, path + pathOf(following.sessionId), offset, signal)) {
          retries.accepted()
          this.#onReached()
          await this.#onPage(page, following, signal)
        }
      } catch (error) {
        if (!(error instanceof Gone) || offset === firstOffset) throw error
        // Events after the offset are no longer kept, or the history was replaced. All events that are kept follow.
        following.offset = firstOffset
        following.epoch = undefined
        continue
      }
      if (following.offset === offset && requests.clock.now() - startedAt < shortestStreamMs) {
        throw new ConnectionFailed("The event stream has ended at once", false)
      }
    }
  }

  async #onPage(page: EventPage, following: Following, signal: AbortSignal): Promise<void> {
    const { listener } = this.options
    const { epoch, events, eventBytes, isClosed, offset } = page
    const { sessionId } = following
    if (epoch !== following.epoch) {
      const { session } = (await this.#send(routeOf({ type: "get_session", sessionId }), signal)) as AnswerOf<"session">
      if (session.epoch !== epoch) throw new ConnectionFailed("The history has been replaced", false)
      following.epoch = epoch
      const recovered = following.offset !== firstOffset
      following.answer({ type: "subscribed", id: "", session, epoch, headSeq: session.headSeq, recovered })
    }
    for (const event of events) {
      // The reader of an earlier event may have ended the subscription.
      signal.throwIfAborted()
      listener.onEvent(event, eventBytes)
    }
    signal.throwIfAborted()
    following.offset = offset
    if (isClosed) throw new RequestRefused("The session was deleted", "not_found", false, "")
  }
}
