/** The entries of the key-value store: single ones, batches and lists. */
import { detailsOf, InvalidResponse } from "./Errors.ts"
import { positionOf, type Reads, readsOf } from "./Reads.ts"
import { type CallOptions, type JsonFormat, Requests, type Token } from "./Requests.ts"
import { type Clock, Lifetime, systemClock } from "./Time.ts"
import { type Writes, writesOf } from "./Writes.ts"

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
