/**
 * What the service stores and answers, as plain types. A test holds them equal to the schemas of the contract.
 */

/** A present entry; times are epoch milliseconds. */
export interface Entry {
  readonly namespace: string
  readonly key: string
  readonly value: unknown
  /** 1 for a new key, then one more with every set and delete of that key. */
  readonly version: number
  /** The actor that last wrote the entry. */
  readonly updatedBy: string
  readonly updatedAt: number
  /** `null` when the entry does not expire. */
  readonly expiresAt: number | null
}

/** One set or delete, as the change log has it. */
export interface Change {
  /** Position in the log: dense, increasing, global. */
  readonly seq: number
  readonly op: "set" | "delete"
  readonly namespace: string
  readonly key: string
  /** `null` for a delete. */
  readonly value: unknown
  /** The version that the entry got by this write. */
  readonly version: number
  /** Who wrote; `expiry` where an entry expired. */
  readonly actor: string
  /** Epoch milliseconds; never falls as `seq` rises. */
  readonly timestamp: number
  /** The tenant of the namespace, or the empty string. */
  readonly tenantId: string
}

/** A set as part of a batch; at most one of `ttlMs` and `expiresAt`. */
export interface SetOperation {
  readonly op: "set"
  readonly namespace: string
  readonly key: string
  readonly value: unknown
  /** The entry must be at this version; 0 means that it must be absent. */
  readonly ifVersion?: number
  /** The entry expires this many milliseconds from now. */
  readonly ttlMs?: number
  /** The entry expires at this time, in epoch milliseconds. */
  readonly expiresAt?: number
}

/** A delete as part of a batch. */
export interface DeleteOperation {
  readonly op: "delete"
  readonly namespace: string
  readonly key: string
  /** Ignored. */
  readonly value?: unknown
  /** The entry must be at this version; 0 means that it must be absent. */
  readonly ifVersion?: number
}

/** One write of a batch. */
export type Operation = SetOperation | DeleteOperation

/** What a set of a batch has done. */
export interface SetResult {
  /** The version that the entry has now. */
  readonly version: number
}

/** What a delete has done. */
export interface DeleteResult {
  /** False where there was no entry; nothing is recorded then. */
  readonly deleted: boolean
}

/** What a delete of a prefix has done. */
export interface RemoveResult {
  /** Whether there were entries to delete. */
  readonly deleted: boolean
  /** How many were deleted. */
  readonly count: number
  /** Whether there are more. */
  readonly more: boolean
}

/** What an operation of a batch has done. */
export type OperationResult = SetResult | DeleteResult

/** A part of the change log. */
export interface ChangePage {
  readonly changes: ReadonlyArray<Change>
  /** The last `seq` scanned, which may lie past the last change here. */
  readonly lastSeq: number
}

/** An entry without its value. */
export type EntryKey = Omit<Entry, "value">

/** A part of a namespace. */
export interface ListPage<Item = Entry> {
  /** In byte order of the UTF-8 key, or its reverse. */
  readonly items: ReadonlyArray<Item>
  /** The position of the change log that the page was read at. */
  readonly lastSeq: number
  /** The log that the position belongs to. */
  readonly epoch: string
  /** How many entries the list has on all its pages; on the first page where it was asked for. */
  readonly count?: number
}

/** A namespace that has entries. */
export interface NamespaceCount {
  readonly namespace: string
  /** How many entries it has. */
  readonly count: number
}

/** A part of the namespaces. */
export interface NamespacePage {
  /** In byte order of their UTF-8. */
  readonly namespaces: ReadonlyArray<NamespaceCount>
  /** The position of the change log that the page was read at. */
  readonly lastSeq: number
  /** The log that the position belongs to. */
  readonly epoch: string
}

/** A tenant that has entries, or `""` for all namespaces that belong to none. */
export interface TenantCount {
  readonly tenant: string
  /** How many namespaces it has, and how many entries these have together. */
  readonly namespaces: number
  readonly entries: number
}

/** A part of the tenants. */
export interface TenantPage {
  /** In byte order of their UTF-8. */
  readonly tenants: ReadonlyArray<TenantCount>
  /** The position of the change log that the page was read at. */
  readonly lastSeq: number
  /** The log that the position belongs to. */
  readonly epoch: string
}

/** What addresses an entry. */
export interface EntryAddress {
  readonly namespace: string
  readonly key: string
}

/** Entries that were read from one snapshot. */
export interface EntriesRead<Item = Entry | undefined> {
  /** One for each address, in order; `undefined` where it is absent. */
  readonly items: ReadonlyArray<Item>
  /** The position of the change log that they were read at. */
  readonly lastSeq: number
  /** The log that the position belongs to. */
  readonly epoch: string
}

/** What happens while the log is followed. */
export type FollowEvent =
  /** An entry that was there when the follower began. */
  | { readonly type: "entry"; readonly entry: Entry }
  /** All entries were told; what comes next is new. */
  | { readonly type: "synced"; readonly lastSeq: number; readonly epoch: string }
  /** The `seq` of the change is a position of the log with this epoch. */
  | { readonly type: "change"; readonly change: Change; readonly epoch: string }
  /**
   * The log is another one, or ends before the position, as after a restore from a backup. What is known must be read
   * again.
   */
  | { readonly type: "reset"; readonly lastSeq: number; readonly epoch: string }
  /**
   * Changes after `after` are no longer kept. What is known must be read again. Those after `trimmedSeq` are kept; an
   * older service does not tell it.
   */
  | { readonly type: "trimmed"; readonly after: number; readonly trimmedSeq: number | undefined }

/** How changes come in. */
export type TransportName = "webSocket" | "serverSentEvents" | "longPolling"

/** Whether changes come in as they happen. */
export type FollowStatus =
  | { readonly type: "connected"; readonly transport: TransportName }
  | { readonly type: "disconnected"; readonly error: Error; readonly retryInMs: number }
