/**
 * The entries of the key-value store: single ones, batches and lists.
 */
import { type BackupOptions, backup, type StoreBackup } from "./KeyValue/Backup.ts"
import { type Reads, readsOf } from "./KeyValue/Reads.ts"
import { type Writes, writesOf } from "./KeyValue/Writes.ts"
import { type JsonFormat, Requests, type Token } from "./Requests.ts"
import { type Clock, systemClock } from "./Time.ts"

/** Where the service is, and who asks. */
export interface KeyValueOptions {
  /** The address that the API is served under, such as `https://kv.example.com`. */
  readonly baseUrl: string
  /** The credential, or a function that is asked for it at each try. */
  readonly token: Token
  /** What stands before every path; `/api/v1` unless the host of the service has mounted it elsewhere. */
  readonly prefix?: string
  /** Milliseconds that an answer may take; 30,000 without it. */
  readonly timeoutMs?: number
  /** The most bytes of an answer that are taken, 64 MiB without it; a larger one is `ResponseTooLarge`. */
  readonly maxResponseBytes?: number
  readonly fetch?: typeof globalThis.fetch
  /**
   * How JSON is read and written; `JSON` without it. A program that must keep what `JSON.parse` loses, such as the digits
   * of a large number, gives its own.
   */
  readonly json?: JsonFormat
  /** For tests. */
  readonly clock?: Clock
}

/** Reads and writes entries. Calls fail with a `ClientError`. */
export interface KeyValueClient extends Reads, Writes {
  /** A copy of the whole store at one moment. It takes the credential that writes. */
  readonly backup: (options?: BackupOptions) => Promise<StoreBackup>
}

/** What sends the requests of a client. */
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

/** Makes a client that reads and writes, and does not follow. */
export const makeKeyValueClient = (options: KeyValueOptions): KeyValueClient => keyValueOf(requestsOf(options))
