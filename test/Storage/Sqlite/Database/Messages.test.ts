import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import { JsonText } from "../../../../src/Json/JsonText.ts"
import type { Operation, Write } from "../../../../src/Kv/Write.ts"
import type { EventWrite } from "../../../../src/Storage/Commit/SessionCommit.ts"
import {
  type Codec,
  packReply,
  packRequest,
  type Reply,
  type Request,
  unpackReply,
  unpackRequest,
  type WriteFailure
} from "../../../../src/Storage/Sqlite/Database/Messages.ts"
import { type Outcome, writer } from "../../../../src/Storage/Sqlite/Kv/Writer.ts"
import { type EventOutcome, writer as sessionWriter } from "../../../../src/Storage/Sqlite/SessionEvents/Writer.ts"
import { times } from "../../../Scale.ts"

const runs = { numRuns: times(200) }

const text = fc.oneof(
  fc.string({ unit: "grapheme", maxLength: 20 }),
  // Surrogates may stand alone.
  fc.array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 20 }).map(units => String.fromCharCode(...units))
)
const count = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER })

const failure: fc.Arbitrary<WriteFailure> = fc.record({
  _tag: fc.constantFrom<"Failed" | "Defect">("Failed", "Defect"),
  reason: text
})

const tag = fc.oneof(fc.constant<"any">("any"), fc.array(count, { maxLength: 3 }))
const precondition = fc.record({ match: tag, noneMatch: tag }, { requiredKeys: [] })
const address = { namespace: text, key: text }

const operation: fc.Arbitrary<Operation> = fc.oneof(
  fc.record(
    {
      op: fc.constant<"set">("set"),
      ...address,
      value: fc.json().map(JsonText),
      expiresAt: fc.option(count),
      precondition
    },
    { requiredKeys: ["op", "namespace", "key", "value", "expiresAt"] }
  ),
  fc.record(
    { op: fc.constant<"delete">("delete"), ...address, precondition },
    { requiredKeys: ["op", "namespace", "key"] }
  )
)

const write: fc.Arbitrary<Write> = fc.record({ operations: fc.array(operation), actor: text })

const result = fc.oneof(
  fc.record({ op: fc.constant<"set">("set"), version: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }) }),
  fc.record({ op: fc.constant<"delete">("delete"), deleted: fc.boolean() })
)

const outcome: fc.Arbitrary<Outcome> = fc.oneof(
  fc.record({
    _tag: fc.constant<"Committed">("Committed"),
    committed: fc.record({ results: fc.array(result), timestamp: count, lastSeq: count })
  }),
  fc.record({
    _tag: fc.constant<"Refused">("Refused"),
    index: count,
    currentVersion: fc.option(count),
    isChangedBefore: fc.boolean()
  })
)

const receipt = fc.record({ id: text, digest: text, turnId: fc.option(text) })

const eventWrite: fc.Arbitrary<EventWrite> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record(
      {
        op: fc.constant<"append">("append"),
        session: text,
        epoch: text,
        after: count,
        timestamp: count,
        texts: fc.array(text, { maxLength: 4 }),
        recoveryState: fc.option(text),
        receipt,
        revoked: text
      },
      { requiredKeys: ["op", "session", "epoch", "after", "timestamp", "texts", "recoveryState"] }
    )
  },
  { weight: 1, arbitrary: fc.record({ op: fc.constant<"open">("open"), session: text, epoch: text }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant<"remove">("remove"), session: text }) }
)

const history = fc.record({ epoch: text, headSeq: count, trimmedSeq: count, recoveryState: fc.option(text) })

const eventOutcome: fc.Arbitrary<EventOutcome> = fc.oneof(
  fc.record({ _tag: fc.constant<"Stored">("Stored"), history: fc.option(history, { nil: undefined }) }),
  fc.record({ _tag: fc.constant<"OutOfStep">("OutOfStep"), headSeq: fc.option(count) })
)

const { codec } = writer(1_000_000)
const { codec: eventCodec } = sessionWriter({ events: 1, bytes: 1 })

