/** The namespaces of the store and their tenants, and those that the user has opened. */
import { computed, signal } from "@preact/signals"
import type { NamespaceCount, TenantCount } from "../../Client/Client.ts"
import { names } from "../Service/Kept.ts"
import { pause } from "../Service/Pause.ts"
import { choices, choose } from "../Service/Route.ts"
import { type NamespacePart, presentEnd, readNamespaces, readTenants } from "./Entries.ts"
import { NameList } from "./NameList.ts"

export interface ListedNamespace {
  readonly namespace: string
  /** `undefined` for one that the user has opened, and that has no entries as far as is known. */
  readonly count: number | undefined
}

/** The most names that are listed: others are found by their start. */
export const most = 10_000

/** The tenant whose namespaces are shown, `""` for those of none; all of them without it. The address has it. */
export const chosenTenant = computed(() => choices.value.get("tenant") ?? undefined)

export const chooseTenant = (tenant: string | undefined): void => choose("tenant", tenant)

export const listNamespaces = (part: NamespacePart): NameList<NamespaceCount> =>
  new NameList({
    nameOf: ({ namespace }) => namespace,
    read: (cursor, ended) => readNamespaces(part, cursor, ended),
    most
  })

export const listTenants = (prefix: string): NameList<TenantCount> =>
  new NameList({ nameOf: ({ tenant }) => tenant, read: (cursor, ended) => readTenants(prefix, cursor, ended), most })

/** The part of a namespace between `tenant:` and the first `/` or the end, and what follows the slash. */
export const partsOf = (namespace: string): { readonly tenant: string; readonly rest: string | undefined } => {
  const [, tenant = "", rest] = /^tenant:([^/]*)(?:\/(.*))?$/s.exec(namespace) ?? []
  return { tenant, rest }
}

/** What a namespace is called where those of a tenant are shown. */
export const titleOf = (namespace: string, tenant: string | undefined): string =>
  tenant === undefined || tenant === "" ? namespace : partsOf(namespace).rest || namespace

/** The namespace that a text means where those of a tenant are shown: its whole name, or what follows the tenant. */
export const meant = (text: string, tenant: string | undefined): string =>
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

/** The namespaces that were opened in this tab, the latest first. */
export const remembered = signal(kept())

/** Remembers a namespace that was opened by its name, for this tab. */
export const remember = (namespace: string): void => {
  if (remembered.peek().includes(namespace)) return
  remembered.value = [namespace, ...remembered.peek()].slice(0, 50)
  sessionStorage.setItem(names.namespaces, JSON.stringify(remembered.peek()))
}

/** Milliseconds between two looks at the end of the log. */
const pauseMs = 10_000

/**
 * Tells where the log ends, again and again while the page is looked at: whoever shows what a write changes reads it
 * again where the end has moved. A service that is away is asked again.
 */
export const watchEnd = async (ended: AbortSignal, onEnd: (end: string) => void): Promise<void> => {
  for (;;) {
    await pause(pauseMs, ended)
    if (ended.aborted) return
    if (document.hidden) continue
    try {
      onEnd(await presentEnd(ended))
    } catch {
      // The frame of the page says so.
    }
  }
}
