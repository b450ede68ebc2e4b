import { type Context, Effect } from "effect"
import { Backoff } from "../../Backoff.ts"
import { yieldToEventLoop } from "../../EventLoop.ts"
import type { Close } from "../../Http/WebSocket.ts"
import type { ChangeLog } from "../ChangeLog.ts"
import type { StoreUnavailable } from "../Store.ts"
import type { FollowerSet, Group } from "./FollowerSet.ts"
import { closes } from "./Frames.ts"
import { spuriousWakeupPause, unavailablePauses } from "./LogWaiters.ts"
import { isUnreadable, type Pages, tail } from "./Pages.ts"

/** Reads the log for followers, in rounds. */
export interface Rounds {
  /** Serves the followers until it is interrupted. It continues after failures. */
  readonly run: Effect.Effect<never>
  /** Causes a round that reads the log although no change is known. */
  readonly poll: Effect.Effect<void>
}

/** What the rounds read, and the followers that they serve. */
export interface Options {
  readonly pages: Pages
  readonly log: Pick<Context.Tag.Service<ChangeLog>, "awaitPast">
  readonly followers: FollowerSet
  /** Open when a follower may need something. Each round closes it. */
  readonly work: Effect.Latch
}

/** The number of groups of lagging followers that are served before those at the end of the log. */
const groupsPerRound = 16

/** Reads a page for each of the first groups of lagging followers. */
const serveLagging = ({ followers, pages }: Options): Effect.Effect<void, StoreUnavailable> => {
  const closeGroup = (group: Group, close: Close) => Effect.sync(() => followers.closeGroup(group, close))
  return Effect.gen(function* () {
    for (const group of followers.groups(groupsPerRound)) {
      yield* pages.next(group.query).pipe(
        Effect.map(page => followers.advanceGroup(group, page)),
        Effect.catchTag("HistoryTrimmed", trimmed => Effect.sync(() => followers.closeTrimmed(trimmed, group))),
        Effect.catchIf(isUnreadable, failure =>
          Effect.zipRight(
            Effect.logError("WebSockets are closed because a change record cannot be read").pipe(
              Effect.annotateLogs({ after: group.query.after, reason: failure.reason })
            ),
            closeGroup(group, closes.unreadable)
          )
        ),
        // An unreadable part must not block the other groups.
        Effect.catchAllDefect(defect =>
          Effect.zipRight(
            Effect.logError("A part of the change log cannot be read", defect),
            closeGroup(group, closes.internal)
          )
        )
      )
    }
  })
}

/** Reads the log for the followers at its end. Returns whether the log had anything new. */
const serveEnd = ({ followers, pages }: Options): Effect.Effect<boolean, StoreUnavailable> =>
  Effect.suspend(() => {
    const from = followers.position
    if (!followers.atEnd) return Effect.succeed(true)
    return pages.next(tail(from)).pipe(
      Effect.map(page => {
        followers.advance(page, from)
        return page.lastSeq !== from
      }),
      Effect.catchTag("HistoryTrimmed", trimmed =>
        Effect.sync(() => {
          followers.closeTrimmed(trimmed)
          return true
        })
      ),
      // Each follower is read for separately, so that only those are closed that need the unreadable record.
      Effect.catchIf(isUnreadable, () =>
        Effect.sync(() => {
          followers.fallBehind()
          return true
        })
      )
    )
  })

/** Waits until there is work. Returns the reason. */
const untilWork = ({ followers, log, work }: Options): Effect.Effect<"lagging" | "grown" | "woken"> =>
  Effect.suspend(() => {
    if (followers.lagging) return Effect.succeed("lagging" as const)
    const woken = Effect.as(work.await, "woken" as const)
    if (!followers.atEnd) return woken
    return Effect.raceFirst(woken, Effect.as(log.awaitPast(followers.position), "grown" as const))
  })

/** Makes the rounds. Each serves the lagging followers, then those at the end of the log if it may have grown. */
export const make = (options: Options): Rounds => {
  const { work } = options
  const unavailability = new Backoff(unavailablePauses.first, unavailablePauses.longest)
  /** Whether to read the log although no change is known. */
  let polling = false

  const round = Effect.gen(function* () {
    const why = yield* untilWork(options)
    work.unsafeClose()
    yield* yieldToEventLoop
    yield* serveLagging(options)
    if (why !== "woken" || polling) {
      polling = false
      const moved = yield* serveEnd(options)
      if (why === "grown" && !moved) yield* Effect.sleep(spuriousWakeupPause)
    }
    unavailability.reset()
  })

  const poll = Effect.sync(() => {
    polling = true
    work.unsafeOpen()
  })

  // After the outage the log may have been replaced.
  const afterFailure = Effect.zipRight(
    Effect.suspend(() => Effect.sleep(unavailability.next())),
    poll
  )

  const run = round.pipe(
    Effect.catchTag("StoreUnavailable", () => afterFailure),
    Effect.catchAllCause(cause =>
      Effect.zipRight(Effect.logError("A round of the change feed failed", cause), afterFailure)
    ),
    Effect.forever
  )
  return { run, poll }
}
