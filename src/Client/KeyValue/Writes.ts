/**
 * The calls that write: sets, deletes and batches.
 */
import { refused } from "../Errors.ts"
import type { DeleteResult, Entry, Operation, OperationResult, RemoveResult } from "../Model.ts"
import { type CallOptions, json, type Request, type Requests, segment } from "../Requests.ts"
import { entryPath, matching, readEntry, type VersionOptions } from "./Entry.ts"

/** What a call that writes takes. */
export interface WriteOptions extends CallOptions {
  /**
   * Names this write, with 1 to 256 printable characters of ASCII. While the service remembers the key, for 24 hours at
   * most and less where its tenant has written very many keys, the same call with it has the same result and writes
   * nothing more: what is not known to be written can be repeated.
   */
  readonly idempotencyKey?: string
}

export interface SetOptions extends WriteOptions {
  /** The entry must be at this version; 0 means that it must be absent. */
  readonly ifVersion?: number
  /** Who writes; `api` without it. */
  readonly actor?: string
  /** The entry expires this many milliseconds from now. */
  readonly ttlMs?: number
  /** The entry expires at this time, in epoch milliseconds. */
  readonly expiresAt?: number
}

export interface DeleteOptions extends VersionOptions, WriteOptions {
  /** Who deletes; `api` without it. */
  readonly actor?: string
}

export interface DeletePrefixOptions extends WriteOptions {
  /** Who deletes; `api` without it. */
  readonly actor?: string
  /** The most entries that are deleted, 1 to 1000; 1000 without it. */
  readonly limit?: number
}

export interface BatchOptions extends WriteOptions {
  /** Who writes; `api` without it. */
  readonly actor?: string
}

/** Writes entries. Calls fail with a `ClientError`. */
export interface Writes {
  /** Sets an entry, which is replaced whole, its expiry included. Returns it as stored. */
  readonly set: (namespace: string, key: string, value: unknown, options?: SetOptions) => Promise<Entry>
  /** Deletes an entry. Returns whether there was one. */
  readonly delete: (namespace: string, key: string, options?: DeleteOptions) => Promise<boolean>
  /**
   * Deletes the first entries whose key starts with a prefix, `""` for all, in one batch: all or none. To be repeated
   * while there are more.
   */
  readonly deletePrefix: (namespace: string, prefix: string, options?: DeletePrefixOptions) => Promise<RemoveResult>
  /** Applies all operations in order, or none. Returns what each has done. */
  readonly batch: (
    operations: ReadonlyArray<Operation>,
    options?: BatchOptions
  ) => Promise<ReadonlyArray<OperationResult>>
}

/** The header by which a write is remembered. White space at its ends would be lost on the way. */
const named = (idempotencyKey: string | undefined): Record<string, string> => {
  if (idempotencyKey === undefined) return {}
  if (idempotencyKey.trim() === idempotencyKey && /^[\x20-\x7e]{1,256}$/.test(idempotencyKey)) {
    return { "idempotency-key": idempotencyKey }
  }
  throw refused("idempotencyKey must be 1 to 256 printable characters of ASCII, without spaces at its ends")
}

const readDeleted = json<DeleteResult>(({ deleted }) => typeof deleted === "boolean")
const readRemoved = json<RemoveResult>(({ count }) => Number.isSafeInteger(count))
const readResults = json<{ readonly results: ReadonlyArray<OperationResult> }>(({ results }) => Array.isArray(results))

/** The calls that write. */
export const writesOf = (requests: Requests): Writes => ({
  set: async (namespace, key, value, { idempotencyKey, ifVersion, signal, ...written } = {}) => {
    const path = entryPath(namespace, key)
    const condition = ifVersion === 0 ? { "if-none-match": "*" } : matching(ifVersion)
    const headers = { ...condition, ...named(idempotencyKey) }
    return requests.ask(
      { method: "PUT", path, headers, body: requests.json.stringify({ value, ...written }) },
      signal,
      readEntry
    )
  },

  delete: async (namespace, key, { actor, idempotencyKey, ifVersion, signal } = {}) => {
    const path = entryPath(namespace, key)
    const headers = { ...matching(ifVersion), ...named(idempotencyKey) }
    const request: Request = { method: "DELETE", path, query: { actor }, headers }
    return (await requests.ask(request, signal, readDeleted)).deleted
  },

  deletePrefix: async (namespace, prefix, { actor, idempotencyKey, limit, signal } = {}) => {
    const path = `/kv/${segment("namespace", namespace)}`
    const headers = named(idempotencyKey)
    return requests.ask({ method: "DELETE", path, query: { prefix, limit, actor }, headers }, signal, readRemoved)
  },

  batch: async (operations, { actor, idempotencyKey, signal } = {}) => {
    const body = requests.json.stringify({ operations, actor })
    const request: Request = { method: "POST", path: "/batch", headers: named(idempotencyKey), body }
    return (await requests.ask(request, signal, readResults)).results
  }
})
