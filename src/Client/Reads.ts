/** The calls that read: entries, lists and namespaces. */
import { detailsOf, InvalidResponse, NotFound } from "./Errors.ts"
import type { CursorPage } from "./Follow.ts"
import type { EntriesRead, Entry, EntryAddress, EntryKey, ListPage, NamespacePage, TenantPage } from "./Model.ts"
import { type CallOptions, epochOf, json, type Reader, type Request, type Requests, segment } from "./Requests.ts"
import { iterable } from "./Time.ts"

/** Options of a read. */
export interface GetOptions extends VersionOptions {
  /** The entry of an earlier read. If it has not changed, it is returned without being sent again. */
  readonly known?: Entry
}

/** Options of a list. */
export interface ListOptions extends CallOptions {
  /** Only keys that start with this. */
  readonly prefix?: string
  /** Only this key and later ones. */
  readonly start?: string
  /** Only keys before this one. */
  readonly end?: string
  /** Whether keys are in descending order. */
  readonly reverse?: boolean
  /** Whether the first page has the number of all entries. */
  readonly count?: boolean
  /** The maximum number of entries in a page, 1 to 1000; default 1000. */
  readonly limit?: number
}

/** Options of a list of namespaces. */
export interface NamespacesOptions extends CallOptions {
  /** Only namespaces that start with this. */
  readonly prefix?: string
  /** Only those of this tenant. */
  readonly tenant?: string
  /** Only namespaces without a tenant. It excludes `tenant`. */
  readonly withoutTenant?: boolean
  /** The maximum number of namespaces in a page, 1 to 1000; default 1000. */
  readonly limit?: number
}

/** Options of a list of tenants. */
export interface TenantsOptions extends CallOptions {
  /** Only tenants whose ids start with this. */
  readonly prefix?: string
  /** The maximum number of tenants in a page, 1 to 1000; default 1000. */
  readonly limit?: number
}

/** Reads entries. Calls fail with a `ClientError`. */
export interface Reads {
  /** The entry, or `undefined` if it is absent. */
  readonly get: (namespace: string, key: string, options?: GetOptions) => Promise<Entry | undefined>
  /** Several entries from one snapshot. They may belong to several namespaces. */
  readonly getMany: (addresses: ReadonlyArray<EntryAddress>, options?: CallOptions) => Promise<EntriesRead>
  /** The same without values. */
  readonly getManyKeys: (
    addresses: ReadonlyArray<EntryAddress>,
    options?: CallOptions
  ) => Promise<EntriesRead<EntryKey | undefined>>
  /** The entries of a namespace, page by page. Each page is requested when it is consumed. */
  readonly list: (namespace: string, options?: ListOptions) => AsyncIterable<ListPage>
  /** The same without values. */
  readonly listKeys: (namespace: string, options?: ListOptions) => AsyncIterable<ListPage<EntryKey>>
  /** The namespaces, page by page, with the numbers of their entries. */
  readonly namespaces: (options?: NamespacesOptions) => AsyncIterable<NamespacePage>
  /** The tenants, page by page, with the numbers of their namespaces and entries. */
  readonly tenants: (options?: TenantsOptions) => AsyncIterable<TenantPage>
}

interface Position {
  readonly lastSeq: number
  readonly epoch: string
}

interface Cursor {
  readonly cursor: string | undefined
}

/** The maximum number of entries in a page of a list. */
const maxPage = 1000

/** Reads a page, whose items are in a member of the answer, and its position. */
const pageOf = <Page extends Position>(member: Exclude<keyof Page, keyof Position>): Reader<Page & Cursor> => {
  const read = json<Page>(body => Array.isArray(body[member]))
  return async (response, limitBytes, format) => {
    const count = response.headers.get("kv-count")
    const page = { ...(await read(response, limitBytes, format)), ...positionOf(response) }
    return count === null ? page : { ...page, count: Number(count) }
  }
}

const readPage = pageOf<ListPage>("items")
const readNamespaces = pageOf<NamespacePage>("namespaces")
const readTenants = pageOf<TenantPage>("tenants")

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

/** Reads a page of the namespaces. */
export const namespacePage = (
  requests: Requests,
  { signal, withoutTenant, ...part }: NamespacesOptions,
  cursor: string | undefined
) => {
  const query = { limit: maxPage, ...part, withoutTenant: flag(withoutTenant), cursor }
  return requests.ask({ path: "/kv", query }, signal, readNamespaces)
}

/** Reads a page of the tenants. */
export const tenantPage = (requests: Requests, { signal, ...part }: TenantsOptions, cursor: string | undefined) =>
  requests.ask({ path: "/tenants", query: { limit: maxPage, ...part, cursor } }, signal, readTenants)

const flag = (isOn: boolean | undefined): string | undefined => (isOn ? "1" : undefined)

/** All pages. Each one is requested when it is consumed. */
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

/** The calls that read. */
export const readsOf = (requests: Requests): Reads => ({
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

  list: (namespace, options = {}) => list(requests, namespace, options, false),

  listKeys: (namespace, options = {}) => list(requests, namespace, options, true),

  namespaces: (options = {}) =>
    pages(requests, options.signal, (signal, cursor) => namespacePage(requests, { ...options, signal }, cursor)),

  tenants: (options = {}) =>
    pages(requests, options.signal, (signal, cursor) => tenantPage(requests, { ...options, signal }, cursor))
})

/** Options of a call with a precondition on the version. */
export interface VersionOptions extends CallOptions {
  /** The entry must be at this version. */
  readonly ifVersion?: number
}

/** The path of an entry. */
export const entryPath = (namespace: string, key: string) =>
  `/kv/${segment("namespace", namespace)}/${segment("key", key)}`

/** The header that requires an entry to be at a version. */
export const matching = (ifVersion: number | undefined): Record<string, string> =>
  ifVersion === undefined ? {} : { "if-match": `"${ifVersion}"` }

/** Reads an entry from an answer. */
export const readEntry = json<Entry>(({ key, version }) => typeof key === "string" && Number.isSafeInteger(version))

/** The headers of an answer: the position of the log at which it was read, and the cursor of the next page. */
export const positionOf = (response: Response) => {
  const lastSeq = Number(response.headers.get("kv-last-seq") ?? Number.NaN)
  if (Number.isNaN(lastSeq)) throw new InvalidResponse(detailsOf(response, "The header Kv-Last-Seq is missing"))
  const next = /<([^>]*)>; *rel="next"/.exec(response.headers.get("link") ?? "")?.[1]
  const cursor = next === undefined ? undefined : new URL(next, "http://localhost").searchParams.get("cursor")
  return { lastSeq, epoch: epochOf(response), cursor: cursor ?? undefined }
}
