import { expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import type { Frame, Subscription } from "../../src/Gateway/Sessions.ts"
import { Feed } from "../../src/Gateway/Socket/Feed.ts"
import { times } from "../Scale.ts"

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
        send: (_type: string, data: Buffer | string) => {
          room--
          sent.push(Number(data))
        },
        sendAll: (frames: ReadonlyArray<{ readonly data: Buffer }>) => {
          room--
          for (const { data } of frames) sent.push(Number(data))
        },
        whenRoom: () => {}
      }
      const owner = { onBehind: () => {}, onDeleted: () => {}, onLost: () => {}, onUnreadable: () => {} }
      const feed = new Feed(outbox as never, owner)
      feed.begin({ publishedSeq: () => last } as Partial<Subscription> as Subscription, after, false)
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
