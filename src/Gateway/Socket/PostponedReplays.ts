import { Backoff } from "../../Backoff.ts"
import type { Feed } from "./Feed.ts"

/** A feed of a tenant that reads missed events. */
export interface Replay {
  readonly tenant: string
  readonly feed: Feed
}

/** The failures of a feed in a row. */
export interface Failures {
  /** When the first one was, in monotonic milliseconds. */
  readonly since: number
  readonly backoff: Backoff
}

interface Postponed extends Failures {
  readonly replay: Replay
  /** When the feed is read again, in monotonic milliseconds. */
  readonly until: number
}

/** The pauses of a feed that cannot be read, in milliseconds. */
const pauses = { first: 500, longest: 8000 } as const

/** Milliseconds after which a feed that cannot be read is given up. */
const timeoutMillis = 30_000

/** Feeds that could not be read and wait for their next attempt. Times are in monotonic milliseconds. */
export class PostponedReplays {
  private readonly postponed = new Map<Feed, Postponed>()

  get isEmpty(): boolean {
    return this.postponed.size === 0
  }

  /** Adds a feed that could not be read, with its earlier failures. Returns false if it has failed for too long. */
  add(replay: Replay, before: Failures | undefined, now: number): boolean {
    const { backoff, since } = before ?? { backoff: new Backoff(pauses.first, pauses.longest), since: now }
    if (now - since >= timeoutMillis) return false
    this.postponed.set(replay.feed, { replay, since, backoff, until: now + backoff.next() })
    return true
  }

  /** Removes a feed that is read now. Returns its failures. */
  take(feed: Feed): Failures | undefined {
    const failures = this.postponed.get(feed)
    this.postponed.delete(feed)
    return failures
  }

  /** The feeds that are due. They stay here until they are read. Feeds that want no more events are removed. */
  due(now: number): ReadonlyArray<Replay> {
    const due: Array<Replay> = []
    for (const [feed, { replay, until }] of this.postponed) {
      if (feed.wanted === undefined) this.postponed.delete(feed)
      else if (until <= now) due.push(replay)
    }
    return due
  }
}
