/** Why an entry is absent, according to the change log. */
import { dateAndTime, isolated } from "../Widgets/Text.ts"
import type { TextChange, TextEntry } from "./TextEntry.ts"

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
