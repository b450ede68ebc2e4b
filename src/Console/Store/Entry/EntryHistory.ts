/** What the change log says about an entry: the part of its history that the page keeps, and why it is absent. */
import { dateAndTime, isolated } from "../../Widgets/Text.ts"
import type { HistoryPage, TextChange, TextEntry } from "./EntryDraft.ts"

/** The maximum number of changes in a part, and of characters in their values. */
export const max = { changes: 500, characters: 16 * 1024 * 1024 }

/** A part of the changes, oldest first. */
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

/** A change that has removed an entry. */
export type Removal = Pick<TextChange, "actor" | "timestamp" | "version">

/** Whether the service has removed an entry because it had expired. */
export const isExpiry = ({ actor, op }: Pick<TextChange, "actor" | "op">): boolean =>
  op === "delete" && actor === "expiry"

/**
 * What has happened to an absent entry, for a sentence about it; `last` is the entry as it was last read. Until the
 * change is known, expiry and deletion cannot be distinguished: the clock of the page may be wrong.
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
