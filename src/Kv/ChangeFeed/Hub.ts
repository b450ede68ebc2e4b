import { Effect, Schedule, type Scope } from "effect"
import { Draining } from "../../Http/Draining.ts"
import type { Upgrade } from "../../Http/WebSocket/Upgrade.ts"
import * as Monotonic from "../../Monotonic.ts"
import * as DebugLog from "../../Observability/DebugLog.ts"
import * as Supervision from "../../Supervision.ts"
import { ChangeLog, type ChangeQuery } from "../ChangeLog.ts"
import { pauseAfterNothing } from "./Bell.ts"
import { Handshake, type UpgradeFailed } from "./Handshake.ts"
import type { Page } from "./Page.ts"
import { isUnreadable, type Pages, tail } from "./Pages.ts"
import { closeCodes, type Group, timing } from "./Watcher.ts"
import { Watchers } from "./Watchers.ts"

/** The WebSockets that follow the log, served by a few fibers however many they are. */
export interface Hub {
  /**
   * Makes a WebSocket of a request and sends it what is new. `onClose` is called once, when the connection is
   * closed; it is not called where the handshake fails.
   */
  readonly adopt: (
    upgrade: Upgrade,
    query: ChangeQuery,
    first: Page,
    onClose: () => void
  ) => Effect.Effect<void, UpgradeFailed>
  /** The position of the follower furthest behind; `undefined` without followers. */
  readonly furthestBehind: () => number | undefined
}

/** So many groups of lagging followers are served before those at the end get their turn. */
const groupsPerRound = 16

const firstPause = 100
const longestPause = 2000

/** Lets sockets be read and written before the next round. */
const turn = Effect.async<void>(resume => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})

const trimmedReason = "The history is no longer kept; list again"

export const make = (
  pages: Pages,
  unsentBytes: number
): Effect.Effect<Hub, never, ChangeLog | Draining | Scope.Scope> =>
  Effect.gen(function* () {
    const log = yield* ChangeLog
    const draining = yield* Draining
    const work = Effect.unsafeMakeLatch(false)
    const watchers = new Watchers(unsentBytes, pages.end, () => work.unsafeOpen(), yield* DebugLog.make)
    const handshake = new Handshake()
    let pause = firstPause
    let looking = false

    const whenAway = Effect.suspend(() => {
      const now = pause
      pause = Math.min(2 * pause, longestPause)
      return Effect.sleep(now)
    })

    const closeGroup = (group: Group, code: number, reason: string) =>
      Effect.map(Monotonic.millis, now => watchers.closeGroup(group, code, reason, now))

    const serveLagging = Effect.gen(function* () {
      for (const group of watchers.groups(groupsPerRound)) {
        yield* pages.next(group.query).pipe(
          Effect.zip(Monotonic.millis),
          Effect.map(([page, now]) => watchers.advanceGroup(group, page, now)),
          Effect.catchTag("HistoryTrimmed", () => closeGroup(group, closeCodes.trimmed, trimmedReason)),
          Effect.catchIf(isUnreadable, failure =>
            Effect.zipRight(
              Effect.logError("WebSockets are closed, as a change record cannot be read").pipe(
                Effect.annotateLogs({ after: group.query.after, reason: failure.reason })
              ),
              closeGroup(group, closeCodes.internal, "A change record cannot be read")
            )
          ),
          // What cannot be read for these must not keep the others waiting.
          Effect.catchAllDefect(defect =>
            Effect.zipRight(
              Effect.logError("A part of the change log cannot be read", defect),
              closeGroup(group, closeCodes.internal, "Internal error")
            )
          )
        )
      }
    })

    /** Returns whether the log had anything new. */
    const serveEnd = Effect.suspend(() => {
      const from = watchers.position
      if (!watchers.atEnd) return Effect.succeed(true)
      return pages.next(tail(from)).pipe(
        Effect.zip(Monotonic.millis),
        Effect.map(([page, now]) => {
          watchers.advance(page, from, now)
          return page.lastSeq !== from
        }),
        Effect.catchTag("HistoryTrimmed", () =>
          Effect.map(Monotonic.millis, now => {
            watchers.closeAtEnd(closeCodes.trimmed, trimmedReason, now)
            return true
          })
        ),
        // Each reads on for its own tenant, so that only those are closed who need what cannot be read.
        Effect.catchIf(isUnreadable, () =>
          Effect.sync(() => {
            watchers.scatter()
            return true
          })
        )
      )
    })

    /** Waits until there is something to do. Returns why. */
    const untilWork = Effect.suspend((): Effect.Effect<"lagging" | "grown" | "woken"> => {
      if (watchers.lagging) return Effect.succeed("lagging")
      const woken = Effect.as(work.await, "woken" as const)
      if (!watchers.atEnd) return woken
      return Effect.raceFirst(woken, Effect.as(log.awaitPast(watchers.position), "grown" as const))
    })

    const round = Effect.gen(function* () {
      const why = yield* untilWork
      work.unsafeClose()
      yield* turn
      yield* serveLagging
      if (why !== "woken" || looking) {
        looking = false
        const moved = yield* serveEnd
        if (why === "grown" && !moved) yield* Effect.sleep(pauseAfterNothing)
      }
      pause = firstPause
    })

    const pump = round.pipe(
      Effect.catchTag("StoreUnavailable", () => whenAway),
      Effect.catchAllCause(cause => Effect.zipRight(Effect.logError("The change feed stumbled", cause), whenAway)),
      Effect.forever
    )

    const tick = Effect.map(Monotonic.millis, now => watchers.tick(now))

    // A log that was reset grows past nobody's position, so look at it even when nothing moves.
    const look = Effect.sync(() => {
      looking = true
      work.unsafeOpen()
    })

    const closeAll = Effect.map(Monotonic.millis, now =>
      watchers.closeAll(closeCodes.goingAway, "The service is shutting down", now)
    )

    yield* Effect.addFinalizer(() =>
      closeAll.pipe(Effect.zipRight(turn), Effect.zipRight(Effect.sync(() => watchers.terminateAll())))
    )
    yield* Supervision.forkScoped("change feed", pump)
    yield* Supervision.forkScoped("ticks of the change feed", Effect.schedule(tick, Schedule.spaced("1 second")))
    yield* Supervision.forkScoped("looks at the change log", Effect.schedule(look, Schedule.spaced(timing.heartbeat)))
    yield* Effect.forkScoped(Effect.zipRight(draining.begun, closeAll))

    return {
      furthestBehind: () => watchers.furthestBehind,
      adopt: (upgrade, query, first, onClose) =>
        Effect.gen(function* () {
          const now = yield* Monotonic.millis
          const socket = yield* handshake.shake(upgrade)
          watchers.add(socket, upgrade.socket, query, first, now, onClose)
          if (draining.hasBegun()) yield* closeAll
        })
    }
  })
