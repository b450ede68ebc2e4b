/** The first pane of the store: its namespaces, and the tenants that they belong to. */

import { signal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { useMemo, useState } from "preact/hooks"
import { compare } from "../../../Client/KeyOrder.ts"
import { isOfGateway } from "../../../Gateway/Protocol/Namespaces.ts"
import { canWrite } from "../../Service/Connection.ts"
import { ofNamespace } from "../../Service/Copies.ts"
import { go, href } from "../../Service/Navigation.ts"
import { Banner, Form, IconButton } from "../../Widgets/Controls.tsx"
import { type CopyProps, place } from "../../Widgets/CopyMenu.tsx"
import { SearchField, Tabs } from "../../Widgets/Pane.tsx"
import { Splitter } from "../../Widgets/Splitter.tsx"
import { count, counted, isolated, visible } from "../../Widgets/Text.ts"
import { RowList } from "../../Widgets/VirtualList.tsx"
import { closed, NamespaceRow } from "./NamespaceRow.tsx"
import {
  chooseTenant,
  chosenTenant,
  type ListedNamespace,
  listNamespaces,
  listTenants,
  maxNames,
  namespaceOf,
  partsOf,
  remembered,
  type Search,
  titleOf,
  useSearch
} from "./Namespaces.ts"
import { treeRows } from "./NamespaceTree.ts"

interface NamesProps<A> {
  readonly search: Search<A>
  readonly text: string
  readonly onText: (text: string) => void
  readonly onEnter: () => void
  readonly field: { readonly label: string; readonly placeholder: string }
  readonly kind: readonly [one: string, many: string]
  readonly label: string
  readonly names: ReadonlyArray<string>
  /** The number of known names, some of which are shown. Rows that are not names do not count. */
  readonly known: number
  readonly shown: number
  readonly rowHeight: number
  readonly row: (index: number) => ComponentChildren
  readonly copies?: (index: number) => CopyProps | undefined
  readonly presentIndex?: number
  readonly empty: string
  readonly children?: ComponentChildren
}

const Names = <A,>(props: NamesProps<A>) => {
  const { children, empty, field, kind, names, search, text } = props
  const { isRemote, isRead, list, problem } = search
  const all = counted(props.known, ...kind)
  const summary = !list.isComplete.value
    ? `First ${all}. ${list.items.value.length < maxNames ? "Scroll or type" : "Type"} the start of a name to find more.`
    : text === "" || isRemote
      ? all
      : `${count(props.shown)} of ${all}`
  return (
    <>
      <Form class="pane-head" onSubmit={() => props.onEnter()}>
        <SearchField {...field} value={text} onInput={props.onText} />
      </Form>
      <Banner tone="bad" text={problem} />
      {children}
      <RowList
        label={props.label}
        isRead={isRead}
        problem={problem}
        empty={empty}
        count={names.length}
        rowHeight={props.rowHeight}
        presentIndex={props.presentIndex ?? -1}
        keyOf={index => names[index] ?? index}
        onEnd={() => void list.loadMore()}
        onRange={search.show(index => names[index])}
        row={props.row}
        {...(props.copies && { copies: props.copies })}
      />
      <p class="pane-foot" role="status">
        {isRead && summary}
      </p>
    </>
  )
}

const withOpened = (
  listed: ReadonlyArray<ListedNamespace>,
  opened: ReadonlyArray<string>
): ReadonlyArray<ListedNamespace> => {
  const known = new Set(listed.map(({ namespace }) => namespace))
  const others = opened.filter(namespace => !known.has(namespace))
  if (others.length === 0) return listed
  const all = [...listed, ...others.map(namespace => ({ namespace, count: undefined }))]
  return all.sort((a, b) => compare(a.namespace, b.namespace))
}

/** Whether namespaces in which the gateway keeps its sessions are listed. */
const hasOwn = signal(false)

const NamespaceList = ({ onAll, present }: { readonly onAll: () => void; readonly present: string | undefined }) => {
  const [text, setText] = useState("")
  const { value: tenant } = chosenTenant
  const typed = text.trim()
  const wanted = namespaceOf(typed, tenant)
  const search = useSearch(tenant, wanted, prefix => listNamespaces({ tenant, prefix }))
  const opened = remembered.value.filter(name => tenant === undefined || partsOf(name).tenant === tenant)
  const found = withOpened(search.items, opened).filter(
    ({ namespace }) => namespace.startsWith(wanted) || (!search.isRemote && titleOf(namespace, tenant).includes(typed))
  )
  const own = found.filter(({ namespace }) => isOfGateway(namespace) && namespace !== present).length
  const rows = hasOwn.value
    ? found
    : found.filter(({ namespace }) => !isOfGateway(namespace) || namespace === present || namespace === wanted)
  const tree = useMemo(
    () =>
      treeRows(
        rows,
        ({ namespace }) => titleOf(namespace, tenant),
        start => typed === "" && closed.value.has(start) && !titleOf(present ?? "", tenant).startsWith(start)
      ),
    [search.items, opened, hasOwn.value, closed.value, typed, present, tenant]
  )
  const isNew = wanted !== "" && !rows.some(({ namespace }) => namespace === wanted)
  return (
    <Names
      search={search}
      text={text}
      onText={setText}
      onEnter={() => wanted !== "" && go("store", wanted)}
      field={{ label: "Find or open a namespace", placeholder: "Find or open" }}
      kind={["namespace", "namespaces"]}
      label="Namespaces"
      names={tree.map(({ id }) => id)}
      known={search.items.length}
      shown={rows.length}
      rowHeight={34}
      presentIndex={tree.findIndex(({ item }) => item !== undefined && item.namespace === present)}
      copies={index => {
        const item = tree[index]?.item
        return item && { copies: ofNamespace(place(), item.namespace) }
      }}
      row={index =>
        tree[index] && <NamespaceRow row={tree[index]} present={present} tenant={tenant} isSearched={typed !== ""} />
      }
      empty={
        isNew
          ? ""
          : tenant !== undefined
            ? "No namespaces found."
            : `No namespaces yet.${canWrite.value ? " To create one, open it by its name and add an entry." : ""}`
      }
    >
      {tenant !== undefined && (
        <p class="pane-note">
          <span class="grow">
            {tenant === "" ? (
              "Without a tenant"
            ) : (
              <>
                Tenant <b dir="auto">{visible(tenant)}</b>
              </>
            )}
          </span>
          <IconButton icon="close" label="All namespaces" onClick={onAll} />
        </p>
      )}
      {own > 0 && (
        <label class="check pane-note">
          <input
            type="checkbox"
            checked={hasOwn.value}
            onChange={event => {
              hasOwn.value = event.currentTarget.checked
            }}
          />
          {counted(own, "namespace", "namespaces")} of the service
        </label>
      )}
      {isNew && (
        <a class="row" href={href("store", wanted)}>
          <span class="row-title">
            Open or create <code dir="auto">{visible(wanted)}</code>
          </span>
        </a>
      )}
    </Names>
  )
}

const TenantList = ({ onChoose }: { readonly onChoose: (tenant: string) => void }) => {
  const [text, setText] = useState("")
  const typed = text.trim()
  const search = useSearch("tenants", typed, listTenants)
  const rows = search.items.filter(
    ({ tenant }) =>
      typed === "" || (tenant !== "" && (search.isRemote ? tenant.startsWith(typed) : tenant.includes(typed)))
  )
  const named = rows.filter(({ tenant }) => tenant !== "")
  return (
    <Names
      search={search}
      text={text}
      onText={setText}
      onEnter={() => {
        const found = named.find(({ tenant }) => tenant === typed) ?? (named.length === 1 ? named[0] : undefined)
        if (found !== undefined) onChoose(found.tenant)
      }}
      field={{ label: "Find a tenant", placeholder: "Find" }}
      kind={["tenant", "tenants"]}
      label="Tenants"
      names={rows.map(({ tenant }) => tenant)}
      // The row of namespaces without a tenant comes first, if it exists.
      known={search.items.length - (search.items[0]?.tenant === "" ? 1 : 0)}
      shown={named.length}
      rowHeight={48}
      row={index => {
        const { entries, namespaces, tenant } = rows[index]!
        return (
          <button
            type="button"
            class="row two"
            aria-current={tenant === chosenTenant.value ? "true" : undefined}
            title={visible(tenant)}
            onClick={() => onChoose(tenant)}
          >
            {tenant === "" ? (
              <span class="row-title">Without a tenant</span>
            ) : (
              <span class="row-title mono" dir="auto">
                {visible(tenant)}
              </span>
            )}
            <span class="row-note">
              {counted(namespaces, "namespace", "namespaces")} · {counted(entries, "entry", "entries")}
            </span>
          </button>
        )
      }}
      empty={
        typed === ""
          ? "No tenants yet."
          : `No tenant ID ${search.isRemote ? "starts with" : "contains"} “${isolated(typed)}”.`
      }
    />
  )
}

export const NamespacePane = ({ present }: { readonly present: string | undefined }) => {
  const [tab, setTab] = useState<"namespaces" | "tenants">("namespaces")
  const choose = (tenant: string | undefined) => {
    chooseTenant(tenant)
    setTab("namespaces")
  }
  return (
    <section class="pane groups" aria-label="Namespaces">
      <Splitter label="Width of the namespaces" variable="--groups" />
      <Tabs
        label="What is listed"
        titles={{ namespaces: "Namespaces", tenants: "Tenants" }}
        chosen={tab}
        onChoose={setTab}
      >
        {tab === "namespaces" ? (
          <NamespaceList key={chosenTenant.value} present={present} onAll={() => choose(undefined)} />
        ) : (
          <TenantList onChoose={choose} />
        )}
      </Tabs>
    </section>
  )
}
