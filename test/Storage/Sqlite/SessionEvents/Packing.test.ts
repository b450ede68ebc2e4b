import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import type { Reply, Request } from "../../../../src/Storage/Sqlite/Database/Messages.ts"
import { packReply, packRequest, unpackReply, unpackRequest } from "../../../../src/Storage/Sqlite/Database/Messages.ts"
import { codec } from "../../../../src/Storage/Sqlite/SessionEvents/Packing.ts"
import type { EventOutcome, EventWrite } from "../../../../src/Storage/Sqlite/SessionEvents/Writer.ts"

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
      recoveryState: fc.option(text)
    })
  },
  { weight: 1, arbitrary: fc.record({ op: fc.constant<"open">("open"), session: text, epoch: text }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant<"remove">("remove"), session: text }) }
)

const commit: fc.Arbitrary<Request<EventWrite>> = fc.record({
  kind: fc.constant<"commit">("commit"),
  now: count,
  writes: fc.array(write)
})

const history = fc.record({ epoch: text, headSeq: count, trimmedSeq: count, recoveryState: fc.option(text) })

const outcome = fc.oneof(
  fc.record({ _tag: fc.constant<"Stored">("Stored"), history: fc.option(history, { nil: undefined }) }),
  fc.record({ _tag: fc.constant<"OutOfStep">("OutOfStep"), headSeq: fc.option(count) }),
  fc.record({ _tag: fc.constantFrom<"Failed" | "Defect">("Failed", "Defect"), reason: text })
)

const done: fc.Arbitrary<Reply<EventOutcome>> = fc.record({
  _tag: fc.constant<"Done">("Done"),
  outcomes: fc.array(outcome),
  count,
  lastSeq: count,
  logBytes: count,
  databaseId: fc.option(text, { nil: undefined })
})

describe("Groups of events on their way between threads", () => {
  it("are what they were", () => {
    fc.assert(
      fc.property(commit, request => {
        expect(unpackRequest(codec, structuredClone(packRequest(codec, request)))).toEqual(request)
      }),
      runs
    )
  })

  it("have outcomes that are what they were", () => {
    fc.assert(
      fc.property(done, reply => {
        expect(unpackReply(codec, structuredClone(packReply(codec, reply)))).toEqual(reply)
      }),
      runs
    )
  })

  it("leave all other messages as they are", () => {
    const unavailable: Reply<EventOutcome> = { _tag: "Unavailable", cause: "Error", reason: "the disk is gone" }
    expect(packReply(codec, unavailable)).toBe(unavailable)
    expect(unpackReply(codec, unavailable)).toBe(unavailable)
    for (const request of [{ kind: "probe" }, { kind: "close" }, { kind: "trim", time: 1, limit: 2 }] as const) {
      expect(packRequest(codec, request)).toBe(request)
      expect(unpackRequest(codec, request)).toBe(request)
    }
  })

  const append = (texts: ReadonlyArray<string>): EventWrite => ({
    op: "append",
    session: "t/s",
    epoch: "e",
    after: 0,
    timestamp: 1,
    texts,
    recoveryState: null
  })

  it("stay in pieces where one text could not hold them", () => {
    const megabyte = "x".repeat(1024 * 1024)
    const writes = [append(Array.from({ length: 129 }, () => megabyte))]
    expect(codec.pack(writes)).toBe(writes)
  })

  it("stay in pieces where a single write is longer than any string", () => {
    const writes = [append(Array.from({ length: 65 }, () => "x".repeat(8 * 1024 * 1024)))]
    expect(codec.pack(writes)).toBe(writes)
  })

  it("stay in pieces where one is not what its type says, which would mix up the texts of the others", () => {
    const writes = [append(["1"]), append([JSON.parse("{}")]), append(["2"])]
    const request: Request<EventWrite> = { kind: "commit", now: 1, writes }
    expect(unpackRequest(codec, structuredClone(packRequest(codec, request)))).toEqual(request)
  })
})
