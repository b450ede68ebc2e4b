import { type Context, Effect, Either, Option, Stream } from "effect"
import type { Draining } from "../../Http/Draining.ts"
import * as Monotonic from "../../Monotonic.ts"
import type { ChangeQuery } from "../ChangeLog.ts"
import { type Bell, pauseAfterNothing } from "./Bell.ts"
import type { Page } from "./Page.ts"
import type { Pages } from "./Pages.ts"
import type { FeedBusy, Places } from "./Places.ts"

/** After so many milliseconds without a change, a reader hears that the connection is alive. */
const keepAliveAfter = 15_000

/** While the store is away the log is asked again after ever longer pauses, in milliseconds. */
const firstPause = 100
const longestPause = 2000

/** What a client gets at once, so that it sees the connection open; it comes back a second after losing it. */
const opening = Buffer.from("retry: 1000\n: following the change log\n\n")

/**
 * A block that has only an `id` dispatches nothing, but a browser resumes after it (HTML, section 9.2.6). So a reader
 * of one tenant does not scan again what was of no concern to it.
 */
const keepAlive = (after: number): Uint8Array => Buffer.from(`: keep-alive\nid: ${after}\n\n`)

const reset = (lastSeq: number): Uint8Array =>
  Buffer.from(`event: reset\nid: ${lastSeq}\ndata: {"lastSeq":${lastSeq}}\n\n`)

/** One stream on its way through the log. */
class Reader {
  private after: number
  /** Whether to read without waiting for the log to grow: one that was reset would keep us waiting. */
  private look = false
  private pause = firstPause

  constructor(
    private readonly pages: Pages,
    private readonly bell: Bell,
    private readonly draining: Context.Tag.Service<Draining>,
    private readonly query: ChangeQuery,
    /** A page that is read but not yet sent. */
    private pending: Page | undefined
  ) {
    this.after = query.after
  }

  /** The next bytes, once there are some; it fails with nothing at the end. */
  readonly next: Effect.Effect<Uint8Array, Option.Option<never>> = Effect.flatMap(Monotonic.millis, now =>
    this.search(now + keepAliveAfter)
  )

  private search(deadline: number): Effect.Effect<Uint8Array, Option.Option<never>> {
    const self = this
    return Effect.gen(function* () {
      const first = self.pending
      self.pending = undefined
      const told = first === undefined ? undefined : self.tell(first)
      if (told !== undefined) return told
      while (true) {
        const ring = self.look ? "grown" : yield* self.bell.wait(self.after, deadline)
        if (ring === "draining" || self.draining.hasBegun()) return yield* Effect.fail(Option.none())
        if (ring === "late") return self.sayAlive()
        const read = yield* Effect.either(self.pages.next({ ...self.query, after: self.after }))
        if (Either.isRight(read)) {
          const from = self.after
          const bytes = self.tell(read.right)
          if (bytes !== undefined) return bytes
          if (!self.look && self.after === from) yield* Effect.sleep(pauseAfterNothing)
          self.look = false
          self.pause = firstPause
        } else {
          if (read.left._tag === "HistoryTrimmed") return yield* Effect.fail(Option.none())
          if (read.left.isUnreadable) {
            // To wait for it could take for ever, and to skip it is out of the question.
            yield* Effect.logError("An event stream ends, as a change record cannot be read").pipe(
              Effect.annotateLogs({ after: self.after, reason: read.left.reason })
            )
            return yield* Effect.fail(Option.none())
          }
          yield* Effect.raceFirst(Effect.sleep(self.pause), self.draining.begun)
          self.pause = Math.min(2 * self.pause, longestPause)
        }
        if ((yield* Monotonic.millis) >= deadline) return self.sayAlive()
      }
    })
  }

  private sayAlive(): Uint8Array {
    this.look = true
    return keepAlive(this.after)
  }

  /** Moves on by a page. Returns what it has to tell, if anything. */
  private tell(page: Page): Uint8Array | undefined {
    const wentBack = page.lastSeq < this.after
    this.after = page.lastSeq
    if (wentBack) return reset(page.lastSeq)
    return page.count > 0 ? page.events : undefined
  }
}

/**
 * The events after `query.after`, of which `first` is the first page. Pages are read as the client takes them, so
 * that at most one lies unsent. The stream outlasts an absence of the store; it ends when the service drains and
 * when the reader falls out of the history.
 */
export const make = (
  pages: Pages,
  bell: Bell,
  draining: Context.Tag.Service<Draining>,
  places: Places,
  query: ChangeQuery,
  first: Page
): Stream.Stream<Uint8Array> => {
  // A stream lasts, and must not keep its first page for as long.
  let pending: Page | undefined = first
  return Stream.unwrapScoped(
    Effect.gen(function* () {
      yield* Effect.acquireRelease(places.enter, () => Effect.sync(() => places.leave()))
      const reader = new Reader(pages, bell, draining, query, pending)
      pending = undefined
      return Stream.concat(Stream.make(opening), Stream.repeatEffectOption(reader.next))
    })
  ).pipe(
    // All places were taken between the answer's head and its body: the client comes back by itself.
    Stream.catchAll((_: FeedBusy) => Stream.make(opening))
  )
}
