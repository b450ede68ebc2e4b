/** An open entry in the console: its draft, its expiry, and what the change log says about it. */
import { assert, describe, it } from "vitest"
import {
  absenceOf,
  adviceAfter,
  chosen,
  type DraftEvent,
  type EntryDraft,
  empty,
  type HistoryPart,
  isBehind,
  isChange,
  isDirty,
  isEdited,
  isExpiry,
  kept,
  max,
  nothing,
  plus,
  reduce,
  type TextChange,
  type TextEntry,
  textOf,
  writtenOf
} from "../../src/Console/Store/OpenEntry.ts"
import { dateAndTime } from "../../src/Console/Widgets/Text.ts"

const entry = (version: number, value = "1", more: Partial<TextEntry> = {}): TextEntry => ({
  ...{ namespace: "n", key: "k", value, version, updatedBy: "anna", updatedAt: version * 1000, expiresAt: null },
  ...more
})

const draftAfter = (events: ReadonlyArray<DraftEvent>, draft: EntryDraft = empty): EntryDraft =>
  events.reduce(reduce, draft)

const read = (entry: TextEntry): DraftEvent => ({ type: "read", entry })
const typed = (text: string): DraftEvent => ({ type: "typed", text })

const first = entry(1, '{"a":1}')
const opened = draftAfter([read(first)])

describe("The draft of an entry", () => {
  it("is the formatted value, and not dirty", () => {
    assert.strictEqual(opened.text, '{\n  "a": 1\n}')
    assert.isFalse(isDirty(opened))
    assert.isFalse(isDirty(empty))
  })

  it("follows changes of other clients with a notice", () => {
    const changed = draftAfter([read(entry(2, "2"))], opened)
    assert.deepInclude(changed, { text: "2", notice: "Changed by anna to version 2" })
  })

  it("follows an entry that was deleted and created again, which has version 1 again", () => {
    const again = entry(1, "3", { updatedAt: 9000 })
    assert.deepInclude(draftAfter([read(again)], opened), { base: again, text: "3", notice: "" })
  })

  it("is never replaced by a change of another client once it was edited", () => {
    const edited = draftAfter([typed("mine"), read(entry(2, "2"))], opened)
    assert.deepInclude(edited, { base: first, text: "mine" })
    assert.isTrue(isBehind(edited, entry(2, "2")))
    assert.isTrue(isBehind(edited, "absent"))
    assert.isFalse(isBehind(edited, first))
    assert.isFalse(isBehind(opened, entry(2, "2")))
  })

  it("is dirty with another expiry, but not edited", () => {
    const expiring = draftAfter([{ type: "expirySet", expiry: { kind: "after", amount: 1, unit: "hours" } }], opened)
    assert.deepStrictEqual([isDirty(expiring), isEdited(expiring)], [true, false])
  })

  it("is not submitted with a syntax error, nor twice", () => {
    const wrong = draftAfter([typed("{"), { type: "submitted" }], opened)
    assert.isFalse(wrong.isBusy)
    assert.isDefined(wrong.problem)
    assert.isUndefined(draftAfter([typed("1")], wrong).problem)
    const submitted = draftAfter([typed("1"), { type: "submitted" }], opened)
    assert.isTrue(submitted.isBusy)
    assert.strictEqual(reduce(submitted, { type: "submitted" }), submitted)
  })

  it("keeps what is typed during a write, which is not saved yet", () => {
    const sent = draftAfter([typed('{"a":2}'), { type: "submitted" }], opened)
    const second = entry(2, '{"a":2}')
    const saved = draftAfter([{ type: "written", entry: second, sent }, { type: "settled" }], sent)
    assert.deepInclude(saved, { base: second, text: '{\n  "a": 2\n}', notice: "Saved as version 2", isBusy: false })
    assert.isFalse(isDirty(saved))
    const more = draftAfter([typed('{"a":3}'), { type: "written", entry: second, sent }, { type: "settled" }], sent)
    assert.deepInclude(more, { base: second, text: '{"a":3}' })
    assert.isTrue(isDirty(more))
  })

  it("reports what another tab writes after a write of its own, even with the same actor", () => {
    const sent = draftAfter([typed("2"), { type: "submitted" }], opened)
    const own = entry(2, "2", { updatedBy: "console" })
    const saved = draftAfter([{ type: "written", entry: own, sent }, { type: "settled" }, read(own)], sent)
    assert.strictEqual(saved.notice, "Saved as version 2")
    const changed = draftAfter([read(entry(3, "3", { updatedBy: "console" }))], saved)
    assert.deepInclude(changed, { text: "3", notice: "Changed by console to version 3" })
    const again = draftAfter([read(entry(1, "4", { updatedAt: 9000 }))], saved)
    assert.deepInclude(again, { text: "4", notice: "" })
  })

  it("keeps an expiry that is set during a write", () => {
    const sent = draftAfter([typed("2"), { type: "submitted" }], opened)
    const expiry = { kind: "after", amount: 2, unit: "days" } as const
    const saved = draftAfter(
      [
        { type: "expirySet", expiry },
        { type: "written", entry: entry(2, "2"), sent }
      ],
      sent
    )
    assert.strictEqual(saved.expiry, expiry)
    assert.isTrue(isDirty(saved))
  })

  it("forgets the problem, the failure and the notice with another value or text", () => {
    const failed = draftAfter([{ type: "submitted" }, { type: "failed", message: "no" }, { type: "settled" }], opened)
    assert.strictEqual(failed.failure, "no")
    for (const event of [typed("5"), { type: "taken", value: "5" }] as const) {
      assert.deepInclude(reduce(failed, event), { text: "5", failure: "", notice: "", problem: undefined })
    }
    const expiry = { kind: "never" } as const
    assert.deepInclude(reduce(failed, { type: "expirySet", expiry }), { expiry, failure: "" })
    const discarded = draftAfter([typed("x"), { type: "discarded", entry: first }], failed)
    assert.deepInclude(discarded, { text: opened.text, failure: "", problem: undefined })
    assert.isFalse(isDirty(discarded))
  })

  it("finds out what a request without an answer has done when the entry is read again", () => {
    const unanswered = (draft: EntryDraft, effort: "saved" | "deleted") =>
      draftAfter([{ type: "submitted" }, { type: "unanswered", effort }, { type: "settled" }], draft)
    const lost = unanswered(draftAfter([typed("2")], opened), "saved")
    assert.match(lost.failure, /^It is not known whether the entry was saved/)
    const notSaved = draftAfter([read(first)], lost)
    assert.deepInclude(notSaved, { text: "2", failure: "Not saved: the service did not answer. Try again." })
    assert.strictEqual(reduce(notSaved, read(first)), notSaved)
    const saved = draftAfter([read(entry(2, " 2"))], lost)
    assert.deepInclude(saved, { text: "2", failure: "", notice: "Saved as version 2" })
    assert.isFalse(isDirty(saved))
    for (const other of ["absent", entry(2, "3")] as const) {
      const conflict = draftAfter([{ type: "read", entry: other }], lost)
      assert.deepInclude(conflict, { text: "2", failure: "", notice: "" })
      assert.isTrue(isBehind(conflict, other))
    }
    const kept = unanswered(opened, "deleted")
    assert.match(draftAfter([read(first)], kept).failure, /^Not deleted/)
    assert.strictEqual(draftAfter([{ type: "read", entry: "absent" }], kept).failure, "")
  })

  it("takes an entry for saved only if its expiry is as written", () => {
    const expiring = (expiry: EntryDraft["expiry"], expiresAt: number | null) => {
      const draft = draftAfter([read(entry(1, "1", { expiresAt: 5 })), { type: "expirySet", expiry }])
      return draftAfter([{ type: "unanswered", effort: "saved" }, read(entry(2, "1", { expiresAt }))], draft).notice
    }
    const after = { kind: "after", amount: 1, unit: "hours" } as const
    assert.strictEqual(expiring(after, 3_600_000), "Saved as version 2")
    assert.strictEqual(expiring(after, null), "")
    assert.strictEqual(expiring({ kind: "never" }, null), "Saved as version 2")
    assert.strictEqual(expiring({ kind: "never" }, 5), "")
  })

  it("is formatted if it is JSON", () => {
    assert.strictEqual(draftAfter([typed("[1]"), { type: "formatted" }], opened).text, "[\n  1\n]")
    const wrong = draftAfter([typed("[1"), { type: "formatted" }], opened)
    assert.deepStrictEqual([wrong.text, wrong.problem?.offset], ["[1", 2])
  })
})

