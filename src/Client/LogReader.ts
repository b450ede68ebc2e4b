import { type ClientError, ConnectionFailed, isClientError } from "./Errors.ts"
import type { ChangePage, FollowStatus } from "./Model.ts"
import { epochOf, json, type Reader, type Requests } from "./Requests.ts"
import { isTransient } from "./Retry.ts"
import { Backoff, pause } from "./Time.ts"
import {
  type FeedPage,
  type FeedQuery,
  isPage,
  isReset,
  type Part,
  type Position,
  silenceMs,
  type Transport
} from "./Transport.ts"

/** The maximum number of changes in a page. */
const pageSize = 500

/** How long a failed transport is skipped, and how long polls continue before a better one is tried. */
const skippedMs = 300_000

/** A connection that lasts this long resets the backoff. */
const stableMs = 60_000

const pollWaitSeconds = 30

const readChanges = json<ChangePage>(isPage)

const readPage: Reader<FeedPage> = async (response, limitBytes, format) => ({
  ...(await readChanges(response, limitBytes, format)),
  epoch: epochOf(response)
})

/** A page of the log; with `wait`, the service waits for changes. */
const poll = (requests: Requests, query: FeedQuery & { readonly wait?: number }, signal: AbortSignal) => {
  const timeoutMs = query.wait === undefined ? undefined : silenceMs
  return requests.ask({ path: "/changes", query, timeoutMs }, signal, readPage)
}

/** The change log by long polls. */
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
  readonly #backoff: Backoff
  /** Until when each transport is skipped, in monotonic milliseconds. */
  readonly #skippedUntil = new Map<Transport, number>()
  /** Whether the last token was refused. */
  #isRefused = false

  /** @param transports the preferred one first */
  constructor(
    private readonly requests: Requests,
    private readonly transports: ReadonlyArray<Transport>,
    private readonly signal: AbortSignal,
    private readonly onStatus: ((status: FollowStatus) => void) | undefined
  ) {
    this.#backoff = new Backoff(requests.clock)
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
      const { now } = this.requests.clock
      const startedAt = now()
      let count = 0
      try {
        for await (const page of transport.pages(query, this.signal)) {
          if (count++ === 0) this.onStatus?.({ type: "connected", transport: transport.name })
          if (page.changes.length > 0) this.#backoff.reset()
          yield page
          if (isReset(page, query)) return
          query = { ...query, after: page.lastSeq, epoch: page.epoch || query.epoch }
        }
      } catch (error) {
        if (now() - startedAt > stableMs) this.#backoff.reset()
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
        this.#isRefused = false
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
    // A new token may succeed. It is tried once.
    const mayRenew = error._tag === "Unauthorized" && this.requests.isTokenRenewable && !this.#isRefused
    if (!mayRenew && !isTransient(error)) throw error
    this.#isRefused = mayRenew
    const retryInMs = this.#backoff.next("retryAfterMs" in error ? error.retryAfterMs : undefined)
    this.onStatus?.({ type: "disconnected", error, retryInMs })
    await pause(this.requests.clock, retryInMs, this.signal)
  }

  /** Pauses before the entries are read again. The pauses grow until a change arrives. */
  pause(): Promise<void> {
    return pause(this.requests.clock, this.#backoff.next(), this.signal)
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
