/** What the client reads from messages of the service, because answers have it nowhere else. */

import { assert, describe, it } from "@effect/vitest"
import { Either } from "effect"
import fc from "fast-check"
import { defaults } from "../../src/base/Limits.ts"
import {
  BadRequest,
  type ErrorDetails,
  operationIndexOf,
  PreconditionFailed,
  serverTimeOf,
  withoutOperation
} from "../../src/Client/Errors.ts"
import { compare } from "../../src/Client/KeyOrder.ts"
import * as Issues from "../../src/Http/Contract.ts"
import * as Operations from "../../src/Kv/Endpoints/Operations.ts"
import * as Store from "../../src/Kv/Store.ts"

const details = (message: string): ErrorDetails => ({
  message,
  status: 400,
  requestId: undefined,
  retryAfterMs: undefined
})

const now = 1_700_000_000_000

/** What the service says of an operation of a batch that it refuses. */
const refusalOf = (index: number, operation: Parameters<typeof Operations.ofBatch>[0]): BadRequest => {
  const checked = Operations.ofBatch(operation, index, undefined, defaults, now)
  if (Either.isRight(checked)) return assert.fail("it is not refused")
  return new BadRequest(details(checked.left.error))
}

const expired = { op: "set", namespace: "n", key: "k", value: 1, expiresAt: now } as const

describe("an error of a batch", () => {
  it("have the index of the operation, and the rest of the message", () => {
    const error = refusalOf(12, expired)
    assert.strictEqual(operationIndexOf(error), 12)
    assert.strictEqual(withoutOperation(error), `expiresAt must lie in the future: it is ${now}, and now is ${now}`)
    assert.strictEqual(operationIndexOf(refusalOf(0, { op: "delete", namespace: "n", key: "." })), 0)
    assert.isUndefined(operationIndexOf(new BadRequest(details("actor must not be empty"))))
  })

  it("have it for a member that does not match the schema", () => {
    const path = ["operations", 3, "op"]
    const error = new BadRequest(details(Issues.describe([{ _tag: "Type", path, message: "Expected a text" }])))
    assert.strictEqual(operationIndexOf(error), 3)
    assert.strictEqual(withoutOperation(error), "Invalid request: op: Expected a text")
  })

  it("have it for a precondition", () => {
    const failed = new Store.PreconditionFailed({ index: 7, currentVersion: 2, isChangedBefore: true })
    const error = new PreconditionFailed(details(Operations.batchRefused(failed).error))
    assert.deepStrictEqual([operationIndexOf(error), error.operation, error.currentVersion], [7, 7, 2])
    assert.match(withoutOperation(error), /^Precondition failed: the entry is at version 2/)
  })

  it("have the time of the service only if it refuses an expired entry", () => {
    const error = refusalOf(12, expired)
    assert.strictEqual(serverTimeOf(error), now)
    assert.isUndefined(serverTimeOf(refusalOf(12, { ...expired, ttlMs: 1 })))
    assert.isUndefined(serverTimeOf(new PreconditionFailed(details(error.message))))
  })

  it("have that time also for a single write", () => {
    const checked = Operations.expiresAt({ expiresAt: now - 1 }, now)
    assert.strictEqual(Either.isLeft(checked) && serverTimeOf(new BadRequest(details(checked.left.error))), now)
  })
})

describe("the order of keys", () => {
  it("is that of their bytes in UTF-8", () => {
    const character = fc.oneof(
      fc.constantFrom("a", "b", "\u0001", "é", "\ud7ff", "\ue000", "\uffff", "\u{10000}", "\u{10ffff}"),
      fc.string({ unit: "grapheme", minLength: 1, maxLength: 1 })
    )
    const text = fc.array(character, { maxLength: 6 }).map(parts => parts.join(""))
    fc.assert(
      fc.property(text, text, (a, b) => {
        assert.strictEqual(Math.sign(compare(a, b)), Buffer.compare(Buffer.from(a), Buffer.from(b)))
      }),
      { numRuns: 500 }
    )
  })
})
