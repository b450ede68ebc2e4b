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

/** The most changes that are asked for at once. */
const pageSize = 500

/** How long a transport that did not work is passed over, and how long polls go on before a better one is tried. */
const passedOverMs = 300_000

/** How long a connection lasts that counts as a success. */
const stableMs = 60_000

const pollWaitSeconds = 30

const readChanges = json<ChangePage>(isPage)

const readPage: Reader<FeedPage> = async (response, limitBytes, format) => ({
  ...(await readChanges(response, limitBytes, format)),
  epoch: epochOf(response)
})

/** A page of the log; with `wait` the service waits for one. */
const poll = (requests: Requests, query: FeedQuery & { readonly wait?: number }, signal: AbortSignal) => {
  const timeoutMs = query.wait === undefined ? undefined : silenceMs
  return requests.ask({ path: "/changes", query, timeoutMs }, signal, readPage)
}

/** The change log by polls that wait. */
export const longPolling = (requests: Requests): Transport => ({
  name: "longPolling",

  async *pages(query, signal) {
    const { now } = requests.clock
    yield { changes: [], lastSeq: query.after, epoch: query.epoch ?? "" }
    const end = now() + passedOverMs
    for (let after = query.after; now() < end; ) {
      const begun = now()
      const page = await poll(requests, { ...query, after, wait: pollWaitSeconds }, signal)
      const isEmpty = page.changes.length === 0 && page.lastSeq === after
      if (isEmpty && now() - begun < 1000) throw new ConnectionFailed("The poll did not wait", false)
      yield page
      after = page.lastSeq
    }
  }
})

/** Whether another way to the same log may do better. The service itself refuses all ways alike. */
const isOfOneWay = (error: ClientError): boolean => {
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

/** Reads the change log over one connection after the other, by whichever transport works. */
export class LogReader {
  readonly #backoff: Backoff
  /** Until when each transport is passed over, in monotonic milliseconds. */
  readonly #passedOver = new Map<Transport, number>()
  /** Whether the last token was refused. */
  #isRefused = false

  /** @param transports the best one first */
  constructor(
    private readonly requests: Requests,
    private readonly transports: ReadonlyArray<Transport>,
    private readonly signal: AbortSignal,
    private readonly onStatus: ((status: FollowStatus) => void) | undefined
  ) {
    this.#backoff = new Backoff(requests.clock)
  }

  /**
   * The log after a position, without gap or double. Each connection begins with polls until they have caught up: they
   * go at the pace of the reader, and their answers say what is wrong where a handshake would not. It ends behind a page
   * of another log, or whose `lastSeq` lies before the position: the log was reset.
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
      const begun = now()
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
        if (now() - begun > stableMs) this.#backoff.reset()
        if (!this.#passOver(transport, error, count)) await this.#recover(error)
      }
    }
  }

  /** The end of the log, whichever it is. */
  end(): Promise<FeedPage> {
    const query = { after: Number.MAX_SAFE_INTEGER, epoch: undefined, tenant: undefined, limit: 1 }
    return this.retrying(() => poll(this.requests, query, this.signal))
  }

  /** Tries until there is an answer, or a failure that a later try would not avoid. */
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

  /** Pauses before the next try, or throws the error where that would not help. */
  async #recover(error: unknown): Promise<void> {
    this.signal.throwIfAborted()
    if (!isClientError(error)) throw error
    // A new token may do better, but once.
    const mayRenew = error._tag === "Unauthorized" && this.requests.isTokenRenewable && !this.#isRefused
    if (!mayRenew && !isTransient(error)) throw error
    this.#isRefused = mayRenew
    const retryInMs = this.#backoff.next("retryAfterMs" in error ? error.retryAfterMs : undefined)
    this.onStatus?.({ type: "disconnected", error, retryInMs })
    await pause(this.requests.clock, retryInMs, this.signal)
  }

  /** Pauses before what is known is read anew, longer each time until a change has come. */
  pause(): Promise<void> {
    return pause(this.requests.clock, this.#backoff.next(), this.signal)
  }

  #choose(): Transport {
    const now = this.requests.clock.now()
    return this.transports.find(transport => now >= (this.#passedOver.get(transport) ?? 0)) ?? this.transports.at(-1)!
  }

  /**
   * Passes over a transport that brought nothing, though a poll has just been answered: something on the way does not
   * let it through. Returns whether there is another one.
   */
  #passOver(transport: Transport, error: unknown, pages: number): boolean {
    if (!isClientError(error) || !isOfOneWay(error) || transport === this.transports.at(-1)) return false
    const isTimeout = error instanceof ConnectionFailed && error.isTimeout
    if (pages > 1 || (pages === 1 && !isTimeout)) return false
    this.#passedOver.set(transport, this.requests.clock.now() + passedOverMs)
    return true
  }
}
