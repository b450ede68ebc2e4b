/**
 * A client of the key-value store, for browsers and Node, without dependencies.
 */

import { detailsOf, InvalidResponse, NotFound } from "./Errors.ts"
import { eventStream } from "./EventStreamTransport.ts"
import { type CursorPage, followLog, followNamespace } from "./Follow.ts"
import { LogReader, longPolling } from "./LogReader.ts"
import type {
  DeleteResult,
  Entry,
  FollowEvent,
  FollowStatus,
  ListPage,
  Operation,
  OperationResult,
  TransportName
} from "./Model.ts"
import { json, type Request, Requests, segment, type Token } from "./Requests.ts"
import { type Clock, iterable, systemClock } from "./Time.ts"
import { type WebSocketConstructor, webSocket } from "./WebSocketTransport.ts"

export * from "./Errors.ts"
export type * from "./Model.ts"
export type { Token } from "./Requests.ts"
export type { Clock } from "./Time.ts"
export type { WebSocketConstructor, WebSocketLike } from "./WebSocketTransport.ts"

/** Where the service is, and who asks. */
export interface ClientOptions {
  /** The address that the API is served under, such as `https://kv.example.com`. */
  readonly baseUrl: string
  /** The credential, or a function that is asked for it at each try. */
  readonly token: Token
  /** What stands before every path; `/api/v1` unless the host of the service has mounted it elsewhere. */
  readonly prefix?: string
  /** Milliseconds that an answer may take; 30,000 without it. */
  readonly timeoutMs?: number
  /** The ways to follow the log, the best one first; all without it. */
  readonly transports?: ReadonlyArray<TransportName>
  /** For hosts that have no WebSocket of their own. */
  readonly WebSocket?: WebSocketConstructor
  readonly fetch?: typeof globalThis.fetch
  /** For tests. */
  readonly clock?: Clock
}

