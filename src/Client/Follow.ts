/** Follows the change log or a namespace as a stream of events, over consecutive connections. */
import { type ClientError, ConnectionFailed, Gone, isClientError } from "./Errors.ts"
import { compare } from "./KeyOrder.ts"
import type { Change, FollowEvent, FollowStatus, ListPage } from "./Model.ts"
import type { Requests } from "./Requests.ts"
import { pause, Retries } from "./Time.ts"
import {
  type FeedPage,
  type FeedQuery,
  isOther,
  isReset,
  type Part,
  type Position,
  poll,
  skippedMs,
  type Transport
} from "./Transports.ts"

/** Follows the log from a position. Ends after a reset, and if history is no longer kept, with the event for it. */
export async function* followLog(
  reader: LogReader,
  start: Position,
  part: Part,
  isWanted: (change: Change) => boolean = () => true
): AsyncGenerator<FollowEvent, void> {
  let { after, epoch } = start
  try {
    for await (const page of reader.pages(start, part)) {
      const { changes, lastSeq } = page
      if (isReset(page, { after, epoch })) return yield { type: "reset", lastSeq, epoch: page.epoch }
      epoch = page.epoch || epoch
      for (const change of changes) {
        if (change.seq > after && isWanted(change)) yield { type: "change", change, epoch: epoch ?? "" }
      }
      after = lastSeq
    }
  } catch (error) {
    if (!(error instanceof Gone)) throw error
    if (epoch === undefined || !isOther(error.epoch, epoch)) {
      return yield { type: "trimmed", after, trimmedSeq: error.trimmedSeq }
    }
    const { epoch: newEpoch, lastSeq } = await reader.end()
    yield { type: "reset", lastSeq, epoch: newEpoch }
  }
}

export interface CursorPage extends ListPage {
  readonly cursor: string | undefined
}

/** Lists a part of a namespace and follows it; starts again if the log was reset or is no longer kept. */
export async function* followNamespace(
  reader: LogReader,
  part: Part,
  list: (cursor: string | undefined) => Promise<CursorPage>
): AsyncGenerator<FollowEvent, void> {
  for (;;) {
    const snapshot = new Snapshot()
    let epoch: string | undefined
    let isReplaced = false
    for (let cursor: string | undefined, isMore = true; isMore; ) {
      const page: CursorPage = await reader.retrying(() => list(cursor))
      epoch ??= page.epoch
      // All pages of a list must belong to one log.
      if (isOther(page.epoch, epoch)) {
        yield { type: "reset", lastSeq: page.lastSeq, epoch: page.epoch }
        isReplaced = true
        break
      }
      snapshot.add(page)
      for (const entry of page.items) yield { type: "entry", entry }
      cursor = page.cursor
      isMore = cursor !== undefined
    }
    if (!isReplaced) {
      const { start } = snapshot
      yield { type: "synced", lastSeq: start, epoch: epoch ?? "" }
      yield* followLog(reader, { after: start, epoch: epoch || undefined }, part, change => snapshot.isNew(change))
    }
    await reader.pause()
  }
}

/** Follows a part of a namespace from now on; starts again if the log was reset or is no longer kept. */
export async function* followFromEnd(reader: LogReader, part: Part): AsyncGenerator<FollowEvent, void> {
  for (;;) {
    const { epoch, lastSeq } = await reader.end()
    yield { type: "synced", lastSeq, epoch }
    yield* followLog(reader, { after: lastSeq, epoch: epoch || undefined }, part)
    await reader.pause()
  }
}

/**
 * The positions of the change log at which the pages of a list were read. Each page is a separate snapshot: a change is
 * new if it came after the page of its key. Once the log was read past the last page, one position suffices.
 */
export class Snapshot {
  /** Adjacent pages with the same position are merged. */
  readonly #parts: Array<{ readonly upTo: string; readonly lastSeq: number }> = []
  #lastSeq = 0

  /** The position from which the log must be read. */
  get start(): number {
    return this.#parts[0]?.lastSeq ?? this.#lastSeq
  }

  add({ items, lastSeq }: ListPage): void {
    const upTo = items.at(-1)?.key ?? ""
    if (this.#parts.at(-1)?.lastSeq === lastSeq) this.#parts.pop()
    this.#parts.push({ upTo, lastSeq })
    this.#lastSeq = lastSeq
  }

  /** Whether a change came after the page of its key. */
  isNew({ key, seq }: Change): boolean {
    if (seq > this.#lastSeq) {
      this.#parts.length = 0
      return true
    }
    // The last page extends to the end of the namespace.
    const part = this.#parts.find(({ upTo }) => compare(key, upTo) <= 0)
    return seq > (part?.lastSeq ?? this.#lastSeq)
  }
}

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
        isBehind = page.hasMore
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
