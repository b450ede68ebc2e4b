/** The namespaces of the store, their tenants, and the namespaces that the user has opened. */
import { computed, signal } from "@preact/signals"
import type { NamespaceCount, TenantCount } from "../../Client/Client.ts"
import { namespacePage, tenantPage } from "../../Client/Reads.ts"
import { requests } from "../Service/Connection.ts"
import { choices, choose } from "../Service/Navigation.ts"
import { names } from "../Service/Page.ts"
import { NameList, textOfEnd } from "./NameList.ts"

export interface ListedNamespace {
  readonly namespace: string
  /** `undefined` for a namespace that the user has opened and that is not known to have entries. */
  readonly count: number | undefined
}

/** The tenant whose namespaces are shown, `""` for namespaces without a tenant, `undefined` for all. The address has it. */
export const chosenTenant = computed(() => choices.value.get("tenant") ?? undefined)

/** Selects a tenant; `undefined` for all namespaces. */
export const chooseTenant = (tenant: string | undefined): void => choose("tenant", tenant)

/** Which namespaces are listed. */
interface NamespacePart {
  /** The namespaces of one tenant, or without a tenant if `""`; all without it. */
  readonly tenant?: string | undefined
  /** The start of their names. */
  readonly prefix: string
}

/** Opens a list of namespaces. It must be closed. */
export const listNamespaces = ({ prefix, tenant }: NamespacePart): NameList<NamespaceCount> =>
  new NameList(
    ({ namespace }) => namespace,
    async (cursor, signal) => {
      const part = tenant === undefined ? {} : tenant === "" ? { withoutTenant: true } : { tenant }
      const page = await namespacePage(requests.value, { prefix, ...part, signal }, cursor)
      return { items: page.namespaces, end: textOfEnd(page), cursor: page.cursor }
    }
  )

/** Opens a list of tenants whose IDs start with a text. It must be closed. */
export const listTenants = (prefix: string): NameList<TenantCount> =>
  new NameList(
    ({ tenant }) => tenant,
    async (cursor, signal) => {
      const page = await tenantPage(requests.value, { prefix, signal }, cursor)
      return { items: page.tenants, end: textOfEnd(page), cursor: page.cursor }
    }
  )

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

/** The namespaces that were opened in this tab, latest first. */
export const remembered = signal<ReadonlyArray<string>>(JSON.parse(sessionStorage.getItem(names.namespaces) ?? "[]"))

/** Adds a namespace to those that were opened in this tab. */
export const remember = (namespace: string): void => {
  if (remembered.peek().includes(namespace)) return
  remembered.value = [namespace, ...remembered.peek()].slice(0, 50)
  sessionStorage.setItem(names.namespaces, JSON.stringify(remembered.peek()))
}
