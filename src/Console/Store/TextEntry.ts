/** Entries and changes whose values are JSON text. */

/** An entry. Times are epoch milliseconds. */
export interface TextEntry {
  readonly namespace: string
  readonly key: string
  /** JSON text, as written. */
  readonly value: string
  readonly version: number
  readonly updatedBy: string
  readonly updatedAt: number
  readonly expiresAt: number | null
}

/** A change of the log. `timestamp` is in epoch milliseconds. */
export interface TextChange {
  readonly seq: number
  readonly op: "set" | "delete"
  readonly namespace: string
  readonly key: string
  /** JSON text; `null` for a delete. */
  readonly value: string
  readonly version: number
  readonly actor: string
  readonly timestamp: number
}

/** Changes of an entry, oldest first, and the position in the log up to which there are no others. */
export interface HistoryPage {
  readonly changes: ReadonlyArray<TextChange>
  readonly after: number
}

/** The expiry of an entry that is written: after a duration, at a time in epoch milliseconds, or never. */
export type WrittenExpiry = { readonly ttlMs: number } | { readonly expiresAt: number } | Record<string, never>