/** What every call takes. */
export interface CallOptions {
  /** Ends the call; it then fails with the reason of the signal. */
  readonly signal?: AbortSignal
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

export interface SetOptions extends CallOptions {
  /** The entry must be at this version; 0 means that it must be absent. */
  readonly ifVersion?: number
  /** Who writes; `api` without it. */
  readonly actor?: string
  /** The entry expires this many milliseconds from now. */
  readonly ttlMs?: number
  /** The entry expires at this time, in epoch milliseconds. */
  readonly expiresAt?: number
}

export interface DeleteOptions extends VersionOptions {
  /** Who deletes; `api` without it. */
  readonly actor?: string
}

export interface BatchOptions extends CallOptions {
  /** Who writes; `api` without it. */
  readonly actor?: string
}

export interface ListOptions extends CallOptions {
  /** Only keys that start with this. */
  readonly prefix?: string
  /** The most entries in a page, 1 to 1000; 1000 without it. */
  readonly limit?: number
}

/** Where to begin: at the entries of a namespace, or at a position of the log. */
export type FollowOptions = CallOptions & {
  /** Is told when changes come in as they happen, and when they do not. */
  readonly onStatus?: (status: FollowStatus) => void
} & (
    | {
        readonly namespace: string
        /** Only keys that start with this. */
        readonly prefix?: string
      }
    | {
        /** Only changes with a greater `seq`. */
        readonly after: number
        /** Only the changes of this tenant. */
        readonly tenant?: string
      }
  )

/** A client of the key-value store. Calls fail with a `ClientError`. */
export interface Client {
  /** The entry, or `undefined` where it is absent. */
  readonly get: (namespace: string, key: string, options?: GetOptions) => Promise<Entry | undefined>
  /** Sets an entry, which is replaced whole, its expiry included. Returns it as stored. */
  readonly set: (namespace: string, key: string, value: unknown, options?: SetOptions) => Promise<Entry>
  /** Deletes an entry. Returns whether there was one. */
  readonly delete: (namespace: string, key: string, options?: DeleteOptions) => Promise<boolean>
  /** Applies all operations in order, or none. Returns what each has done. */
  readonly batch: (
    operations: ReadonlyArray<Operation>,
    options?: BatchOptions
  ) => Promise<ReadonlyArray<OperationResult>>
  /** The entries of a namespace, page by page, each page read as it is asked for. */
  readonly list: (namespace: string, options?: ListOptions) => AsyncIterable<ListPage>
  /**
   * Follows the change log without gap or double, over lost connections and restarts of the service.
   *
   * Begun at a namespace it tells the entries that are there, then what changes; after a `reset` or a `trimmed` it
   * tells the entries anew. Begun at a position it ends with such an event. It reads on as its events are taken.
   */
  readonly follow: (options: FollowOptions) => AsyncIterable<FollowEvent>
}

/** The most entries in a page of a list. */
const maxPage = 1000

/** The header by which an entry must be at a version. */
const matching = (ifVersion: number | undefined): Record<string, string> =>
  ifVersion === undefined ? {} : { "if-match": `"${ifVersion}"` }

const readEntry = json<Entry>(({ key, version }) => typeof key === "string" && Number.isSafeInteger(version))
const readDeleted = json<DeleteResult>(({ deleted }) => typeof deleted === "boolean")
const readResults = json<{ readonly results: ReadonlyArray<OperationResult> }>(({ results }) => Array.isArray(results))
const readItems = json<{ readonly items: ReadonlyArray<Entry> }>(({ items }) => Array.isArray(items))

/** A page of a list, with what its headers tell. */
const readPage = async (response: Response): Promise<CursorPage> => {
  const { items } = await readItems(response)
  const lastSeq = Number(response.headers.get("kv-last-seq") ?? Number.NaN)
  if (Number.isNaN(lastSeq)) throw new InvalidResponse(detailsOf(response, "The header Kv-Last-Seq is missing"))
  const next = /<([^>]*)>; *rel="next"/.exec(response.headers.get("link") ?? "")?.[1]
  const cursor = next === undefined ? undefined : new URL(next, "http://localhost").searchParams.get("cursor")
  return { items, lastSeq, cursor: cursor ?? undefined }
}

/** Makes a client. */
export const makeClient = (options: ClientOptions): Client => {
  const { baseUrl, clock = systemClock, fetch = globalThis.fetch, prefix = "/api/v1", timeoutMs = 30_000 } = options
  const base = new URL(baseUrl).href.replace(/\/+$/, "") + prefix
  const requests = new Requests(base, options.token, fetch.bind(globalThis), timeoutMs, clock)

  const entryPath = (namespace: string, key: string) => `/kv/${segment("namespace", namespace)}/${segment("key", key)}`

  const listPage = (
    namespace: string,
    { limit = maxPage, prefix, signal }: ListOptions,
    cursor: string | undefined
  ): Promise<CursorPage> => {
    const request: Request = { path: `/kv/${segment("namespace", namespace)}`, query: { prefix, limit, cursor } }
    return requests.ask(request, signal, readPage)
  }

  const WebSocket = options.WebSocket ?? globalThis.WebSocket
  const available = {
    webSocket: WebSocket && webSocket(requests, WebSocket),
    serverSentEvents: eventStream(requests),
    longPolling: longPolling(requests)
  }
  const { transports: names = ["webSocket", "serverSentEvents", "longPolling"] } = options
  const transports = names.flatMap(name => available[name] ?? [])

  return {
    get: async (namespace, key, { ifVersion, known, signal } = {}) => {
      const headers = { ...matching(ifVersion), ...(known && { "if-none-match": `"${known.version}"` }) }
      try {
        return await requests.ask({ path: entryPath(namespace, key), headers }, signal, readEntry)
      } catch (error) {
        if (error instanceof NotFound) return undefined
        if (error instanceof InvalidResponse && error.status === 304) return known
        throw error
      }
    },

    set: async (namespace, key, value, { ifVersion, signal, ...written } = {}) => {
      const path = entryPath(namespace, key)
      const headers = ifVersion === 0 ? { "if-none-match": "*" } : matching(ifVersion)
      return requests.ask(
        { method: "PUT", path, headers, body: JSON.stringify({ value, ...written }) },
        signal,
        readEntry
      )
    },

    delete: async (namespace, key, { actor, ifVersion, signal } = {}) => {
      const path = entryPath(namespace, key)
      const request: Request = { method: "DELETE", path, query: { actor }, headers: matching(ifVersion) }
      return (await requests.ask(request, signal, readDeleted)).deleted
    },

    batch: async (operations, { actor, signal } = {}) => {
      const request: Request = { method: "POST", path: "/batch", body: JSON.stringify({ operations, actor }) }
      return (await requests.ask(request, signal, readResults)).results
    },

    list: (namespace, listOptions = {}) =>
      iterable(clock, listOptions.signal, async function* (signal) {
        for (let cursor: string | undefined, isMore = true; isMore; ) {
          const page: CursorPage = await listPage(namespace, { ...listOptions, signal }, cursor)
          yield { items: page.items, lastSeq: page.lastSeq }
          cursor = page.cursor
          isMore = cursor !== undefined
        }
      }),

    follow: followOptions =>
      iterable(clock, followOptions.signal, signal => {
        const reader = new LogReader(requests, transports, signal, followOptions.onStatus)
        if (!("namespace" in followOptions)) return followLog(reader, followOptions.after, followOptions.tenant)
        const { namespace, prefix = "" } = followOptions
        return followNamespace(reader, namespace, prefix, cursor => listPage(namespace, { prefix, signal }, cursor))
      })
  }
}
