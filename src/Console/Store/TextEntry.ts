/** Entries and changes whose values are JSON text. */
import type { Change, Entry } from "../../Client/Client.ts"

export interface TextEntry extends Omit<Entry, "value"> {
  /** JSON text, as written. */
  readonly value: string
}

export interface TextChange extends Omit<Change, "value" | "tenantId"> {
  /** JSON text; `null` for a delete. */
  readonly value: string
}

/** Changes of an entry, oldest first, and the position in the log up to which there are no others. */
export interface HistoryPage {
  readonly changes: ReadonlyArray<TextChange>
  readonly after: number
}

/** The expiry of an entry that is written: after a duration, at a time in epoch milliseconds, or never. */
export type WrittenExpiry = { readonly ttlMs: number } | { readonly expiresAt: number } | Record<string, never>