describe("An absent entry", () => {
  const expiring = (version: number, expiresAt: number) => entry(version, "1", { expiresAt })

  it("has expired if the service has removed it", () => {
    const removal = { actor: "expiry", timestamp: 700_000, version: 4 }
    assert.strictEqual(absenceOf(expiring(3, 650_000), removal), `expired on ${dateAndTime(650_000)}`)
    // Another client has changed the expiry since the entry was read.
    assert.strictEqual(absenceOf(expiring(2, 9_000_000), removal), `expired on ${dateAndTime(700_000)}`)
    assert.strictEqual(absenceOf(entry(2), removal), `expired on ${dateAndTime(700_000)}`)
    assert.strictEqual(absenceOf(undefined, removal), `expired on ${dateAndTime(700_000)}`)
  })

  it("was deleted if another client has removed it, also one that calls itself expiry", () => {
    const removal = { actor: "an\u202ena", timestamp: 700_000, version: 4 }
    assert.strictEqual(
      absenceOf(expiring(3, 650_000), removal),
      `was deleted by an<U+202E>na on ${dateAndTime(700_000)}`
    )
    const named = { ...removal, actor: "expiry" }
    assert.strictEqual(absenceOf(entry(3), named), `was deleted by expiry on ${dateAndTime(700_000)}`)
  })

  it("may have done either until the change is known", () => {
    assert.strictEqual(absenceOf(entry(3), undefined), "was deleted")
    assert.strictEqual(absenceOf(expiring(3, 650_000), undefined), "has expired or was deleted")
  })

  it("has expired if its last change says so", () => {
    assert.isTrue(isExpiry({ op: "delete", actor: "expiry" }))
    assert.isFalse(isExpiry({ op: "set", actor: "expiry" }))
    assert.isFalse(isExpiry({ op: "delete", actor: "anna" }))
  })
})

const change = (seq: number, value = "1"): TextChange => ({
  ...{ seq, op: "set", namespace: "n", key: "k", value, version: seq, actor: "anna", timestamp: seq * 1000 }
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
    const large = "x".repeat(max.characters + 1)
    const changes = [change(1), change(2, large), change(3, large)]
    assert.deepStrictEqual(seqsOf(plus(nothing, { changes, after: 3 })), { before: 2, first: 3, last: 3, after: 3 })
  })
})

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
