/** The calls that write: sets, deletes and batches. */
import { refused } from "./Errors.ts"
import type { DeleteResult, Entry, Operation, OperationResult, RemoveResult } from "./Model.ts"
import { entryPath, matching, readEntry, type VersionOptions } from "./Reads.ts"
import { type CallOptions, json, type Request, type Requests, segment } from "./Requests.ts"

/** Options of every write. */
export interface WriteOptions extends CallOptions {
  /**
   * Identifies this write, with 1 to 256 printable ASCII characters. While the service keeps the key, up to 24 hours and
   * less if its tenant uses very many keys, the same call with it returns the same result and writes nothing more: a
   * write with unknown outcome can be repeated.
   */
  readonly idempotencyKey?: string
}

/** Options of a set. */
export interface SetOptions extends WriteOptions {
  /** The entry must be at this version; 0 means that it must be absent. */
  readonly ifVersion?: number
  /** The actor of the write; default `api`. */
  readonly actor?: string
  /** The entry expires this many milliseconds from now. */
  readonly ttlMs?: number
  /** The entry expires at this time, in epoch milliseconds. */
  readonly expiresAt?: number
}

/** Options of a delete. */
export interface DeleteOptions extends VersionOptions, WriteOptions {
  /** The actor of the delete; default `api`. */
  readonly actor?: string
}

/** Options of a delete of a prefix. */
export interface DeletePrefixOptions extends WriteOptions {
  /** The actor of the delete; default `api`. */
  readonly actor?: string
  /** The maximum number of entries to delete, 1 to 1000; default 1000. */
  readonly limit?: number
}

/** Options of a batch. */
export interface BatchOptions extends WriteOptions {
  /** The actor of the write; default `api`. */
  readonly actor?: string
}

/** Writes entries. Calls fail with a `ClientError`. */
export interface Writes {
  /** Sets an entry. An existing one is replaced, including its expiry. Returns the stored entry. */
  readonly set: (namespace: string, key: string, value: unknown, options?: SetOptions) => Promise<Entry>
  /** Deletes an entry. Returns whether there was one. */
  readonly delete: (namespace: string, key: string, options?: DeleteOptions) => Promise<boolean>
  /**
   * Deletes the first entries whose keys start with a prefix, `""` for all, in one atomic batch. Repeat it while the
   * result has `more`.
   */
  readonly deletePrefix: (namespace: string, prefix: string, options?: DeletePrefixOptions) => Promise<RemoveResult>
  /** Applies all operations in order, or none. Returns the result of each. */
  readonly batch: (
    operations: ReadonlyArray<Operation>,
    options?: BatchOptions
  ) => Promise<ReadonlyArray<OperationResult>>
}

/** The header with the idempotency key. HTTP does not preserve white space at its ends. */
const keyed = (idempotencyKey: string | undefined): Record<string, string> => {
  if (idempotencyKey === undefined) return {}
  if (idempotencyKey.trim() === idempotencyKey && /^[\x20-\x7e]{1,256}$/.test(idempotencyKey)) {
    return { "idempotency-key": idempotencyKey }
  }
  throw refused("idempotencyKey must be 1 to 256 printable characters of ASCII, without spaces at its ends")
}

/** The text of a body. Values that JSON does not have are refused: a bigint, a cycle. */
const textOf = ({ json }: Requests, body: object): string => {
  try {
    return json.stringify(body)
  } catch (error) {
    throw refused(`The value cannot be written as JSON: ${error instanceof Error ? error.message : String(error)}`)
  }
}

const readDeleted = json<DeleteResult>(({ deleted }) => typeof deleted === "boolean")
const readRemoved = json<RemoveResult>(({ count }) => Number.isSafeInteger(count))
const readResults = json<{ readonly results: ReadonlyArray<OperationResult> }>(({ results }) => Array.isArray(results))

/** The calls that write. */
export const writesOf = (requests: Requests): Writes => ({
  set: async (namespace, key, value, { idempotencyKey, ifVersion, signal, ...written } = {}) => {
    const path = entryPath(namespace, key)
    const condition = ifVersion === 0 ? { "if-none-match": "*" } : matching(ifVersion)
    const headers = { ...condition, ...keyed(idempotencyKey) }
    return requests.ask(
      { method: "PUT", path, headers, body: textOf(requests, { value, ...written }) },
      signal,
      readEntry
    )
  },

  delete: async (namespace, key, { actor, idempotencyKey, ifVersion, signal } = {}) => {
    const path = entryPath(namespace, key)
    const headers = { ...matching(ifVersion), ...keyed(idempotencyKey) }
    const request: Request = { method: "DELETE", path, query: { actor }, headers }
    return (await requests.ask(request, signal, readDeleted)).deleted
  },

  deletePrefix: async (namespace, prefix, { actor, idempotencyKey, limit, signal } = {}) => {
    const path = `/kv/${segment("namespace", namespace)}`
    const headers = keyed(idempotencyKey)
    return requests.ask({ method: "DELETE", path, query: { prefix, limit, actor }, headers }, signal, readRemoved)
  },

  batch: async (operations, { actor, idempotencyKey, signal } = {}) => {
    const body = textOf(requests, { operations, actor })
    const request: Request = { method: "POST", path: "/batch", headers: keyed(idempotencyKey), body }
    return (await requests.ask(request, signal, readResults)).results
  }
})