const suite = <W, O>(database: string, codec: Codec<W, O>, write: fc.Arbitrary<W>, outcome: fc.Arbitrary<O>) =>
  describe(`messages of ${database} between threads`, () => {
    it("have equal writes after unpacking", () => {
      const commit = fc.record({ kind: fc.constant<"commit">("commit"), now: count, writes: fc.array(write) })
      fc.assert(
        fc.property(commit, request => {
          expect(unpackRequest(codec, structuredClone(packRequest(codec, request)))).toEqual(request)
        }),
        runs
      )
    })

    it("have equal outcomes after unpacking", () => {
      const done: fc.Arbitrary<Reply<O>> = fc.record({
        _tag: fc.constant<"Done">("Done"),
        outcomes: fc.array(fc.oneof(outcome, failure)),
        count,
        lastSeq: count,
        logBytes: count,
        databaseId: fc.option(text, { nil: undefined }),
        epoch: text
      })
      fc.assert(
        fc.property(done, reply => {
          expect(unpackReply(codec, structuredClone(packReply(codec, reply)))).toEqual(reply)
        }),
        runs
      )
    })

    it("are unchanged if they have nothing to pack", () => {
      const unavailable: Reply<O> = { _tag: "Unavailable", cause: "Error", reason: "the disk is gone" }
      expect(packReply(codec, unavailable)).toBe(unavailable)
      expect(unpackReply(codec, unavailable)).toBe(unavailable)
      for (const request of [{ kind: "probe" }, { kind: "close" }, { kind: "trim", time: 1, limit: 2 }] as const) {
        expect(packRequest(codec, request)).toBe(request)
        expect(unpackRequest(codec, request)).toBe(request)
      }
    })
  })

suite("kv.db", codec, write, outcome)
suite("sessions.db", eventCodec, eventWrite, eventOutcome)

describe("a group that cannot be packed", () => {
  const packed = <W, O>(codec: Codec<W, O>, writes: ReadonlyArray<W>) => {
    const request = packRequest(codec, { kind: "commit", now: 1, writes })
    return request.kind === "commit" ? request.packed : undefined
  }

  const append = (texts: ReadonlyArray<string>): EventWrite => ({
    op: "append",
    session: "t/s",
    epoch: "e",
    after: 0,
    timestamp: 1,
    texts,
    recoveryState: null
  })

  it("is unchanged if a value has the wrong type", () => {
    for (const actor of [{}, null, ["a"], 7]) {
      const write: Write = JSON.parse(JSON.stringify({ operations: [], actor }))
      const writes = [write]
      expect(packed(codec, writes)).toBe(writes)
    }
    const operation: Operation = JSON.parse('{"op":"set","namespace":"n","key":"k","value":"1","expiresAt":"soon"}')
    const writes = [{ operations: [operation], actor: "a" }]
    expect(packed(codec, writes)).toBe(writes)
  })

  it("is unchanged if a precondition has the wrong type", () => {
    for (const precondition of [null, 3, { match: null }, { match: 3 }, { match: "3" }, { noneMatch: ["3"] }]) {
      const operation: Operation = JSON.parse(JSON.stringify({ op: "delete", namespace: "n", key: "k", precondition }))
      const writes = [{ operations: [operation], actor: "a" }]
      expect(packed(codec, writes)).toBe(writes)
    }
  })

  it("is unchanged if it exceeds one string", () => {
    const megabyte = "x".repeat(1024 * 1024)
    const writes = [append(Array.from({ length: 129 }, () => megabyte))]
    expect(packed(eventCodec, writes)).toBe(writes)
  })

  it("is unchanged if a single write is longer than any string", () => {
    const writes = [append(Array.from({ length: 65 }, () => "x".repeat(8 * 1024 * 1024)))]
    expect(packed(eventCodec, writes)).toBe(writes)
  })

  it("has the other writes unchanged if one has the wrong type", () => {
    const writes = [append(["1"]), append([JSON.parse("{}")]), append(["2"])]
    const request: Request<EventWrite> = { kind: "commit", now: 1, writes }
    expect(unpackRequest(eventCodec, structuredClone(packRequest(eventCodec, request)))).toEqual(request)
  })
})
