/** The client of entries: it reads by `Reads.ts`, writes, and copies the whole store. */
import { detailsOf, InvalidResponse, refused } from "./Errors.ts"
import type { DeleteResult, Entry, Operation, OperationResult, RemoveResult } from "./Model.ts"
import { entryPath, matching, positionOf, type Reads, readEntry, readsOf, type VersionOptions } from "./Reads.ts"
import { type CallOptions, type JsonFormat, json, type Request, Requests, segment, type Token } from "./Requests.ts"
import { type Clock, Lifetime } from "./Time.ts"

/** The service, the credential, and limits. */
export interface KeyValueOptions {
  /** The address of the service, such as `https://kv.example.com`. */
  readonly baseUrl: string
  /** The credential, or a function that returns it for each attempt. */
  readonly token: Token
  /** The prefix of every path; default `/api/v1`. A host may mount the API under another one. */
  readonly prefix?: string
  /** The time limit of an answer in milliseconds; default 30,000. */
  readonly timeoutMs?: number
  /** The maximum size of an answer in bytes; default 64 MiB. A larger one fails with `ResponseTooLarge`. */
  readonly maxResponseBytes?: number
  readonly fetch?: typeof globalThis.fetch
  /**
   * How JSON is read and written; default `JSON`. Another format can keep what `JSON.parse` loses, such as the digits of
   * a large number.
   */
  readonly json?: JsonFormat
  /** For tests. */
  readonly clock?: Clock
}

/** Reads and writes entries. Calls fail with a `ClientError`. */
export interface KeyValueClient extends Reads, Writes {
  /** A snapshot of the whole store. It requires a credential that writes. */
  readonly backup: (options?: BackupOptions) => Promise<StoreBackup>
}

/** The sender of requests of a client. */
export const requestsOf = ({ baseUrl, prefix = "/api/v1", timeoutMs = 30_000, ...rest }: KeyValueOptions): Requests =>
  new Requests({ ...rest, base: new URL(baseUrl).href.replace(/\/+$/, "") + prefix, timeoutMs })

/** The calls for entries. */
export const keyValueOf = (requests: Requests): KeyValueClient => ({
  ...readsOf(requests),
  ...writesOf(requests),
  backup: (options = {}) => backup(requests, options)
})

/** Makes a client that reads and writes but does not follow. */
export const makeKeyValueClient = (options: KeyValueOptions): KeyValueClient => keyValueOf(requestsOf(options))

/** Options of a backup. */
export interface BackupOptions extends CallOptions {
  /** The time limit of the copy, before the answer starts, in milliseconds; default 600,000. */
  readonly timeoutMs?: number
}

/** A copy of the whole store: a SQLite database. */
export interface StoreBackup {
  readonly bytes: number
  /** The SHA-256 of its bytes in hexadecimal digits, for the receiver to verify. */
  readonly sha256: string
  /** Its last change, and the epoch of its log. */
  readonly lastSeq: number
  readonly epoch: string
  /** Fails if the connection is lost before the end. Cancelling it ends the backup. */
  readonly content: ReadableStream<Uint8Array>
}

/** The SHA-256 of a header of RFC 9530, in hexadecimal digits. */
const digestIn = (header: string | null): string | undefined => {
  const [, base64] = /\bsha-256=:([A-Za-z0-9+/]{43}=):/.exec(header ?? "") ?? []
  return base64 && Array.from(atob(base64), byte => byte.charCodeAt(0).toString(16).padStart(2, "0")).join("")
}

/** Waits until a copy is complete. The time limit does not include its content. */
export const backup = async (
  requests: Requests,
  { signal, timeoutMs = 600_000 }: BackupOptions
): Promise<StoreBackup> => {
  const lifetime = new Lifetime(requests.clock, signal)
  const limit = lifetime.limit(timeoutMs, `There is no answer within ${timeoutMs} ms`)
  try {
    const response = await requests.open({ path: "/backup" }, lifetime.signal)
    limit.cancel()
    const { body, headers } = response
    const bytes = Number(headers.get("content-length") ?? Number.NaN)
    const sha256 = digestIn(headers.get("repr-digest"))
    if (body === null || sha256 === undefined || Number.isNaN(bytes)) {
      throw new InvalidResponse(detailsOf(response, "The answer is not a backup"))
    }
    const { epoch, lastSeq } = positionOf(response)
    return { bytes, sha256, lastSeq, epoch, content: body }
  } catch (error) {
    lifetime.end()
    throw error
  }
}

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
