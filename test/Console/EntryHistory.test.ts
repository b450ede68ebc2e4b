/** What the change log says about an entry, as the console shows it. */
import { assert, describe, it } from "vitest"
import {
  absenceOf,
  type HistoryPart,
  isExpiry,
  max,
  nothing,
  plus,
  type TextChange,
  type TextEntry
} from "../../src/Console/Store/Entry/OpenEntry.ts"
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

const change = (seq: number, value = "1"): TextChange => ({
  seq,
  op: "set",
  namespace: "n",
  key: "k",
  value,
  version: seq,
  actor: "anna",
  timestamp: seq * 1000
})

const changesFrom = (first: number, count: number): ReadonlyArray<TextChange> =>
  Array.from({ length: count }, (_, index) => change(first + index))

const seqsOf = ({ after, before, changes }: HistoryPart) => ({
  before: before?.seq,
  first: changes[0]?.seq,
  last: changes.at(-1)?.seq,
  after
})

describe("The part of a history", () => {
  it("grows with each page, and remembers the position of a page without changes", () => {
    const first = plus(nothing, { changes: changesFrom(3, 2), after: 1000 })
    assert.deepStrictEqual(seqsOf(first), { before: undefined, first: 3, last: 4, after: 1000 })
    const later = plus(first, { changes: [], after: 2000 })
    assert.deepStrictEqual(seqsOf(later), { before: undefined, first: 3, last: 4, after: 2000 })
    const last = plus(later, { changes: [change(2001)], after: 2001 })
    assert.deepStrictEqual(seqsOf(last), { before: undefined, first: 3, last: 2001, after: 2001 })
  })

  it("keeps the latest changes, and the one before them to compare with", () => {
    const full = plus(nothing, { changes: changesFrom(1, max.changes), after: 600 })
    assert.deepStrictEqual(seqsOf(full), { before: undefined, first: 1, last: max.changes, after: 600 })
    const more = plus(full, { changes: changesFrom(601, 2), after: 602 })
    assert.deepStrictEqual(seqsOf(more), { before: 2, first: 3, last: 602, after: 602 })
    assert.strictEqual(more.changes.length, max.changes)
    assert.strictEqual(plus(more, { changes: [change(603)], after: 603 }).before?.seq, 3)
  })

  it("keeps fewer changes if they are large, but at least one", () => {
    const large = "x".repeat(max.characters)
    const changes = [change(1), change(2, large), change(3, large)]
    assert.deepStrictEqual(seqsOf(plus(nothing, { changes, after: 3 })), { before: 2, first: 3, last: 3, after: 3 })
  })
})
