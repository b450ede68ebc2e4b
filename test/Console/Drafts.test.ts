/** Messages that are typed in the console and not sent. */
import { assert, describe, it } from "vitest"
import type { Sessions } from "../../src/Client/Client.ts"
import { draftFor } from "../../src/Console/Sessions/Drafts.ts"

const connection = () => ({}) as Sessions

describe("A message that is typed", () => {
  it("stays with its session, and is not there for whoever connects next", () => {
    const [first, second] = [connection(), connection()]
    draftFor(first, "a").value = "half a sent"
    assert.strictEqual(draftFor(first, "a").value, "half a sent")
    assert.strictEqual(draftFor(first, "b").value, "")
    assert.strictEqual(draftFor(second, "a").value, "")
  })
})
