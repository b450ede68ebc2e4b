import { Effect, Runtime, type Scope } from "effect"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import { subprotocol } from "../../Http/WebSocket/Subprotocol.ts"
import * as WebSocket from "../../Http/WebSocket.ts"
import * as DebugLog from "../../Observability/DebugLog.ts"
import * as Supervision from "../../Supervision.ts"
import { ChangeLog } from "../ChangeLog.ts"
import { heartbeatIntervalMillis } from "./Follower.ts"
import { FollowerSet } from "./FollowerSet.ts"
import type { FollowerSlots } from "./FollowerSlots.ts"
import { closes } from "./Frames.ts"
import { type Initial, InitialFollower } from "./InitialFollower.ts"
import { Page } from "./Page.ts"
import type { FollowQuery, Pages } from "./Pages.ts"
import * as Rounds from "./Rounds.ts"

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
    const work = Effect.unsafeMakeLatch(false)
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
    const wake = () => work.unsafeOpen()
    const followers = new FollowerSet(pages.end, connections.now, wake, () => slots.release(), yield* DebugLog.make)
    const rounds = Rounds.make({ pages, log, followers, work })

    yield* Supervision.forkScoped("change feed", rounds.run)
    // A log that was reset does not grow past any follower's position.
    yield* Supervision.tickScoped("polls of the change log", heartbeatIntervalMillis, connections, rounds.poll)

    return {
      lowest: () => followers.lowest,
      upgrade: (query, first) => ({
        connections,
        accept: connect =>
          connect(connection => {
            const handler = followers.handler(connection, query, first)
            slots.take()
            return handler
          })
      }),
      upgradeWith: (query, initial) => ({
        connections,
        accept: connect =>
          connect(connection => {
            const handler = new InitialFollower(connection, initial, {
              fork: runFork,
              follow: ({ epoch, lastSeq }) =>
                followers.handler(connection, { ...query, after: lastSeq, epoch }, Page.empty(lastSeq, epoch)),
              release: () => slots.release()
            })
            slots.take()
            return handler
          })
      })
    }
  })
