/** What the page keeps of an open entry, as pure functions: its draft, its expiry, and a part of its history. */
import type { Change, Entry } from "../../Client/Client.ts"
import { format, type Problem, problemOf } from "../JsonText.ts"
import { dateAndTime, isolated } from "../Widgets/Text.ts"

export interface TextEntry extends Omit<Entry, "value"> {
  /** JSON text, as written. */
  readonly value: string
}

export interface TextChange extends Omit<Change, "value" | "tenantId"> {
  /** JSON text; `null` for a delete. */
  readonly value: string
}

/** Changes of an entry, oldest first, and the position in the log up to which there are no others. */
export type HistoryPage = { readonly changes: ReadonlyArray<TextChange>; readonly after: number }

/** The expiry of an entry that is written: after a duration, at a time in epoch milliseconds, or never. */
export type WrittenExpiry = { readonly ttlMs: number } | { readonly expiresAt: number } | Record<string, never>

/** As the stored entry does, which for a new entry is never; never; or some time after the write. */
export type Expiry =
  | { readonly kind: "kept" }
  | { readonly kind: "never" }
  | { readonly kind: "after"; readonly amount: number; readonly unit: Unit }

export type Unit = "minutes" | "hours" | "days"
export const unitMs: Readonly<Record<Unit, number>> = { minutes: 60_000, hours: 3_600_000, days: 86_400_000 }
export const kept: Expiry = { kind: "kept" }

/** What a user chooses, given when the stored entry expires (epoch milliseconds; `null` for never). */
export const chosen = (kind: Expiry["kind"], stored: number | null): Expiry => {
  if (kind === "after") return { kind, amount: 1, unit: "hours" }
  return kind === "never" && stored === null ? kept : { kind }
}

/** Whether a write with the expiry changes when the stored entry expires. */
export const isChange = ({ kind }: Expiry, stored: number | null): boolean =>
  kind === "after" || (kind === "never" && stored !== null)

/** The expiry as it is sent, given that of the replaced entry. The service's clock decides when a duration ends. */
export const writtenOf = (expiry: Expiry, stored: number | null): WrittenExpiry => {
  switch (expiry.kind) {
    case "never":
      return {}
    case "kept":
      return stored === null ? {} : { expiresAt: stored }
    case "after":
      return { ttlMs: Math.round(expiry.amount * unitMs[expiry.unit]) }
  }
}

/** What the user can do if the service refuses to keep an expiry that has passed (epoch milliseconds). */
export const adviceAfter = (passed: number): string =>
  `the entry expired on ${dateAndTime(passed)}. Choose when it expires, and save again.`

/** When an entry expires that is written over a stored one, in words. */
export const textOf = (expiry: Expiry, stored: number | null): string => {
  if (expiry.kind === "after") {
    const { amount, unit } = expiry
    return `${amount} ${amount === 1 ? unit.slice(0, -1) : unit} after it is saved`
  }
  return expiry.kind === "never" || stored === null ? "never" : dateAndTime(stored)
}

export interface EntryDraft {
  /** The entry that the draft is based on. Its version is the precondition of a write. */
  readonly base: TextEntry | undefined
  /** The formatted value of `base`. It is kept because a value may have megabytes. */
  readonly original: string
  readonly text: string
  readonly expiry: Expiry
  /** Why `text` is not JSON, if it was checked since it was changed. */
  readonly problem: Problem | undefined
  /** Why the last write failed; `""` if it did not. */
  readonly failure: string
  /** What a request without an answer may have done, until the entry is read again. */
  readonly unanswered: Effort | undefined
  /** What was saved, or changed by another client; `""` for nothing. */
  readonly notice: string
  readonly isBusy: boolean
}

export type Effort = "saved" | "deleted"

export type DraftEvent =
  | { readonly type: "read"; readonly entry: TextEntry | "absent" }
  | { readonly type: "typed"; readonly text: string }
  | { readonly type: "expirySet"; readonly expiry: Expiry }
  | { readonly type: "formatted" }
  | { readonly type: "taken"; readonly value: string }
  | { readonly type: "discarded"; readonly entry: TextEntry }
  /** The user wants to write. Nothing is written if the text has a problem. */
  | { readonly type: "submitted" }
  /** `sent` is the draft that was written. The user may have typed more since. */
  | { readonly type: "written"; readonly entry: TextEntry; readonly sent: EntryDraft }
  | { readonly type: "failed"; readonly message: string }
  /** There is no answer. The service may have received the request. */
  | { readonly type: "unanswered"; readonly effort: Effort }
  | { readonly type: "settled" }

const noFailure = { failure: "", unanswered: undefined } as const

export const empty: EntryDraft = {
  base: undefined,
  original: "",
  text: "",
  expiry: kept,
  problem: undefined,
  ...noFailure,
  notice: "",
  isBusy: false
}

export const isEdited = ({ base, original, text }: EntryDraft): boolean => base !== undefined && text !== original

export const isDirty = (draft: EntryDraft): boolean =>
  isEdited(draft) || (draft.base !== undefined && isChange(draft.expiry, draft.base.expiresAt))

/** Whether both are the same write. The version alone is not enough: it restarts at 1 after a delete. */
const isSame = (entry: TextEntry, base: TextEntry | undefined): boolean =>
  entry.version === base?.version && entry.updatedAt === base.updatedAt

/** Whether the stored entry has changed since the draft was started; `"absent"` if it was deleted. */
export const isBehind = (draft: EntryDraft, stored: TextEntry | "absent" | undefined): boolean =>
  isDirty(draft) &&
  !draft.isBusy &&
  (stored === "absent" || (stored !== undefined && stored.version !== draft.base?.version))

