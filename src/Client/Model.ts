/** The data of the service as plain types. A test compares them with the schemas of the contract. */

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

/** One set or delete in the change log. */
export interface Change {
  /** Position in the log: dense, increasing, global. */
  readonly seq: number
  readonly op: "set" | "delete"
  readonly namespace: string
  readonly key: string
  /** `null` for a delete. */
  readonly value: unknown
  /** The version of the entry after this write. */
  readonly version: number
  /** The actor of the write; `expiry` if the entry expired. */
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

/** The result of a set in a batch. */
export interface SetResult {
  /** The new version of the entry. */
  readonly version: number
}

/** The result of a delete. */
export interface DeleteResult {
  /** False if there was no entry; nothing is recorded then. */
  readonly deleted: boolean
}

/** The result of a delete of a prefix. */
export interface RemoveResult {
  /** Whether there were entries to delete. */
  readonly deleted: boolean
  /** How many were deleted. */
  readonly count: number
  /** Whether there are more. */
  readonly more: boolean
}

/** The result of an operation of a batch. */
export type OperationResult = SetResult | DeleteResult

/** A part of the change log. */
export interface ChangePage {
  readonly changes: ReadonlyArray<Change>
  /** The last `seq` scanned, which may be greater than that of the last change here. */
  readonly lastSeq: number
}

/** An entry without its value. */
export type EntryKey = Omit<Entry, "value">

/** A part of a namespace. */
export interface ListPage<Item = Entry> {
  /** In byte order of the UTF-8 key, or its reverse. */
  readonly items: ReadonlyArray<Item>
  /** The position of the change log at which the page was read. */
  readonly lastSeq: number
  /** The epoch of the log to which the position belongs. */
  readonly epoch: string
  /** The number of entries on all pages of the list; on the first page, if it was requested. */
  readonly count?: number
}

/** A namespace that has entries. */
export interface NamespaceCount {
  readonly namespace: string
  /** The number of its entries. */
  readonly count: number
}

/** A part of the namespaces. */
export interface NamespacePage {
  /** In byte order of their UTF-8. */
  readonly namespaces: ReadonlyArray<NamespaceCount>
  /** The position of the change log at which the page was read. */
  readonly lastSeq: number
  /** The epoch of the log to which the position belongs. */
  readonly epoch: string
}

/** A tenant that has entries, or `""` for all namespaces without a tenant. */
export interface TenantCount {
  readonly tenant: string
  /** The number of its namespaces, and of their entries. */
  readonly namespaces: number
  readonly entries: number
}

/** A part of the tenants. */
export interface TenantPage {
  /** In byte order of their UTF-8. */
  readonly tenants: ReadonlyArray<TenantCount>
  /** The position of the change log at which the page was read. */
  readonly lastSeq: number
  /** The epoch of the log to which the position belongs. */
  readonly epoch: string
}

/** The address of an entry. */
export interface EntryAddress {
  readonly namespace: string
  readonly key: string
}

/** Entries that were read from one snapshot. */
export interface EntriesRead<Item = Entry | undefined> {
  /** One for each address, in order; `undefined` if it is absent. */
  readonly items: ReadonlyArray<Item>
  /** The position of the change log at which they were read. */
  readonly lastSeq: number
  /** The epoch of the log to which the position belongs. */
  readonly epoch: string
}

/** An event of a follower. */
export type FollowEvent =
  /** An entry that existed when the follower started. */
  | { readonly type: "entry"; readonly entry: Entry }
  /** All existing entries are delivered; later events are new. */
  | { readonly type: "synced"; readonly lastSeq: number; readonly epoch: string }
  /** The `seq` of the change is a position of the log with this epoch. */
  | { readonly type: "change"; readonly change: Change; readonly epoch: string }
  /**
   * The log is another one or ends before the position, for example after a restore from a backup. The entries must be
   * read again.
   */
  | { readonly type: "reset"; readonly lastSeq: number; readonly epoch: string }
  /**
   * Changes after `after` are no longer kept. The entries must be read again. Changes after `trimmedSeq` are kept; it is
   * `undefined` if a proxy has removed its header.
   */
  | { readonly type: "trimmed"; readonly after: number; readonly trimmedSeq: number | undefined }

/** The transports of the change log. */
export type TransportName = "webSocket" | "serverSentEvents" | "longPolling"

/** Whether a connection delivers changes as they happen. */
export type FollowStatus =
  | { readonly type: "connected"; readonly transport: TransportName }
  | { readonly type: "disconnected"; readonly error: Error; readonly retryInMs: number }
