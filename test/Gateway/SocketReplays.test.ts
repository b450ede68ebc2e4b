/** What clients missed, where a part of it cannot be read. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, TestClock } from "effect"
import { SessionUnreadable } from "../../src/Gateway/SessionEvents.ts"
import type { Frame, Subscription } from "../../src/Gateway/Sessions.ts"
import { Feed } from "../../src/Gateway/Socket/Feed.ts"
import * as Replays from "../../src/Gateway/Socket/Replays.ts"
import { StoreUnavailable } from "../../src/Kv/Store.ts"
import { breathe } from "./Fixture.ts"

const framesAfter = (after: number, head: number, page: number): ReadonlyArray<Frame> =>
  Array.from({ length: Math.min(page, head - after) }, (_, index) => ({
    seq: after + 1 + index,
    type: "text_delta",
    data: Buffer.from("{}")
  }))

/** A feed of a history, which `read` tells, and what came of it. */
const feedOf = (replays: Replays.Replays, head: number, read: Subscription["read"]) => {
  const sent: Array<number> = []
  let failures = 0
  const outbox = {
    hasRoom: true,
    send: () => {
      sent.push(sent.length + 1)
    },
    whenRoom: (callback: () => void) => {
      callback()
      return () => {}
    }
  }
  const feed = new Feed(outbox, {
    onBehind: feed => replays.add("t", feed),
    onDeleted: () => {},
    onLost: () => {},
    onUnreadable: () => {
      failures++
    }
  })
  const subscription = { headSeq: head, trimmedSeq: 0, publishedSeq: () => head, read } as unknown as Subscription
  feed.begin(subscription, 0, false)
  return { sent, failures: () => failures }
}

const until = (isTrue: () => boolean) => Effect.repeat(breathe, { until: isTrue, times: 2000 })

const pages: Subscription["read"] = after => Effect.succeed({ frames: framesAfter(after, 200, 5), trimmedSeq: 0 })

describe("Replays", () => {
  it.scoped("an unreadable history does not delay others, and is reported when it is given up", () =>
    Effect.gen(function* () {
      const replays = yield* Replays.make
      let reads = 0
      const away = feedOf(replays, 10, () => {
        reads++
        return new StoreUnavailable({ reason: "away" })
      })
      const broken = feedOf(replays, 10, () => new SessionUnreadable({ session: "t/s", reason: "SQLITE_CORRUPT" }))
      const spoilt = feedOf(replays, 10, () => Effect.die(new Error("a bug")))
      const well = feedOf(replays, 200, pages)
      // No time passes: whoever waited for it would wait for ever.
      yield* until(() => well.sent.length === 200)
      expect(well.sent).toHaveLength(200)
      expect([broken.failures(), spoilt.failures(), away.failures()]).toEqual([1, 1, 0])
      for (let second = 0; second < 60; second++) {
        yield* TestClock.adjust("1 second")
        yield* breathe
      }
      expect(away.failures()).toBe(1)
      expect(reads).toBeLessThan(12)
      expect(broken.failures()).toBe(1)
    })
  )

  it.scoped("a history that can be read again continues", () =>
    Effect.gen(function* () {
      const replays = yield* Replays.make
      let isAway = false
      const feed = feedOf(replays, 200, (after, limit) => {
        if (after === 100 && !isAway) {
          isAway = true
          return new StoreUnavailable({ reason: "away" })
        }
        return pages(after, limit)
      })
      yield* until(() => isAway)
      expect(feed.sent).toHaveLength(100)
      yield* TestClock.adjust("1 second")
      yield* until(() => feed.sent.length === 200)
      expect(feed.sent).toHaveLength(200)
      expect(feed.failures()).toBe(0)
    })
  )
})
