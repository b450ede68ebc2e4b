/** Why an entry is absent, as the console says it. */
import { assert, describe, it } from "vitest"
import { absenceOf, isExpiry } from "../../src/Console/Store/Removal.ts"
import type { TextEntry } from "../../src/Console/Store/TextEntry.ts"
import { dateAndTime } from "../../src/Console/Widgets/Text.ts"

const entry = (version: number, expiresAt: number | null): TextEntry => ({
  ...{ namespace: "n", key: "k", value: "1", updatedBy: "anna", updatedAt: 1000 },
  version,
  expiresAt
})

const at = (ms: number) => dateAndTime(ms)

describe("An absent entry", () => {
  it("has expired if the service has removed it", () => {
    const removal = { actor: "expiry", timestamp: 700_000, version: 4 }
    assert.strictEqual(absenceOf(entry(3, 650_000), removal), `expired on ${at(650_000)}`)
    // Another client has changed the expiry since the entry was read.
    assert.strictEqual(absenceOf(entry(2, 9_000_000), removal), `expired on ${at(700_000)}`)
    assert.strictEqual(absenceOf(entry(2, null), removal), `expired on ${at(700_000)}`)
    assert.strictEqual(absenceOf(undefined, removal), `expired on ${at(700_000)}`)
  })

  it("was deleted if another client has removed it, also one that calls itself expiry", () => {
    const removal = { actor: "an\u202ena", timestamp: 700_000, version: 4 }
    assert.strictEqual(absenceOf(entry(3, 650_000), removal), `was deleted by an<U+202E>na on ${at(700_000)}`)
    const named = { ...removal, actor: "expiry" }
    assert.strictEqual(absenceOf(entry(3, null), named), `was deleted by expiry on ${at(700_000)}`)
  })

  it("may have done either until the change is known", () => {
    assert.strictEqual(absenceOf(entry(3, null), undefined), "was deleted")
    assert.strictEqual(absenceOf(entry(3, 650_000), undefined), "has expired or was deleted")
  })

  it("has expired if its last change says so", () => {
    assert.isTrue(isExpiry({ op: "delete", actor: "expiry" }))
    assert.isFalse(isExpiry({ op: "set", actor: "expiry" }))
    assert.isFalse(isExpiry({ op: "delete", actor: "anna" }))
  })
})