const basedOn = (draft: EntryDraft, entry: TextEntry): EntryDraft => {
  const original = format(entry.value)
  return { ...draft, base: entry, original, text: original, expiry: kept, problem: undefined }
}

/** The notice of a write of another tab or client. What this draft has written is its base already. */
const noticeOf = ({ base }: EntryDraft, { updatedBy, version }: TextEntry): string =>
  base !== undefined && version > base.version ? `Changed by ${isolated(updatedBy)} to version ${version}` : ""

const changed = (draft: EntryDraft, text: string): EntryDraft => ({
  ...draft,
  text,
  problem: undefined,
  notice: "",
  ...noFailure
})

const written = (draft: EntryDraft, entry: TextEntry, sent: EntryDraft): EntryDraft => {
  const saved = basedOn(draft, entry)
  return {
    ...saved,
    text: draft.text === sent.text ? saved.text : draft.text,
    expiry: draft.expiry === sent.expiry ? saved.expiry : draft.expiry,
    problem: draft.problem,
    notice: `Saved as version ${entry.version}`
  }
}

/** Whether a stored entry is what the draft writes. When it expires after a duration is up to the service. */
const isWritten = (draft: EntryDraft, entry: TextEntry): boolean =>
  format(entry.value) === format(draft.text) &&
  (draft.expiry.kind === "after" ? entry.expiresAt !== null : !isChange(draft.expiry, entry.expiresAt))

/** The draft after its entry was read, which shows what a request without an answer has done. */
const afterReading = (draft: EntryDraft, entry: TextEntry | "absent"): EntryDraft => {
  const known = draft.unanswered === undefined ? draft : { ...draft, ...noFailure }
  if (entry === "absent") return known
  if (isSame(entry, draft.base)) {
    const failure = `Not ${draft.unanswered}: the service did not answer. Try again.`
    return draft.unanswered === undefined ? draft : { ...known, failure }
  }
  if (draft.unanswered === "saved" && isWritten(draft, entry)) return written(known, entry, draft)
  // An edit is never replaced by what other clients write.
  return isDirty(draft) ? known : { ...basedOn(known, entry), notice: noticeOf(draft, entry) }
}

export const reduce = (draft: EntryDraft, event: DraftEvent): EntryDraft => {
  switch (event.type) {
    case "read":
      return afterReading(draft, event.entry)
    case "typed":
      return changed(draft, event.text)
    case "expirySet":
      return { ...draft, expiry: event.expiry, ...noFailure }
    case "formatted": {
      const problem = problemOf(draft.text)
      return { ...draft, problem, text: problem === undefined ? format(draft.text) : draft.text }
    }
    case "taken":
      return changed(draft, format(event.value))
    case "discarded":
      return { ...basedOn(draft, event.entry), ...noFailure }
    case "submitted": {
      if (draft.isBusy) return draft
      const problem = problemOf(draft.text)
      return problem === undefined ? { ...draft, problem, ...noFailure, isBusy: true } : { ...draft, problem }
    }
    case "written":
      return written(draft, event.entry, event.sent)
    case "failed":
      return { ...draft, ...noFailure, failure: event.message }
    case "unanswered": {
      const failure = `It is not known whether the entry was ${event.effort}: the service does not answer.`
      return { ...draft, failure, unanswered: event.effort }
    }
    case "settled":
      return { ...draft, isBusy: false }
  }
}

/** The maximum number of changes in a part, and of characters in their values. */
export const max = { changes: 500, characters: 16 * 1024 * 1024 }

export interface HistoryPart {
  /** The change before the first one, if it is kept. */
  readonly before: TextChange | undefined
  readonly changes: ReadonlyArray<TextChange>
  /** The position in the log up to which it was read. */
  readonly after: number
}

export const nothing: HistoryPart = { before: undefined, changes: [], after: 0 }

/** The latest changes within the limits, after the next page was read. */
export const plus = (part: HistoryPart, { after, changes: more }: HistoryPage): HistoryPart => {
  if (more.length === 0) return { ...part, after }
  const changes = [...(part.before === undefined ? [] : [part.before]), ...part.changes, ...more]
  let first = changes.length
  for (let characters = 0; first > 0 && changes.length - first < max.changes; first--) {
    characters += changes[first - 1]!.value.length
    if (characters > max.characters && first < changes.length) break
  }
  return { before: changes[first - 1], changes: changes.slice(first), after }
}

export type Removal = Pick<TextChange, "actor" | "timestamp" | "version">

/** Whether the service has removed an entry because it had expired. */
export const isExpiry = ({ actor, op }: Pick<TextChange, "actor" | "op">): boolean =>
  op === "delete" && actor === "expiry"

/**
 * What has happened to an absent entry, last read as `last`. The clock of the page may be wrong and decides nothing.
 */
export const absenceOf = (last: TextEntry | undefined, removal: Removal | undefined): string => {
  const expiresAt = last?.expiresAt ?? null
  if (removal === undefined) return expiresAt === null ? "was deleted" : "has expired or was deleted"
  const isOfLast = last !== undefined && removal.version === last.version + 1
  // Any client may delete entries with this actor.
  if (isExpiry({ ...removal, op: "delete" }) && !(isOfLast && expiresAt === null)) {
    return `expired on ${dateAndTime(isOfLast && expiresAt !== null ? expiresAt : removal.timestamp)}`
  }
  return `was deleted by ${isolated(removal.actor)} on ${dateAndTime(removal.timestamp)}`
}
