/** The events that clients receive live, and those that they missed, where a part of them cannot be read. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, FastCheck as fc, TestClock } from "effect"
import { Feed, type Range } from "../../../src/Gateway/Clients/Feed.ts"
import { makeReplays, type Replays } from "../../../src/Gateway/Clients/Replays.ts"
import { SessionUnreadable } from "../../../src/Gateway/SessionEvents.ts"
import type { Frame, Subscription } from "../../../src/Gateway/Sessions.ts"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import { given } from "../../Given.ts"
import { times } from "../../Scale.ts"
import { breathe } from "../Fixture.ts"

const frameOf = (seq: number): Frame => ({ seq, type: "text_delta", data: Buffer.from(String(seq)) })

const range = (from: number, to: number): ReadonlyArray<Frame> =>
  Array.from({ length: Math.max(0, to - from + 1) }, (_, index) => frameOf(from + index))

type Step =
  /** Events are published; the feed may not be called, or called with some of them again. */
  | { readonly do: "publish"; readonly count: number; readonly missed: number; readonly again: number }
  /** A page is read that begins before the position of the feed. */
  | { readonly do: "read"; readonly overlap: number; readonly limit: number }
  | { readonly do: "room"; readonly writes: number }

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    do: fc.constant<"publish">("publish"),
    count: fc.integer({ min: 1, max: 5 }),
    missed: fc.nat(2),
    again: fc.nat(2)
  }),
  fc.record({ do: fc.constant<"read">("read"), overlap: fc.nat(3), limit: fc.integer({ min: 1, max: 6 }) }),
  fc.record({ do: fc.constant<"room">("room"), writes: fc.nat(4) })
)

it("a feed sends each event once and in order, whatever it is given live, and wherever pages begin", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.nat(3), (steps, after) => {
      const sent: Array<number> = []
      let last = 3
      let room = 2
      const outbox = {
        get hasRoom() {
          return room > 0
        },
        sendEvents: (frames: ReadonlyArray<Frame>) => {
          if (frames.length > 0) room--
          for (const { data } of frames) sent.push(Number(data))
        },
        whenRoom: () => {}
      }
      const feed = new Feed(outbox, { onBehind: () => {}, onEnd: () => {} })
      feed.begin({ publishedSeq: () => last } as Partial<Subscription> as Subscription, { after, maySkip: false })
      const read = (overlap: number, limit: number): void => {
        if (feed.wanted === undefined) return
        const from = Math.max(1, feed.position + 1 - overlap)
        feed.onPage(feed.position, range(from, Math.min(last, feed.position + limit)), 0)
      }
      for (const one of steps) {
        if (one.do === "publish") {
          const first = last + 1
          last += one.count
          feed.onFrames(range(Math.max(1, first + one.missed - one.again), last))
        } else if (one.do === "read") read(one.overlap, one.limit)
        else room = one.writes
      }
      room = Number.POSITIVE_INFINITY
      // A live feed that has missed the last events learns of it with the next one.
      feed.onFrames(range(++last, last))
      while (feed.position < last) read(0, 100)
      expect(sent).toEqual(range(after + 1, last).map(({ seq }) => seq))
    }),
    { numRuns: times(400) }
  )
})

/** Frames of a size, which contain their `seq`. */
const framesAfter = (after: number, head: number, page: number, bytes = 8): ReadonlyArray<Frame> =>
  Array.from({ length: Math.min(page, head - after) }, (_, index) => ({
    seq: after + 1 + index,
    type: "text_delta",
    data: Buffer.from(String(after + 1 + index).padEnd(bytes))
  }))

/** A feed of the history that `read` returns, to a client with limited room, and what it has sent. */
const feedOf = (
  replays: Replays,
  head: number,
  read: Subscription["read"],
  room = Number.POSITIVE_INFINITY,
  tenant = "t"
) => {
  const sent: Array<number> = []
  const writes: Array<number> = []
  let failures = 0
  let left = room
  const waiting: Array<() => void> = []
  const sendEvents = (events: ReadonlyArray<Frame>) => {
    if (events.length > 0) writes.push(events.length)
    left -= events.length
    for (const { data } of events) sent.push(Number.parseInt(data.toString(), 10))
  }
  const outbox = {
    get hasRoom() {
      return left > 0
    },
    sendEvents,
    whenRoom: (callback: () => void) => {
      if (left > 0) callback()
      else waiting.push(callback)
      return () => {}
    }
  }
  const feed = new Feed(outbox, {
    onBehind: feed => replays.add(tenant, feed),
    onEnd: () => {
      failures++
    }
  })
  const subscription = { headSeq: head, trimmedSeq: 0, publishedSeq: () => head, read } as unknown as Subscription
  feed.begin(subscription, { after: 0, maySkip: false })
  return {
    sent,
    writes,
    failures: () => failures,
    position: () => feed.position,
    makeRoom: () => {
      left = Number.POSITIVE_INFINITY
      for (const callback of waiting.splice(0)) callback()
    }
  }
}

