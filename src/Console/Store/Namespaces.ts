/** The namespaces of the store, their tenants, and the namespaces that the user has opened. */
import { computed, signal } from "@preact/signals"
import type { NamespaceCount, TenantCount } from "../../Client/Client.ts"
import { pause } from "../Service/Pause.ts"
import { choices, choose } from "../Service/Route.ts"
import { names } from "../Service/TabStorage.ts"
import { currentEnd, type NamespacePart, readNamespaces, readTenants } from "./Entries.ts"
import { NameList } from "./NameList.ts"

export interface ListedNamespace {
  readonly namespace: string
  /** `undefined` for a namespace that the user has opened and that is not known to have entries. */
  readonly count: number | undefined
}

/** The maximum number of names in a list. The search finds the others. */
export const maxNames = 10_000

/** The tenant whose namespaces are shown, `""` for namespaces without a tenant, `undefined` for all. The address has it. */
export const chosenTenant = computed(() => choices.value.get("tenant") ?? undefined)

/** Selects a tenant; `undefined` for all namespaces. */
export const chooseTenant = (tenant: string | undefined): void => choose("tenant", tenant)

/** Opens a list of namespaces. It must be closed. */
export const listNamespaces = (part: NamespacePart): NameList<NamespaceCount> =>
  new NameList({
    nameOf: ({ namespace }) => namespace,
    read: (cursor, ended) => readNamespaces(part, cursor, ended),
    maxNames
  })

/** Opens a list of tenants whose IDs start with a text. It must be closed. */
export const listTenants = (prefix: string): NameList<TenantCount> =>
  new NameList({
    nameOf: ({ tenant }) => tenant,
    read: (cursor, ended) => readTenants(prefix, cursor, ended),
    maxNames
  })

/** Splits `tenant:<tenant>/<rest>`. The tenant of other names is `""`. */
export const partsOf = (namespace: string): { readonly tenant: string; readonly rest: string | undefined } => {
  const [, tenant = "", rest] = /^tenant:([^/]*)(?:\/(.*))?$/s.exec(namespace) ?? []
  return { tenant, rest }
}

/** The title of a namespace in the list of a tenant. */
export const titleOf = (namespace: string, tenant: string | undefined): string =>
  tenant === undefined || tenant === "" ? namespace : partsOf(namespace).rest || namespace

/** The namespace that a text names in the list of a tenant. The text may be the whole name, or the part after the tenant. */
export const namespaceOf = (text: string, tenant: string | undefined): string =>
  tenant === undefined || tenant === "" || text === "" || partsOf(text).tenant === tenant
    ? text
    : `tenant:${tenant}/${text}`

const kept = (): ReadonlyArray<string> => {
  try {
    return JSON.parse(sessionStorage.getItem(names.namespaces) ?? "[]")
  } catch {
    return []
  }
}

/** The namespaces that were opened in this tab, latest first. */
export const remembered = signal(kept())

/** Adds a namespace to those that were opened in this tab. */
export const remember = (namespace: string): void => {
  if (remembered.peek().includes(namespace)) return
  remembered.value = [namespace, ...remembered.peek()].slice(0, 50)
  sessionStorage.setItem(names.namespaces, JSON.stringify(remembered.peek()))
}

/** Milliseconds between two requests. */
const intervalMs = 10_000

/**
 * Polls the end of the log while the page is visible. If the end has moved, lists may be outdated. Failed requests are
 * repeated.
 */
export const pollLogEnd = async (ended: AbortSignal, onEnd: (end: string) => void): Promise<void> => {
  for (;;) {
    await pause(intervalMs, ended)
    if (ended.aborted) return
    if (document.hidden) continue
    try {
      onEnd(await currentEnd(ended))
    } catch {
      // The frame of the page reports it.
    }
  }
}
