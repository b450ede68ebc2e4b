import { type Context, Effect, Option, Schedule, Stream } from "effect"
import type { Draining } from "../../Http/Draining.ts"
import type { ChangeLog, ChangeQuery } from "../ChangeLog.ts"
import { type Cursor, nextPage } from "./Follow.ts"
import type { Page } from "./Page.ts"
import type { Pages, ReadFailure } from "./Pages.ts"
import type { FeedBusy, Places } from "./Places.ts"

/** After so long without a change, a reader hears that the connection is alive. */
export const keepAliveAfter = "15 seconds"

/** While the store is away the log is asked again after ever longer pauses, up to two seconds. */
const storeReturns = Schedule.exponential("100 millis").pipe(Schedule.union(Schedule.spaced("2 seconds")))

/** What a client gets at once, so that it sees the connection open; it comes back a second after losing it. */
const opening = Buffer.from("retry: 1000\n: following the change log\n\n")

/**
 * A block that has only an `id` dispatches nothing, but a browser resumes after it (HTML, section 9.2.6). So a reader
 * of one tenant does not scan again what was of no concern to it.
 */
const keepAlive = (after: number): Uint8Array => Buffer.from(`: keep-alive\nid: ${after}\n\n`)

const reset = (lastSeq: number): Uint8Array =>
  Buffer.from(`event: reset\nid: ${lastSeq}\ndata: {"lastSeq":${lastSeq}}\n\n`)

interface Reader {
  readonly cursor: Cursor
  /** A page that is read but not yet sent. */
  pending: Page | undefined
  /** Whether to look at the log before waiting for it to grow: a log that was reset would keep us waiting. */
  look: boolean
}

const silence = Symbol()
const end = Symbol()

/**
 * The events after `query.after`, of which `first` is the first page. Pages are read as the client takes them, so
 * that at most one lies unsent. The stream outlasts an absence of the store; it ends when the service drains and
 * when the reader falls out of the history.
 */
export const make = (
  log: Context.Tag.Service<ChangeLog>,
  pages: Pages,
  draining: Context.Tag.Service<Draining>,
  places: Places,
  query: ChangeQuery,
  first: Page
): Stream.Stream<Uint8Array> => {
  const search = (reader: Reader): Effect.Effect<Page, ReadFailure> =>
    Effect.gen(function* () {
      const { cursor } = reader
      if (reader.look) {
        const page = yield* pages.next({ ...query, after: cursor.after })
        if (page.count > 0 || page.lastSeq < cursor.after) return page
        cursor.after = page.lastSeq
        reader.look = false
      }
      return yield* nextPage(log, pages, cursor, query)
    })

  const await_ = (reader: Reader): Effect.Effect<Page | typeof silence | typeof end> =>
    search(reader).pipe(
      Effect.retry({ schedule: storeReturns, while: error => error._tag === "StoreUnavailable" }),
      Effect.catchAll(() => Effect.succeed(end)),
      Effect.raceFirst(Effect.as(draining.begun, end)),
      Effect.timeoutTo({ duration: keepAliveAfter, onTimeout: () => silence, onSuccess: found => found })
    )

  const step = (reader: Reader): Effect.Effect<Uint8Array, Option.Option<never>> =>
    Effect.gen(function* () {
      const found = draining.hasBegun() ? end : (reader.pending ?? (yield* await_(reader)))
      reader.pending = undefined
      if (found === end) return yield* Effect.fail(Option.none())
      const { cursor } = reader
      if (found === silence) {
        reader.look = true
        return keepAlive(cursor.after)
      }
      const wentBack = found.lastSeq < cursor.after
      cursor.after = found.lastSeq
      return wentBack ? reset(found.lastSeq) : found.events
    })

  return Stream.unwrapScoped(
    Effect.gen(function* () {
      yield* Effect.acquireRelease(places.enter, () => places.leave)
      const tells = first.count > 0 || first.lastSeq < query.after
      const reader: Reader = {
        cursor: { after: tells ? query.after : first.lastSeq },
        pending: tells ? first : undefined,
        look: false
      }
      return Stream.concat(Stream.make(opening), Stream.repeatEffectOption(step(reader)))
    })
  ).pipe(
    // All places were taken between the answer's head and its body: the client comes back by itself.
    Stream.catchAll((_: FeedBusy) => Stream.make(opening))
  )
}
