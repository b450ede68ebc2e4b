/** The namespaces of the store, and those that the user has opened. */
import { signal } from "@preact/signals"
import { MethodNotAllowed, NotFound } from "../../Client/Client.ts"
import { isAbort, messageOf } from "../Service/Failure.ts"
import { names } from "../Service/Kept.ts"
import { endOfLog, namespacePages, readLog } from "./Entries.ts"

export interface ListedNamespace {
  readonly namespace: string
  /** `undefined` where the service does not count them. */
  readonly count: number | undefined
}

export const namespaces = signal<ReadonlyArray<ListedNamespace>>([])

export const namespacesProblem = signal("")

export const isListed = signal(false)

/** The most namespaces that are listed: more are found by their names. */
const most = 10_000

const remembered = (): ReadonlyArray<string> => {
  try {
    return JSON.parse(sessionStorage.getItem(names.namespaces) ?? "[]")
  } catch {
    return []
  }
}

/** Remembers a namespace that was opened by its name, for this tab. */
export const remember = (namespace: string): void => {
  const known = remembered()
  if (!known.includes(namespace)) {
    sessionStorage.setItem(names.namespaces, JSON.stringify([namespace, ...known].slice(0, 50)))
  }
  if (!namespaces.value.some(known => known.namespace === namespace)) {
    namespaces.value = sorted([...namespaces.value, { namespace, count: undefined }])
  }
}

const sorted = (list: ReadonlyArray<ListedNamespace>): ReadonlyArray<ListedNamespace> =>
  [...list].sort((a, b) => (a.namespace < b.namespace ? -1 : 1))

/** Namespaces in the latest changes, for a service or a credential that cannot list them. */
const recent = async (ended: AbortSignal): Promise<ReadonlyArray<ListedNamespace>> => {
  const { changes } = await readLog({ after: Math.max(0, (await endOfLog(ended)) - 1000), limit: 1000 }, ended)
  const names = new Set(changes.map(({ namespace }) => namespace))
  return [...names].map(namespace => ({ namespace, count: undefined }))
}

/** Whether the service lists namespaces; an older one does not. */
let isSupported = true

const found = async (ended: AbortSignal): Promise<ReadonlyArray<ListedNamespace>> => {
  const all: Array<ListedNamespace> = []
  try {
    if (!isSupported) return await recent(ended)
    for await (const page of namespacePages(ended)) {
      all.push(...page)
      if (all.length >= most) break
    }
    return all
  } catch (error) {
    if (!(error instanceof NotFound || error instanceof MethodNotAllowed)) throw error
    isSupported = false
    return await recent(ended)
  }
}

/** Lists the namespaces anew. */
export const refreshNamespaces = async (ended: AbortSignal): Promise<void> => {
  try {
    const listed = await found(ended)
    const names = new Set(listed.map(({ namespace }) => namespace))
    const others = remembered().filter(namespace => !names.has(namespace))
    namespaces.value = sorted([...listed, ...others.map(namespace => ({ namespace, count: undefined }))])
    namespacesProblem.value = ""
    isListed.value = true
  } catch (error) {
    if (!isAbort(error)) namespacesProblem.value = messageOf(error)
  }
}
