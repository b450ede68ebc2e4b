/** The part of the history of an entry that the console keeps. */
import { assert, describe, it } from "vitest"
import { type HistoryPart, max, nothing, plus } from "../../src/Console/Store/HistoryPart.ts"
import type { TextChange } from "../../src/Console/Store/TextEntry.ts"

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
