/** Entries with their values as text, by the requests of the product's client. */

import { NotFound } from "../../Client/Client.ts"
import { textOf } from "../../Client/Errors.ts"
import { segment } from "../../Client/Requests.ts"
import { compact, elementsOf, membersOf } from "../Json/JsonText.ts"
import { client, requests } from "../Service/Connection.ts"

export interface TextEntry {
  readonly namespace: string
  readonly key: string
  /** JSON text, as it was written. */
  readonly value: string
  readonly version: number
  readonly updatedBy: string
  readonly updatedAt: number
  readonly expiresAt: number | null
}

export interface TextChange {
  readonly seq: number
  readonly op: "set" | "delete"
  readonly namespace: string
  readonly key: string
  /** JSON text; `null` for a delete. */
  readonly value: string
  readonly version: number
  readonly actor: string
  readonly timestamp: number
}

/** Who writes, as the change log will have it, unless the credential says who it is. */
export const actor = "console"

const path = (namespace: string, key: string): string => `/kv/${segment("namespace", namespace)}/${segment("key", key)}`

/** A record as it is sent, of which only `value` stays text. */
const recordOf = (text: string): never =>
  Object.fromEntries(
    [...membersOf(text)].map(([name, value]) => [name, name === "value" ? value : JSON.parse(value)])
  ) as never

const readEntry = async (response: Response, limitBytes: number): Promise<TextEntry> =>
  recordOf(await textOf(response, limitBytes))

/** The entry, or `undefined` where it is absent. */
export const readText = async (
  namespace: string,
  key: string,
  signal?: AbortSignal
): Promise<TextEntry | undefined> => {
  try {
    return await requests.value.ask({ path: path(namespace, key) }, signal, readEntry)
  } catch (error) {
    if (error instanceof NotFound && error.isEntry) return undefined
    throw error
  }
}

/** Sets an entry that is at a version; 0 means that it is absent. Fails with `PreconditionFailed` where it is not. */
export const writeText = (
  namespace: string,
  key: string,
  value: string,
  ifVersion: number,
  expiresAt: number | null
): Promise<TextEntry> => {
  const expiry = expiresAt === null ? "" : `,"expiresAt":${expiresAt}`
  return requests.value.ask(
    {
      method: "PUT",
      path: path(namespace, key),
      headers: ifVersion === 0 ? { "if-none-match": "*" } : { "if-match": `"${ifVersion}"` },
      body: `{"value":${compact(value)},"actor":${JSON.stringify(actor)}${expiry}}`
    },
    undefined,
    readEntry
  )
}

interface ChangePage {
  readonly changes: ReadonlyArray<TextChange>
  readonly lastSeq: number
}

const readChanges = async (response: Response, limitBytes: number): Promise<ChangePage> => {
  const members = membersOf(await textOf(response, limitBytes))
  return {
    changes: elementsOf(members.get("changes") ?? "[]").map(recordOf),
    lastSeq: Number(members.get("lastSeq"))
  }
}

/** A page of the change log. */
export const readLog = (
  query: { readonly after: number; readonly namespace?: string; readonly prefix?: string; readonly limit: number },
  signal?: AbortSignal
): Promise<ChangePage> => requests.value.ask({ path: "/changes", query }, signal, readChanges)

/** The position of the end of the log. */
export const endOfLog = async (signal?: AbortSignal): Promise<number> =>
  (await readLog({ after: Number.MAX_SAFE_INTEGER, limit: 1 }, signal)).lastSeq

/** The changes of one entry that are kept, the oldest first, told as they are found. */
export async function* historyOf(
  namespace: string,
  key: string,
  signal: AbortSignal
): AsyncGenerator<ReadonlyArray<TextChange>> {
  const end = await endOfLog(signal)
  for (let after = 0; after < end; ) {
    const page = await readLog({ after, namespace, prefix: key, limit: 1000 }, signal)
    yield page.changes.filter(change => change.key === key)
    if (page.lastSeq <= after) return
    after = page.lastSeq
  }
}

/** A page of entries with their values as text. */
export const listTexts = (
  namespace: string,
  prefix: string,
  cursor: string | undefined,
  signal: AbortSignal
): Promise<{ readonly items: ReadonlyArray<TextEntry>; readonly cursor: string | undefined }> =>
  requests.value.ask(
    { path: `/kv/${segment("namespace", namespace)}`, query: { prefix, cursor, limit: 1000 } },
    signal,
    async (response, limitBytes) => ({
      items: elementsOf(membersOf(await textOf(response, limitBytes)).get("items") ?? "[]").map(recordOf),
      cursor: cursorOf(response)
    })
  )

/** Where the next page of a list begins; `undefined` on the last one. */
const cursorOf = (response: Response): string | undefined => {
  const next = /<([^>]*)>; *rel="next"/.exec(response.headers.get("link") ?? "")?.[1]
  return next === undefined ? undefined : (new URL(next, location.origin).searchParams.get("cursor") ?? undefined)
}

/** Those of the keys that have an entry. */
export const existingKeys = async (
  namespace: string,
  keys: ReadonlyArray<string>,
  signal: AbortSignal
): Promise<ReadonlyArray<string>> => {
  const sought = [...new Set(keys)]
  const { items } = await client.value.getManyKeys(
    sought.map(key => ({ namespace, key })),
    { signal }
  )
  return sought.filter((_, index) => items[index] !== undefined)
}

/** An entry to be written by an import. */
export interface Imported {
  readonly key: string
  /** JSON text. */
  readonly value: string
  readonly expiresAt: number | null
}

/** Sets entries, all or none; with `isNew` only where none of them exists. */
export const writeAll = (
  namespace: string,
  entries: ReadonlyArray<Imported>,
  isNew: boolean,
  signal: AbortSignal
): Promise<void> => {
  const operations = entries.map(({ expiresAt, key, value }) => {
    const names = `"op":"set","namespace":${JSON.stringify(namespace)},"key":${JSON.stringify(key)}`
    const condition = isNew ? ',"ifVersion":0' : ""
    const expiry = expiresAt === null ? "" : `,"expiresAt":${expiresAt}`
    return `{${names},"value":${value}${condition}${expiry}}`
  })
  const body = `{"operations":[${operations.join(",")}],"actor":${JSON.stringify(actor)}}`
  return requests.value.ask({ method: "POST", path: "/batch", body }, signal, async response => {
    await response.text()
  })
}

export interface Namespace {
  readonly namespace: string
  readonly count: number
}

/** The namespaces that have entries, page by page. */
export async function* namespacePages(signal: AbortSignal): AsyncGenerator<ReadonlyArray<Namespace>> {
  for (let cursor: string | undefined, isMore = true; isMore; ) {
    const page: { namespaces: ReadonlyArray<Namespace>; next: string | undefined } = await requests.value.ask(
      { path: "/kv", query: { limit: 1000, cursor } },
      signal,
      async response => ({ namespaces: (await response.json()).namespaces, next: cursorOf(response) })
    )
    yield page.namespaces
    cursor = page.next
    isMore = cursor !== undefined
  }
}
