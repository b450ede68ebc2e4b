/** The change feed as Server-Sent Events (HTML, section 9.2). */

import { type Context, Effect, Either, Option, Stream } from "effect"
import { Backoff } from "../../base/Time/Backoff.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import type { ListStream } from "../Store.ts"
import {
  type FeedBusy,
  type FollowerSlots,
  type LogWaiters,
  type Reader,
  spuriousWakeupPause,
  unavailablePauses
} from "./LogWaiters.ts"
import type { FollowQuery, Page, Pages, Position } from "./Pages.ts"

/** Milliseconds without a change after which a keep-alive is sent. */
const keepAliveIntervalMillis = 15_000

/** The id of the position up to which a client has everything. */
const idOf = ({ after, epoch }: Position): string => `${after}@${epoch}`

// A block that has only an `id` dispatches no event, but a browser resumes after it (HTML, section 9.2.6).

/** Sent at once, so that the client sees the stream open. The client reconnects a second after losing it. */
const opening = (id: string): Uint8Array => Buffer.from(`retry: 1000\n: following the change log\nid: ${id}\n\n`)

/** Reports the scanned position to a reader of one tenant, so that it does not scan that part again. */
const keepAlive = (position: Position): Uint8Array => Buffer.from(`: keep-alive\nid: ${idOf(position)}\n\n`)

/** The event of a position, which has it as its id. */
const positionEvent = (type: string, position: Position): string =>
  `event: ${type}\nid: ${idOf(position)}\ndata: {"lastSeq":${position.after},"epoch":"${position.epoch}"}\n\n`

/**
 * The present entries, as events without an id: a client that loses the connection starts again. The end has the
 * position of the snapshot as its id. If the list fails, the stream fails with a defect, so that no client takes a part
 * for the whole.
 */
export const initial = ({ epoch, lastSeq, portions }: ListStream): Stream.Stream<Uint8Array> => {
  // The closure must not keep the list in memory.
  let pending: ListStream["portions"] = portions
  const entries = Stream.suspend(() => {
    const own = pending
    pending = Stream.empty
    return own
  })
  const end = positionEvent("initial-end", { epoch, after: lastSeq })
  return Stream.make("retry: 1000\n: the present entries\n\n").pipe(
    Stream.concat(
      Stream.map(entries, portion => portion.map(({ json }) => `event: initial\ndata: ${json}\n\n`).join(""))
    ),
    Stream.concat(Stream.make(end)),
    Stream.filter(text => text !== ""),
    Stream.map(text => Buffer.from(text)),
    Stream.orDie
  )
}

class StreamReader implements Reader {
  /** Whether to read without waiting for the log to grow, because a log that was reset may not grow. */
  private polling = false
  private readonly unavailability = new Backoff(unavailablePauses.first, unavailablePauses.longest)

  constructor(
    private readonly pages: Pages,
    private readonly waiters: LogWaiters,
    private readonly draining: Context.Tag.Service<DrainingSignal>,
    readonly query: FollowQuery,
    /** A page that was read and not yet sent. */
    private pending: Page | undefined,
    public position: Position
  ) {}

  /** The next bytes, once there are some. Fails with `None` at the end of the stream. */
  readonly next: Effect.Effect<Uint8Array, Option.Option<never>> = Effect.flatMap(Monotonic.millis, now =>
    this.search(now + keepAliveIntervalMillis)
  )

  private search(deadline: number): Effect.Effect<Uint8Array, Option.Option<never>> {
    const self = this
    return Effect.gen(function* () {
      const first = self.pending
      self.pending = undefined
      const firstBytes = first === undefined ? undefined : self.advance(first)
      if (firstBytes !== undefined) return firstBytes
      while (true) {
        const reason = self.polling ? "grown" : yield* self.waiters.wait(self, deadline)
        if (reason === "draining" || self.draining.hasStarted()) return yield* Effect.fail(Option.none())
        if (reason === "deadline") return self.keepAlive()
        const read = yield* Effect.either(self.pages.next({ ...self.query, after: self.position.after }))
        if (Either.isRight(read)) {
          const from = self.position.after
          const bytes = self.advance(read.right)
          if (bytes !== undefined) return bytes
          if (!self.polling && self.position.after === from) yield* Effect.sleep(spuriousWakeupPause)
          self.polling = false
          self.unavailability.reset()
        } else {
          if (read.left._tag === "HistoryTrimmed") return yield* Effect.fail(Option.none())
          if (read.left.isUnreadable) {
            // The record may never become readable, and must not be skipped.
            yield* Effect.logError("An event stream ends because a change record cannot be read").pipe(
              Effect.annotateLogs({ after: self.position.after, reason: read.left.reason })
            )
            return yield* Effect.fail(Option.none())
          }
          yield* Effect.raceFirst(Effect.sleep(self.unavailability.next()), self.draining.started)
          // After the outage the log may have been replaced by one that does not grow past this position.
          self.polling = true
        }
        if ((yield* Monotonic.millis) >= deadline) return self.keepAlive()
      }
    })
  }

  private keepAlive(): Uint8Array {
    this.polling = true
    return keepAlive(this.position)
  }

  /** Advances by a page. Returns its events, if it has any. */
  private advance(page: Page): Uint8Array | undefined {
    const { after, epoch } = this.position
    this.position = page.end
    if (page.lastSeq < after || page.epoch !== epoch) return Buffer.from(positionEvent("reset", page.end))
    return page.count > 0 ? page.events : undefined
  }
}

/**
 * The events after `query.after`. `first` is the first page. Pages are read as the client takes them, so that at most
 * one is unsent. The stream continues after an outage of the store. It ends when the service drains, and when its
 * position is older than the history.
 */
export const make = (
  pages: Pages,
  waiters: LogWaiters,
  draining: Context.Tag.Service<DrainingSignal>,
  slots: FollowerSlots,
  query: FollowQuery,
  first: Page
): Stream.Stream<Uint8Array> => {
  // The closure must not keep the first page in memory.
  let pending: Page | undefined = first
  const { epoch, lastSeq } = first
  const start = opening(idOf({ epoch, after: Math.min(query.after, lastSeq) }))
  return Stream.unwrapScoped(
    Effect.gen(function* () {
      yield* Effect.acquireRelease(slots.acquire, () => Effect.sync(() => slots.release()))
      const reader = new StreamReader(pages, waiters, draining, query, pending, { epoch, after: query.after })
      pending = undefined
      return Stream.concat(Stream.make(start), Stream.repeatEffectOption(reader.next))
    })
  ).pipe(
    // All slots were taken between the headers and the body: the client reconnects.
    Stream.catchAll((_: FeedBusy) => Stream.make(start))
  )
}
