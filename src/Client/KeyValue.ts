/** The entries of the key-value store: single ones, batches and lists. */
import { type BackupOptions, backup, type StoreBackup } from "./KeyValue/Backup.ts"
import { type Reads, readsOf } from "./KeyValue/Reads.ts"
import { type Writes, writesOf } from "./KeyValue/Writes.ts"
import { type JsonFormat, Requests, type Token } from "./Requests.ts"
import { type Clock, systemClock } from "./Time.ts"

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
export const requestsOf = ({
  baseUrl,
  clock = systemClock,
  fetch = globalThis.fetch,
  json,
  maxResponseBytes = 64 * 1024 * 1024,
  prefix = "/api/v1",
  timeoutMs = 30_000,
  token
}: KeyValueOptions): Requests =>
  new Requests({
    base: new URL(baseUrl).href.replace(/\/+$/, "") + prefix,
    token,
    fetch: fetch.bind(globalThis),
    timeoutMs,
    maxResponseBytes,
    clock,
    json
  })

/** The calls for entries. */
export const keyValueOf = (requests: Requests): KeyValueClient => ({
  ...readsOf(requests),
  ...writesOf(requests),
  backup: (options = {}) => backup(requests, options)
})

/** Makes a client that reads and writes but does not follow. */
export const makeKeyValueClient = (options: KeyValueOptions): KeyValueClient => keyValueOf(requestsOf(options))
