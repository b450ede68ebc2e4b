import { type Context, Effect, Either, Option, Stream } from "effect"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import * as Monotonic from "../../Monotonic.ts"
import type { ChangeQuery } from "../ChangeLog.ts"
import type { FeedBusy, FollowerSlots } from "./FollowerSlots.ts"
import { type LogWaiters, type Reader, spuriousWakeupPause } from "./LogWaiters.ts"
import type { Page } from "./Page.ts"
import type { Pages } from "./Pages.ts"

/** Milliseconds without a change after which a keep-alive is sent. */
const keepAliveInterval = 15_000

/** While the store is unavailable, the pauses between two reads double from the first to the longest, in milliseconds. */
const firstPause = 100
const longestPause = 2000

/** Sent at once, so that the client sees the stream open; it reconnects a second after losing it. */
const opening = Buffer.from("retry: 1000\n: following the change log\n\n")

/**
 * A block that has only an `id` dispatches nothing, but a browser resumes after it (HTML, section 9.2.6), so that a
 * reader of one tenant does not scan again what lies before.
 */
const keepAlive = (after: number): Uint8Array => Buffer.from(`: keep-alive\nid: ${after}\n\n`)

const reset = (lastSeq: number): Uint8Array =>
  Buffer.from(`event: reset\nid: ${lastSeq}\ndata: {"lastSeq":${lastSeq}}\n\n`)

/** Reads the log for one stream. */
class StreamReader implements Reader {
  after: number
  /** Whether to read without waiting for the log to grow, as one that was reset may not. */
  private polling = false
  private pause = firstPause

  constructor(
    private readonly pages: Pages,
    private readonly waiters: LogWaiters,
    private readonly draining: Context.Tag.Service<DrainingSignal>,
    readonly query: ChangeQuery,
    /** A page that is read but not yet sent. */
    private pending: Page | undefined
  ) {
    this.after = query.after
  }

  /** The next bytes, once there are some; fails with nothing at the end of the stream. */
  readonly next: Effect.Effect<Uint8Array, Option.Option<never>> = Effect.flatMap(Monotonic.millis, now =>
    this.search(now + keepAliveInterval)
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
        if (reason === "draining" || self.draining.hasBegun()) return yield* Effect.fail(Option.none())
        if (reason === "deadline") return self.keepAlive()
        const read = yield* Effect.either(self.pages.next({ ...self.query, after: self.after }))
        if (Either.isRight(read)) {
          const from = self.after
          const bytes = self.advance(read.right)
          if (bytes !== undefined) return bytes
          if (!self.polling && self.after === from) yield* Effect.sleep(spuriousWakeupPause)
          self.polling = false
          self.pause = firstPause
        } else {
          if (read.left._tag === "HistoryTrimmed") return yield* Effect.fail(Option.none())
          if (read.left.isUnreadable) {
            // It may never become readable, and must not be skipped.
            yield* Effect.logError("An event stream ends, as a change record cannot be read").pipe(
              Effect.annotateLogs({ after: self.after, reason: read.left.reason })
            )
            return yield* Effect.fail(Option.none())
          }
          yield* Effect.raceFirst(Effect.sleep(self.pause), self.draining.begun)
          self.pause = Math.min(2 * self.pause, longestPause)
        }
        if ((yield* Monotonic.millis) >= deadline) return self.keepAlive()
      }
    })
  }

  private keepAlive(): Uint8Array {
    this.polling = true
    return keepAlive(this.after)
  }

  /** Moves on by a page. Returns its events, if it has any. */
  private advance(page: Page): Uint8Array | undefined {
    const wentBack = page.lastSeq < this.after
    this.after = page.lastSeq
    if (wentBack) return reset(page.lastSeq)
    return page.count > 0 ? page.events : undefined
  }
}

/**
 * The events after `query.after`, of which `first` is the first page. Pages are read as the client takes them, so
 * that at most one lies unsent. The stream goes on after the store was unavailable. It ends when the service drains,
 * and when its position is older than the history that is kept.
 */
export const make = (
  pages: Pages,
  waiters: LogWaiters,
  draining: Context.Tag.Service<DrainingSignal>,
  slots: FollowerSlots,
  query: ChangeQuery,
  first: Page
): Stream.Stream<Uint8Array> => {
  // The stream must not keep its first page in memory.
  let pending: Page | undefined = first
  return Stream.unwrapScoped(
    Effect.gen(function* () {
      yield* Effect.acquireRelease(slots.acquire, () => Effect.sync(() => slots.release()))
      const reader = new StreamReader(pages, waiters, draining, query, pending)
      pending = undefined
      return Stream.concat(Stream.make(opening), Stream.repeatEffectOption(reader.next))
    })
  ).pipe(
    // All slots were taken between the answer's head and its body: the client reconnects by itself.
    Stream.catchAll((_: FeedBusy) => Stream.make(opening))
  )
}
