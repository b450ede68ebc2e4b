/** Reads and writes entries whose values are JSON text. */
import { Gone, NotFound } from "../../Client/Client.ts"
import type { EntryLine } from "../../Client/EntryLines.ts"
import { textOf } from "../../Client/Errors.ts"
import { epochOf, segment } from "../../Client/Requests.ts"
import { compact, parse } from "../JsonText.ts"
import { client, drain, requests } from "../Service/Connection.ts"
import { ofEntry } from "../Service/Copies.ts"
import { type CopyProps, place } from "../Widgets/CopyMenu.tsx"
import type { HistoryPage, TextChange, TextEntry, WrittenExpiry } from "./OpenEntry.ts"

/** The actor of writes in the change log, unless the credential names one. */
export const actor = "console"

const path = (namespace: string, key: string): string => `/kv/${segment("namespace", namespace)}/${segment("key", key)}`

const readEntry = async (response: Response, limitBytes: number): Promise<TextEntry> =>
  parse(await textOf(response, limitBytes))

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

/** What can be copied of an entry, and its value as it is when it is copied. */
export const copiesOf = (namespace: string, key: string): CopyProps => ({
  copies: ofEntry(place(), namespace, key),
  value: async () => (await readText(namespace, key))?.value ?? Promise.reject(new Error("This entry does not exist"))
})

/** Sets an entry. Fails with `PreconditionFailed` unless the entry is at the version; version 0 means absent. */
export const writeText = (
  namespace: string,
  key: string,
  value: string,
  ifVersion: number,
  expiry: WrittenExpiry
): Promise<TextEntry> => {
  const members = JSON.stringify({ actor, ...expiry }).slice(1)
  return requests.value.ask(
    {
      method: "PUT",
      path: path(namespace, key),
      headers: ifVersion === 0 ? { "if-none-match": "*" } : { "if-match": `"${ifVersion}"` },
      body: `{"value":${compact(value)},${members}`
    },
    undefined,
    readEntry
  )
}

type ChangePage = { readonly changes: ReadonlyArray<TextChange>; readonly lastSeq: number; readonly epoch: string }

const readChanges = async (response: Response, limitBytes: number): Promise<ChangePage> => {
  const { changes, lastSeq }: Omit<ChangePage, "epoch"> = parse(await textOf(response, limitBytes))
  return { changes, lastSeq, epoch: epochOf(response) }
}

interface LogQuery {
  readonly after: number
  readonly namespace?: string
  readonly prefix?: string
  readonly limit: number
}

/** A page of the change log. Changes after the position that are no longer kept are skipped. */
const readLog = async (query: LogQuery, signal: AbortSignal): Promise<ChangePage> => {
  for (let { after } = query; ; ) {
    try {
      return await requests.value.ask({ path: "/changes", query: { ...query, after } }, signal, readChanges)
    } catch (error) {
      const kept = error instanceof Gone ? (error.trimmedSeq ?? 0) : 0
      // More changes may have been removed since.
      if (kept <= after) throw error
      after = kept
    }
  }
}

/** The changes of one entry that are kept, after one position and up to another, oldest first, in pages. */
export async function* historyOf(
  namespace: string,
  key: string,
  { after, end }: { readonly after: number; readonly end: number },
  signal: AbortSignal
): AsyncGenerator<HistoryPage> {
  for (let from = after; from < end; ) {
    const page = await readLog({ after: from, namespace, prefix: key, limit: 1000 }, signal)
    yield {
      changes: page.changes.filter(change => change.key === key && change.seq <= end),
      after: Math.min(Math.max(from, page.lastSeq), end)
    }
    if (page.lastSeq <= from) return
    from = page.lastSeq
  }
}

export const listTexts = (
  namespace: string,
  prefix: string,
  cursor: string | undefined,
  signal: AbortSignal
): Promise<{ readonly items: ReadonlyArray<TextEntry>; readonly cursor: string | undefined }> =>
  requests.value.ask(
    { path: `/kv/${segment("namespace", namespace)}`, query: { prefix, cursor, limit: 1000 } },
    signal,
    async (response, limitBytes) => {
      const { items }: { readonly items: ReadonlyArray<TextEntry> } = parse(await textOf(response, limitBytes))
      return { items, cursor: cursorOf(response) }
    }
  )

const cursorOf = (response: Response): string | undefined => {
  const next = /<([^>]*)>; *rel="next"/.exec(response.headers.get("link") ?? "")?.[1]
  return next === undefined ? undefined : (new URL(next, location.origin).searchParams.get("cursor") ?? undefined)
}

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

/** Sets entries, all or none. With `isNew` it fails with `PreconditionFailed` if any of them exists. */
export const writeAll = (
  namespace: string,
  entries: ReadonlyArray<Pick<EntryLine<string>, "key" | "value" | "expiresAt">>,
  isNew: boolean,
  signal: AbortSignal
): Promise<void> => {
  const operations = entries.map(({ expiresAt, key, value }) => {
    const names = `"op":"set","namespace":${JSON.stringify(namespace)},"key":${JSON.stringify(key)}`
    const condition = isNew ? ',"ifVersion":0' : ""
    const expiry = expiresAt === undefined ? "" : `,"expiresAt":${expiresAt}`
    return `{${names},"value":${value}${condition}${expiry}}`
  })
  const body = `{"operations":[${operations.join(",")}],"actor":${JSON.stringify(actor)}}`
  return requests.value.ask({ method: "POST", path: "/batch", body }, signal, drain)
}
