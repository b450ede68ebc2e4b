/**
 * The entries of the key-value store: single ones, batches and lists.
 */
import { detailsOf, InvalidResponse, NotFound, refused } from "./Errors.ts"
import type { CursorPage } from "./Follow.ts"
import type {
  DeleteResult,
  EntriesRead,
  Entry,
  EntryAddress,
  EntryKey,
  ListPage,
  NamespacePage,
  Operation,
  OperationResult,
  RemoveResult
} from "./Model.ts"
import { epochOf, type JsonFormat, json, type Reader, type Request, Requests, segment, type Token } from "./Requests.ts"
import { type Clock, iterable, Lifetime, systemClock } from "./Time.ts"

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

/** What every call takes. */
export interface CallOptions {
  /** Ends the call; it then fails with the reason of the signal. */
  readonly signal?: AbortSignal
}

/** What a call that writes takes. */
export interface WriteOptions extends CallOptions {
  /**
   * Names this write, with 1 to 256 printable characters of ASCII. While the service remembers the key, for 24 hours at
   * most and less where many writes have keys, the same call with it has the same result and writes nothing more: what is
   * not known to be written can be repeated.
   */
  readonly idempotencyKey?: string
}

/** What a call that depends on the version of an entry takes. */
export interface VersionOptions extends CallOptions {
  /** The entry must be at this version. */
  readonly ifVersion?: number
}

