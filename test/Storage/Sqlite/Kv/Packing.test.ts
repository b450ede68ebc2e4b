import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import { JsonText } from "../../../../src/Json/JsonText.ts"
import type { Operation, Write } from "../../../../src/Kv/Write.ts"
import type { Reply, Request } from "../../../../src/Storage/Sqlite/Database/Messages.ts"
import { packReply, packRequest, unpackReply, unpackRequest } from "../../../../src/Storage/Sqlite/Database/Messages.ts"
import { codec } from "../../../../src/Storage/Sqlite/Kv/Packing.ts"
import type { Outcome } from "../../../../src/Storage/Sqlite/Kv/Writer.ts"

const runs = { numRuns: 200 * Number(process.env.SOAK ?? 1) }

const text = fc.string({ unit: "grapheme", maxLength: 20 })
const count = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER })
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

const commit: fc.Arbitrary<Request<Write>> = fc.record({
  kind: fc.constant<"commit">("commit"),
  now: count,
  writes: fc.array(fc.record({ operations: fc.array(operation), actor: text }))
})

const result = fc.oneof(
  fc.record({ op: fc.constant<"set">("set"), version: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }) }),
  fc.record({ op: fc.constant<"delete">("delete"), deleted: fc.boolean() })
)

const outcome = fc.oneof(
  fc.record({
    _tag: fc.constant<"Committed">("Committed"),
    committed: fc.record({ results: fc.array(result), timestamp: count, lastSeq: count })
  }),
  fc.record({
    _tag: fc.constant<"Refused">("Refused"),
    index: count,
    currentVersion: fc.option(count),
    isChangedBefore: fc.boolean()
  }),
  fc.record({ _tag: fc.constantFrom<"Failed" | "Defect">("Failed", "Defect"), reason: text })
)

const done: fc.Arbitrary<Reply<Outcome>> = fc.record({
  _tag: fc.constant<"Done">("Done"),
  outcomes: fc.array(outcome),
  count,
  lastSeq: count,
  logBytes: count,
  databaseId: fc.option(text, { nil: undefined })
})

describe("what is packed for the writing thread", () => {
  it("comes out there as it went in", () => {
    fc.assert(
      fc.property(commit, request => {
        expect(unpackRequest(codec, structuredClone(packRequest(codec, request)))).toEqual(request)
      }),
      runs
    )
    const probe: Request<Write> = { kind: "probe" }
    expect(unpackRequest(codec, structuredClone(packRequest(codec, probe)))).toEqual(probe)
  })

  it("comes back as it was answered", () => {
    fc.assert(
      fc.property(done, reply => {
        expect(unpackReply(codec, structuredClone(packReply(codec, reply)))).toEqual(reply)
      }),
      runs
    )
    const away: Reply<Outcome> = { _tag: "Unavailable", cause: "Error", reason: "no disk" }
    expect(unpackReply(codec, structuredClone(packReply(codec, away)))).toEqual(away)
  })

  it("is left as it is where it is not what its type says", () => {
    const actors = [{}, null, ["a"], 7]
    for (const actor of actors) {
      const write = JSON.parse(JSON.stringify({ operations: [], actor }))
      const writes = [write]
      expect(codec.pack(writes)).toBe(writes)
    }
    const operation = JSON.parse('{"op":"set","namespace":"n","key":"k","value":"1","expiresAt":"soon"}')
    const writes = [{ operations: [operation], actor: "a" }]
    expect(codec.pack(writes)).toBe(writes)
  })
})
