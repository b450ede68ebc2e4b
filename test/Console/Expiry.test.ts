/** The expiry of an entry as the user sets it in the console. */
import { assert, describe, it } from "vitest"
import { adviceAfter, chosen, isChange, kept, textOf, writtenOf } from "../../src/Console/Store/Entry/OpenEntry.ts"

describe("The expiry of an entry in the console", () => {
  const hours = { kind: "after", amount: 2, unit: "hours" } as const

  it("is that of the entry that is replaced, unless the user has changed it", () => {
    assert.deepStrictEqual(writtenOf(kept, null), {})
    assert.deepStrictEqual(writtenOf(kept, 5000), { expiresAt: 5000 })
    assert.deepStrictEqual(writtenOf({ kind: "never" }, 5000), {})
    assert.deepStrictEqual(writtenOf(hours, 5000), { ttlMs: 7_200_000 })
  })

  it("is a change if another time is chosen, and none if the first choice is chosen again", () => {
    assert.isTrue(isChange(chosen("after", null), null))
    assert.isTrue(isChange(chosen("never", 5000), 5000))
    assert.isFalse(isChange(chosen("kept", 5000), 5000))
    assert.isFalse(isChange(chosen("never", null), null))
    // An entry without expiry may receive one from another client, which is kept.
    assert.deepStrictEqual(writtenOf(chosen("never", null), 5000), { expiresAt: 5000 })
  })

  it("has a text for each choice", () => {
    assert.strictEqual(textOf(kept, null), "never")
    assert.strictEqual(textOf({ kind: "never" }, 5000), "never")
    assert.match(textOf(kept, 5000), /1970/)
    assert.match(adviceAfter(5000), /1970.*Choose when it expires/)
    assert.strictEqual(textOf(hours, null), "2 hours after it is saved")
    assert.strictEqual(textOf(chosen("after", null), 5000), "1 hour after it is saved")
  })
})
