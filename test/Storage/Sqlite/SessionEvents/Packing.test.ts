import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import type { EventReply, EventRequest } from "../../../../src/Storage/Sqlite/SessionEvents/Messages.ts"
import {
  packReply,
  packRequest,
  unpackReply,
  unpackRequest
} from "../../../../src/Storage/Sqlite/SessionEvents/Packing.ts"

const runs = { numRuns: 200 * Number(process.env.SOAK ?? 1) }

const text = fc.string({ unit: "binary", maxLength: 20 })
const count = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER })

const write = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      op: fc.constant<"append">("append"),
      session: text,
      epoch: text,
      after: count,
      timestamp: count,
      texts: fc.array(text, { maxLength: 4 }),
      bookmark: fc.option(text)
    })
  },
  { weight: 1, arbitrary: fc.record({ op: fc.constant<"open">("open"), session: text, epoch: text }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant<"remove">("remove"), session: text }) }
)

const commit: fc.Arbitrary<EventRequest> = fc.record({ kind: fc.constant<"commit">("commit"), writes: fc.array(write) })

const history = fc.record({ epoch: text, headSeq: count, trimmedSeq: count, bookmark: fc.option(text) })

const outcome = fc.oneof(
  fc.record({ _tag: fc.constant<"Stored">("Stored"), history: fc.option(history, { nil: undefined }) }),
  fc.record({ _tag: fc.constant<"OutOfStep">("OutOfStep"), headSeq: fc.option(count) }),
  fc.record({ _tag: fc.constant<"Failed">("Failed"), reason: text })
)

const done: fc.Arbitrary<EventReply> = fc.record({
  _tag: fc.constant<"Done">("Done"),
  outcomes: fc.array(outcome),
  count
})

describe("Groups of events on their way between threads", () => {
  it("are what they were", () => {
    fc.assert(
      fc.property(commit, request => {
        expect(unpackRequest(structuredClone(packRequest(request)))).toEqual(request)
      }),
      runs
    )
  })

  it("have outcomes that are what they were", () => {
    fc.assert(
      fc.property(done, reply => {
        expect(unpackReply(structuredClone(packReply(reply)))).toEqual(reply)
      }),
      runs
    )
  })

  it("leave all other messages as they are", () => {
    const away: EventReply = { _tag: "Away", obstacle: "failed", reason: "the disk is gone" }
    expect(packReply(away)).toBe(away)
    expect(unpackReply(away)).toBe(away)
    for (const request of [{ kind: "probe" }, { kind: "close" }, { kind: "trim", before: 1, limit: 2 }] as const) {
      expect(packRequest(request)).toBe(request)
      expect(unpackRequest(request)).toBe(request)
    }
  })

  it("stay in pieces where one text could not hold them", () => {
    const megabyte = "x".repeat(1024 * 1024)
    const texts = Array.from({ length: 129 }, () => megabyte)
    const request: EventRequest = {
      kind: "commit",
      writes: [{ op: "append", session: "t/s", epoch: "e", after: 0, timestamp: 1, texts, bookmark: null }]
    }
    expect(packRequest(request)).toBe(request)
  })

  it("stay in pieces where a single write is longer than any string", () => {
    const texts = Array.from({ length: 65 }, () => "x".repeat(8 * 1024 * 1024))
    const request: EventRequest = {
      kind: "commit",
      writes: [{ op: "append", session: "t/s", epoch: "e", after: 0, timestamp: 1, texts, bookmark: null }]
    }
    expect(packRequest(request)).toBe(request)
  })
})
