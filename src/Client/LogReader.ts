/** Reads the change log over consecutive connections. */
import { type ClientError, ConnectionFailed, isClientError } from "./Errors.ts"
import type { FollowStatus } from "./Model.ts"
import type { Requests } from "./Requests.ts"
import { Retries } from "./Retry.ts"
import { pause } from "./Time.ts"
import {
  type FeedPage,
  type FeedQuery,
  isReset,
  type Part,
  type Position,
  poll,
  skippedMs,
  type Transport
} from "./Transports.ts"

/** The maximum number of changes in a page. */
const pageSize = 500

/** Whether another transport may succeed. The service itself refuses all transports alike. */
const isOfTransport = (error: ClientError): boolean => {
  switch (error._tag) {
    case "ConnectionFailed":
    case "Forbidden":
    case "NotFound":
    case "MethodNotAllowed":
      return true
    case "InvalidResponse":
      return error.status !== 429 && error.retryAfterMs === undefined
    default:
      return false
  }
}

/** Reads the change log over consecutive connections, by the first transport that works. */
export class LogReader {
  readonly #retries: Retries
  /** Until when each transport is skipped, in monotonic milliseconds. */
  readonly #skippedUntil = new Map<Transport, number>()

  /** @param transports the preferred one first */
  constructor(
    private readonly requests: Requests,
    private readonly transports: ReadonlyArray<Transport>,
    private readonly signal: AbortSignal,
    private readonly onStatus: ((status: FollowStatus) => void) | undefined
  ) {
    this.#retries = new Retries(requests)
  }

  /**
   * The log after a position, without gaps or duplicates. Before each connection it polls until it has caught up: polls
   * follow the pace of the reader, and their errors are specific where those of a handshake are not. Ends after a page
   * of another log, or with a `lastSeq` before the position: the log was reset.
   */
  async *pages(start: Position, part: Part): AsyncGenerator<FeedPage, void> {
    let query: FeedQuery = { ...start, ...part, limit: pageSize }
    for (;;) {
      for (let isBehind = true; isBehind; ) {
        const page = await this.retrying(() => poll(this.requests, query, this.signal))
        yield page
        if (isReset(page, query)) return
        query = { ...query, after: page.lastSeq, epoch: page.epoch || query.epoch }
        isBehind = page.changes.length >= pageSize
      }
      const transport = this.#choose()
      const startedAt = this.requests.clock.now()
      let count = 0
      try {
        for await (const page of transport.pages(query, this.signal)) {
          if (count++ === 0) this.onStatus?.({ type: "connected", transport: transport.name })
          if (page.changes.length > 0) this.#retries.reset()
          yield page
          if (isReset(page, query)) return
          query = { ...query, after: page.lastSeq, epoch: page.epoch || query.epoch }
        }
      } catch (error) {
        this.#retries.ended(startedAt)
        if (!this.#skip(transport, error, count)) await this.#recover(error)
      }
    }
  }

  /** The end of the current log. */
  end(): Promise<FeedPage> {
    const query = { after: Number.MAX_SAFE_INTEGER, epoch: undefined, tenant: undefined, limit: 1 }
    return this.retrying(() => poll(this.requests, query, this.signal))
  }

  /** Retries until there is an answer or a permanent failure. */
  async retrying<A>(work: () => Promise<A>): Promise<A> {
    for (;;) {
      try {
        const result = await work()
        this.#retries.accepted()
        return result
      } catch (error) {
        await this.#recover(error)
      }
    }
  }

  /** Pauses before the next attempt, or throws a permanent error. */
  async #recover(error: unknown): Promise<void> {
    this.signal.throwIfAborted()
    if (!isClientError(error)) throw error
    const retryInMs = this.#retries.after(error)
    if (retryInMs === undefined) throw error
    this.onStatus?.({ type: "disconnected", error, retryInMs })
    await pause(this.requests.clock, retryInMs, this.signal)
  }

  /** Pauses before the entries are read again. The pauses grow until a change arrives. */
  pause(): Promise<void> {
    return pause(this.requests.clock, this.#retries.next(), this.signal)
  }

  #choose(): Transport {
    const now = this.requests.clock.now()
    return this.transports.find(transport => now >= (this.#skippedUntil.get(transport) ?? 0)) ?? this.transports.at(-1)!
  }

  /**
   * Skips a transport that delivered nothing although a poll has just been answered: a proxy may block it. Returns
   * whether there is another one.
   */
  #skip(transport: Transport, error: unknown, pages: number): boolean {
    if (!isClientError(error) || !isOfTransport(error) || transport === this.transports.at(-1)) return false
    const isTimeout = error instanceof ConnectionFailed && error.isTimeout
    if (pages > 1 || (pages === 1 && !isTimeout)) return false
    this.#skippedUntil.set(transport, this.requests.clock.now() + skippedMs)
    return true
  }
}