const until = (isTrue: () => boolean) => Effect.repeat(breathe, { until: isTrue })

const pages: Subscription["read"] = after => Effect.succeed({ frames: framesAfter(after, 200, 5), trimmedSeq: 0 })

const replayed = given(it.scoped, () => Effect.map(makeReplays, replays => ({ replays })))

it("a feed skips what is no longer kept at its first read only, and ends with the last event that is wanted", () => {
  const ends: Array<string> = []
  const sent: Array<number> = []
  const outbox = {
    hasRoom: true,
    sendEvents: (frames: ReadonlyArray<Frame>) => void sent.push(...frames.map(({ seq }) => seq)),
    whenRoom: () => {}
  }
  const begin = (range: Range) => {
    const feed = new Feed(outbox, { onBehind: () => {}, onEnd: reason => ends.push(reason) })
    feed.begin({ publishedSeq: () => 9 } as Partial<Subscription> as Subscription, range)
    return feed
  }
  const feed = begin({ after: 0, maySkip: true })
  feed.onPage(0, range(4, 5), 3)
  expect([feed.position, ends]).toEqual([5, []])
  feed.onPage(5, range(8, 9), 7)
  expect([feed.position, ends]).toEqual([5, ["lost"]])
  begin({ after: 5, until: 7, maySkip: false }).onPage(5, range(6, 9), 0)
  expect([sent, ends]).toEqual([
    [4, 5, 6, 7],
    ["lost", "complete"]
  ])
})

describe("Replays", () => {
  replayed("events go in few writes of bounded size, in order", function* ({ replays }) {
    const feed = feedOf(replays, 1000, (after, limit) =>
      Effect.succeed({
        frames: framesAfter(after, 1000, limit, 1000),
        trimmedSeq: 0
      })
    )
    yield* until(() => feed.sent.length === 1000)
    expect(feed.sent).toEqual(Array.from({ length: 1000 }, (_, index) => index + 1))
    // One more event than the bound has room for ends a write.
    expect(Math.max(...feed.writes)).toBe(Math.ceil((64 * 1024) / 1000))
    expect(feed.writes.length).toBeLessThan(20)
  })

  replayed("no event is sent where there is no room, and the next one when there is", function* ({ replays }) {
    const feed = feedOf(
      replays,
      20,
      (after, limit) => Effect.succeed({ frames: framesAfter(after, 20, limit, 100_000), trimmedSeq: 0 }),
      3
    )
    yield* until(() => feed.sent.length === 3)
    yield* breathe
    expect(feed.sent).toEqual([1, 2, 3])
    feed.makeRoom()
    yield* until(() => feed.sent.length === 20)
    expect(feed.sent).toEqual(Array.from({ length: 20 }, (_, index) => index + 1))
  })

  replayed("an unreadable history does not delay others, and is reported when it is given up", function* ({ replays }) {
    let reads = 0
    const away = feedOf(replays, 10, () => {
      reads++
      return new StoreUnavailable({ reason: "away" })
    })
    const broken = feedOf(replays, 10, () => new SessionUnreadable({ session: "t/s", reason: "SQLITE_CORRUPT" }))
    const spoilt = feedOf(replays, 10, () => Effect.die(new Error("a bug")))
    const well = feedOf(replays, 200, pages)
    // No time passes: a fiber that waited for it would wait forever.
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

  replayed("reads that do not answer delay no other", function* ({ replays }) {
    const silent = Array.from({ length: 20 }, () => feedOf(replays, 10, () => Effect.never))
    const well = feedOf(replays, 200, pages, undefined, "other")
    yield* until(() => well.sent.length === 200)
    expect(well.sent).toHaveLength(200)
    expect(silent.map(({ failures, sent }) => [sent.length, failures()])).toEqual(silent.map(() => [0, 0]))
  })

  replayed("a history that can be read again continues", function* ({ replays }) {
    let isUnavailable = false
    const feed = feedOf(replays, 200, (after, limit) => {
      if (after === 100 && !isUnavailable) {
        isUnavailable = true
        return new StoreUnavailable({ reason: "away" })
      }
      return pages(after, limit)
    })
    yield* until(() => isUnavailable)
    expect(feed.sent).toHaveLength(100)
    yield* TestClock.adjust("1 second")
    yield* until(() => feed.sent.length === 200)
    expect(feed.sent).toHaveLength(200)
    expect(feed.failures()).toBe(0)
  })
})
