/** The WebSockets that follow the change log: their upgrades, and the rounds of reads that serve them. */

import { type Context, Effect, Exit, Runtime, type Scope } from "effect"
import * as Direct from "../../base/Direct.ts"
import { Signal } from "../../base/Inbox.ts"
import * as DebugLog from "../../base/Observability/DebugLog.ts"
import * as Supervision from "../../base/Supervision.ts"
import { Backoff } from "../../base/Time/Backoff.ts"
import { yieldToEventLoop } from "../../base/Time/EventLoop.ts"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import { subprotocol } from "../../Http/HeaderFields.ts"
import type { Close } from "../../Http/WebSocket.ts"
import * as WebSocket from "../../Http/WebSocket.ts"
import { ChangeLog } from "../ChangeLog.ts"
import type { StoreUnavailable } from "../Store.ts"
import { closes, Follower, heartbeatIntervalMillis, type Initial, InitialFollower } from "./Follower.ts"
import { FollowerSet, type Group } from "./FollowerSet.ts"
import { type FollowerSlots, spuriousWakeupPause, unavailablePauses } from "./LogWaiters.ts"
import { type FollowQuery, isUnreadable, type Page, type Pages, tail } from "./Pages.ts"

/** What the rounds read, and the followers that they serve. */
interface Options {
  readonly pages: Pages
  readonly log: Pick<Context.Tag.Service<ChangeLog>, "awaitPast">
  readonly followers: FollowerSet
  /** Set when a follower may need something. Each round clears it. */
  readonly work: Signal
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
    const from = followers.shared
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
  Direct.suspend(() => {
    if (followers.lagging) return Exit.succeed("lagging" as const)
    const woken = Direct.map(work.wait, () => "woken" as const)
    if (!followers.atEnd) return woken
    // First: connections that open without a pause must not keep changes from the others.
    const grown = Direct.map(log.awaitPast(followers.shared), () => "grown" as const)
    return Direct.raceFirst(grown, woken)
  })

/**
 * Makes the rounds of reads for followers: `run` makes them until it is interrupted, and `poll` causes one although no
 * change is known. Each serves the lagging followers, then those at the end of the log if it may have grown.
 */
const roundsOf = (options: Options) => {
  const { work } = options
  const unavailability = new Backoff(unavailablePauses.first, unavailablePauses.longest)
  /** Whether to read the log although no change is known. */
  let polling = false

  const round = Effect.gen(function* () {
    const why = yield* untilWork(options)
    work.clear()
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
    work.set()
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

/** The WebSockets that follow the log, served by a few fibers regardless of their number. */
export interface WebSockets {
  /** Upgrades a request. The WebSocket sends `first`, and then what follows. */
  readonly upgrade: (query: FollowQuery, first: Page) => WebSocket.Upgrade
  /** Upgrades a request. The WebSocket sends the present entries, and then what follows. */
  readonly upgradeWith: (query: FollowQuery, initial: Initial) => WebSocket.Upgrade
  /** The position of the slowest follower; `undefined` if there is none. */
  readonly lowest: () => number | undefined
}

/** Starts the fibers that serve the WebSockets, until the scope closes. `unsentBytes` is the limit of one WebSocket. */
export const make = (
  pages: Pages,
  slots: FollowerSlots,
  unsentBytes: number
): Effect.Effect<WebSockets, never, ChangeLog | DrainingSignal | Scope.Scope> =>
  Effect.gen(function* () {
    const log = yield* ChangeLog
    const runFork = Runtime.runFork(yield* Effect.runtime())
    const work = new Signal()
    const connections = yield* WebSocket.connectionSet({
      messageBytes: 4096,
      subprotocol,
      unsentBytes,
      pingInterval: heartbeatIntervalMillis,
      pongTimeout: 2 * heartbeatIntervalMillis,
      slow: closes.slow,
      goingAway: closes.goingAway,
      drainInterval: 0
    })
    const wake = () => work.set()
    const followers = new FollowerSet(pages.end, connections.now, wake, () => slots.release(), yield* DebugLog.make)
    const rounds = roundsOf({ pages, log, followers, work })

    yield* Supervision.forkScoped("change feed", rounds.run)
    // A log that was reset does not grow past any follower's position.
    yield* Supervision.tickScoped("polls of the change log", heartbeatIntervalMillis, connections, rounds.poll)

    const upgradeBy = (handlerOf: (connection: WebSocket.Connection) => WebSocket.Handler): WebSocket.Upgrade => ({
      connections,
      accept: connect =>
        connect(connection => {
          const handler = handlerOf(connection)
          slots.take()
          return handler
        })
    })

    return {
      lowest: () => followers.lowest,
      upgrade: (query, first) => upgradeBy(connection => new Follower(connection, followers, query, first)),
      upgradeWith: (query, initial) =>
        upgradeBy(connection => new InitialFollower(connection, followers, query, initial, runFork))
    }
  })