export interface GetOptions extends VersionOptions {
  /** The entry as it was read before: returned where it has not changed, without being sent again. */
  readonly known?: Entry
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

export interface ListOptions extends CallOptions {
  /** Only keys that start with this. */
  readonly prefix?: string
  /** Only this key and those after it. */
  readonly start?: string
  /** Only keys before this one. */
  readonly end?: string
  /** Whether the last key comes first. */
  readonly reverse?: boolean
  /** Whether the first page tells how many entries there are. */
  readonly count?: boolean
  /** The most entries in a page, 1 to 1000; 1000 without it. */
  readonly limit?: number
}

export interface NamespacesOptions extends CallOptions {
  /** Only namespaces that start with this. */
  readonly prefix?: string
  /** The most namespaces in a page, 1 to 1000; 1000 without it. */
  readonly limit?: number
}

export interface BackupOptions extends CallOptions {
  /** Milliseconds until the answer begins, which takes as long as the service needs for the copy; 600,000 without it. */
  readonly timeoutMs?: number
}

/** A copy of the whole store: a SQLite database. */
export interface StoreBackup {
  readonly bytes: number
  /** SHA-256 of its bytes in hexadecimal digits, by which the receiver is to verify it. */
  readonly sha256: string
  /** The last change that it has, and the epoch of its log. */
  readonly lastSeq: number
  readonly epoch: string
  /** Fails where the connection is lost before the end. To cancel it ends the backup. */
  readonly content: ReadableStream<Uint8Array>
}

/** Reads and writes entries. Calls fail with a `ClientError`. */
export interface KeyValueClient {
  /** The entry, or `undefined` where it is absent. */
  readonly get: (namespace: string, key: string, options?: GetOptions) => Promise<Entry | undefined>
  /** Several entries, read from one snapshot. They may be of several namespaces. */
  readonly getMany: (addresses: ReadonlyArray<EntryAddress>, options?: CallOptions) => Promise<EntriesRead>
  /** The same without values: what is there, at which version. */
  readonly getManyKeys: (
    addresses: ReadonlyArray<EntryAddress>,
    options?: CallOptions
  ) => Promise<EntriesRead<EntryKey | undefined>>
  /** Sets an entry, which is replaced whole, its expiry included. Returns it as stored. */
  readonly set: (namespace: string, key: string, value: unknown, options?: SetOptions) => Promise<Entry>
  /** Deletes an entry. Returns whether there was one. */
  readonly delete: (namespace: string, key: string, options?: DeleteOptions) => Promise<boolean>
  /**
   * Deletes the first entries whose key starts with a prefix, `""` for all, in one batch: all or none. To be repeated while
   * there are more.
   */
  readonly deletePrefix: (namespace: string, prefix: string, options?: DeletePrefixOptions) => Promise<RemoveResult>
  /** Applies all operations in order, or none. Returns what each has done. */
  readonly batch: (
    operations: ReadonlyArray<Operation>,
    options?: BatchOptions
  ) => Promise<ReadonlyArray<OperationResult>>
  /** The entries of a namespace, page by page, each page read as it is asked for. */
  readonly list: (namespace: string, options?: ListOptions) => AsyncIterable<ListPage>
  /** The same without the values. */
  readonly listKeys: (namespace: string, options?: ListOptions) => AsyncIterable<ListPage<EntryKey>>
  /** The namespaces, page by page, with the numbers of their entries. */
  readonly namespaces: (options?: NamespacesOptions) => AsyncIterable<NamespacePage>
  /** A copy of the whole store at one moment. It takes the credential that writes. */
  readonly backup: (options?: BackupOptions) => Promise<StoreBackup>
}

/** The most entries in a page of a list. */
const maxPage = 1000

/** The header by which an entry must be at a version. */
const matching = (ifVersion: number | undefined): Record<string, string> =>
  ifVersion === undefined ? {} : { "if-match": `"${ifVersion}"` }

/** The header by which a write is remembered. White space at its ends would be lost on the way. */
const named = (idempotencyKey: string | undefined): Record<string, string> => {
  if (idempotencyKey === undefined) return {}
  if (idempotencyKey.trim() === idempotencyKey && /^[\x20-\x7e]{1,256}$/.test(idempotencyKey)) {
    return { "idempotency-key": idempotencyKey }
  }
  throw refused("idempotencyKey must be 1 to 256 printable characters of ASCII, without spaces at its ends")
}

const readEntry = json<Entry>(({ key, version }) => typeof key === "string" && Number.isSafeInteger(version))
const readDeleted = json<DeleteResult>(({ deleted }) => typeof deleted === "boolean")
const readRemoved = json<RemoveResult>(({ count }) => Number.isSafeInteger(count))
const readResults = json<{ readonly results: ReadonlyArray<OperationResult> }>(({ results }) => Array.isArray(results))
const readItems = json<{ readonly items: ReadonlyArray<Entry> }>(({ items }) => Array.isArray(items))

const readNamespaces = json<Pick<NamespacePage, "namespaces">>(({ namespaces }) => Array.isArray(namespaces))

/** What the headers of a page tell. */
const positionOf = (response: Response) => {
  const lastSeq = Number(response.headers.get("kv-last-seq") ?? Number.NaN)
  if (Number.isNaN(lastSeq)) throw new InvalidResponse(detailsOf(response, "The header Kv-Last-Seq is missing"))
  const next = /<([^>]*)>; *rel="next"/.exec(response.headers.get("link") ?? "")?.[1]
  const cursor = next === undefined ? undefined : new URL(next, "http://localhost").searchParams.get("cursor")
  return { lastSeq, epoch: epochOf(response), cursor: cursor ?? undefined }
}

const readPage: Reader<CursorPage> = async (response, limitBytes, format) => {
  const { items } = await readItems(response, limitBytes, format)
  const count = response.headers.get("kv-count")
  const page = { items, ...positionOf(response) }
  return count === null ? page : { ...page, count: Number(count) }
}

const readNamespacePage: Reader<NamespacePage & { readonly cursor: string | undefined }> = async (
  response,
  limitBytes,
  format
) => ({
  ...(await readNamespaces(response, limitBytes, format)),
  ...positionOf(response)
})

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

const entryPath = (namespace: string, key: string) => `/kv/${segment("namespace", namespace)}/${segment("key", key)}`

/** Reads a page of a list. */
export const listPage = (
  requests: Requests,
  namespace: string,
  { count, end, limit = maxPage, prefix, reverse, signal, start }: ListOptions,
  cursor: string | undefined,
  keysOnly = false
): Promise<CursorPage> => {
  const query = {
    prefix,
    start,
    end,
    reverse: flag(reverse),
    keysOnly: flag(keysOnly),
    count: flag(count && cursor === undefined),
    limit,
    cursor
  }
  return requests.ask({ path: `/kv/${segment("namespace", namespace)}`, query }, signal, readPage)
}

const flag = (isOn: boolean | undefined): string | undefined => (isOn ? "1" : undefined)

/** All pages, each read as it is asked for. */
const pages = <Page extends object>(
  { clock }: Requests,
  signal: AbortSignal | undefined,
  read: (signal: AbortSignal, cursor: string | undefined) => Promise<Page & { readonly cursor: string | undefined }>
): AsyncIterable<Omit<Page, "cursor">> =>
  iterable(clock, signal, async function* (signal) {
    for (let cursor: string | undefined, isMore = true; isMore; ) {
      const { cursor: next, ...page } = await read(signal, cursor)
      yield page
      cursor = next
      isMore = cursor !== undefined
    }
  })

const list = (requests: Requests, namespace: string, options: ListOptions, keysOnly: boolean) =>
  pages(requests, options.signal, (signal, cursor) =>
    listPage(requests, namespace, { ...options, signal }, cursor, keysOnly)
  )

/** The SHA-256 in a header as RFC 9530 has it, in hexadecimal digits. */
const digestIn = (header: string | null): string | undefined => {
  const [, base64] = /\bsha-256=:([A-Za-z0-9+/]{43}=):/.exec(header ?? "") ?? []
  return base64 && Array.from(atob(base64), byte => byte.charCodeAt(0).toString(16).padStart(2, "0")).join("")
}

/** Waits until a copy is complete. How long its content takes is up to the reader. */
const backup = async (requests: Requests, { signal, timeoutMs = 600_000 }: BackupOptions): Promise<StoreBackup> => {
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

/** Several entries from one snapshot. */
const readMany = async (
  requests: Requests,
  addresses: ReadonlyArray<EntryAddress>,
  form: { readonly keysOnly?: true },
  signal: AbortSignal | undefined
): Promise<EntriesRead> => {
  const keys = addresses.map(({ key, namespace }) => ({ namespace, key }))
  const request: Request = { method: "POST", path: "/kv/read", body: JSON.stringify({ keys, ...form }) }
  const { items, epoch, lastSeq } = await requests.ask(request, signal, readPage)
  return { items: items.map((item: Entry | null) => item ?? undefined), lastSeq, epoch }
}

/** The calls for entries. */
export const keyValueOf = (requests: Requests): KeyValueClient => ({
  get: async (namespace, key, { ifVersion, known, signal } = {}) => {
    const headers = { ...matching(ifVersion), ...(known && { "if-none-match": `"${known.version}"` }) }
    try {
      return await requests.ask({ path: entryPath(namespace, key), headers }, signal, readEntry)
    } catch (error) {
      if (error instanceof NotFound && error.isEntry) return undefined
      if (error instanceof InvalidResponse && error.status === 304) return known
      throw error
    }
  },

  getMany: (addresses, { signal } = {}) => readMany(requests, addresses, {}, signal),

  getManyKeys: (addresses, { signal } = {}) => readMany(requests, addresses, { keysOnly: true }, signal),

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
  },

  list: (namespace, options = {}) => list(requests, namespace, options, false),

  listKeys: (namespace, options = {}) => list(requests, namespace, options, true),

  namespaces: ({ limit = maxPage, prefix, signal } = {}) =>
    pages(requests, signal, (signal, cursor) =>
      requests.ask({ path: "/kv", query: { prefix, limit, cursor } }, signal, readNamespacePage)
    ),

  backup: (options = {}) => backup(requests, options)
})

/** Makes a client that reads and writes, and does not follow. */
export const makeKeyValueClient = (options: KeyValueOptions): KeyValueClient => keyValueOf(requestsOf(options))
