import type { Duplex } from "node:stream"
import type { WebSocket } from "ws"
import type { Account, Reading } from "../../Http/Server/Unsent.ts"
import type { ChangeQuery } from "../ChangeLog.ts"

/** Close codes, as the service's documentation lists them. */
export const closeCodes = {
  goingAway: 1001,
  /** Something went wrong here. */
  internal: 1011,
  /** It did not take what it was sent; it may resume after the last `lastSeq` that it saw. */
  slow: 4008,
  /** The history that it wants is no longer kept; it has to list again. */
  trimmed: 4010
} as const

/** All in milliseconds. */
export const timing = {
  /** Idle for so long, a follower is sent a heartbeat; it is pinged as often. */
  heartbeat: 15_000,
  /** So long may a follower take nothing of what it was sent. */
  drain: 30_000,
  /** So long may a closing handshake take. */
  close: 5_000
} as const

/**
 * Where a follower stands: at the common position, past it, before it, unable to take more, or on its way out.
 */
export type Phase = "live" | "ahead" | "behind" | "blocked" | "closing"

/** One WebSocket that follows the log. */
export interface Watcher {
  readonly socket: WebSocket
  /**
   * What the WebSocket runs over. Frames that many followers share are written here, in one piece and one system
   * call each. They cannot fall into another frame: without compression `ws` writes each of its own at once and whole.
   */
  readonly wire: Duplex
  /** What its server counts of it, if it does. */
  readonly account: Account | undefined
  readonly tenant: string
  readonly limit: number
  readonly written: () => void
  phase: Phase
  /** The last `seq` sent; out of date while live, when the common position says it. */
  cursor: number
  lastSent: number
  /** When it was blocked, or began to close, or took something after that. */
  since: number
  readonly reading: Reading
  /** It closes because it is slow: it may take its time to read what is on its way, the close frame at the end. */
  isSlow: boolean
  nextPing: number
  unanswered: number
  /** Frames that came from it since the last tick. */
  heard: number
}

/** Followers that want the same page. */
export interface Group {
  readonly query: ChangeQuery
  readonly members: Array<Watcher>
}
