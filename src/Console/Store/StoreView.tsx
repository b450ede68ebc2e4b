/** The entries of the store: namespaces, their keys, and one entry. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import { canWrite } from "../Service/Connection.ts"
import { go, href, route } from "../Service/Route.ts"
import { Icon } from "../Widgets/Icon.tsx"
import { Banner } from "../Widgets/Messages.tsx"
import { now } from "../Widgets/Now.ts"
import { ListFoot, PaneHead } from "../Widgets/Pane.tsx"
import { useRested } from "../Widgets/Rested.ts"
import { SearchField } from "../Widgets/SearchField.tsx"
import { ago, count, isolated } from "../Widgets/Text.ts"
import { VirtualList } from "../Widgets/VirtualList.tsx"
import { EntryPanel } from "./EntryPanel.tsx"
import { KeyList } from "./KeyList.ts"
import { isListed, namespaces, namespacesProblem, refreshNamespaces, remember } from "./Namespaces.ts"
import { NewEntry } from "./NewEntry.tsx"
import { Transfer } from "./Transfer.tsx"

/** What stands between the parts of a view on a narrow window: which of them is seen. */
const depthOf = (namespace: string | undefined, key: string | undefined): string =>
  key !== undefined ? "item" : namespace !== undefined ? "list" : "groups"

const NamespacePane = ({ present }: { readonly present: string | undefined }) => {
  const [filter, setFilter] = useState("")
  useEffect(() => {
    const ended = new AbortController()
    void refreshNamespaces(ended.signal)
    const timer = setInterval(() => document.hidden || void refreshNamespaces(ended.signal), 10_000)
    return () => {
      clearInterval(timer)
      ended.abort(new DOMException("The list is closed", "AbortError"))
    }
  }, [])
  const wanted = filter.trim()
  const shown = namespaces.value.filter(({ namespace }) => namespace.includes(wanted))
  const isNew = wanted !== "" && !shown.some(({ namespace }) => namespace === wanted)
  return (
    <section class="pane groups" aria-label="Namespaces">
      <form
        class="pane-head"
        onSubmit={event => {
          event.preventDefault()
          if (wanted !== "") go("store", isNew ? wanted : shown[0]!.namespace)
        }}
      >
        <SearchField label="Find or open a namespace" placeholder="Find or open" value={filter} onInput={setFilter} />
      </form>
      <Banner tone="bad" text={namespacesProblem.value} />
      {isNew && (
        <a class="row" href={href("store", wanted)}>
          <span class="row-title">
            Open <code dir="auto">{wanted}</code>
          </span>
        </a>
      )}
      {shown.length === 0 && !isNew ? (
        <p class="empty">
          {isListed.value
            ? `No namespaces yet.${canWrite.value ? " Type a name above to open one, and put an entry into it." : ""}`
            : namespacesProblem.value === "" && "Reading…"}
        </p>
      ) : (
        <VirtualList
          label="Namespaces"
          count={shown.length}
          rowHeight={34}
          keyOf={index => shown[index]?.namespace ?? index}
          row={index => {
            const { count: entries, namespace } = shown[index]!
            return (
              <a
                class="row"
                href={href("store", namespace)}
                aria-current={namespace === present ? "true" : undefined}
                title={namespace}
              >
                <NamespaceName name={namespace} />
                {entries !== undefined && <span class="row-count">{count(entries)}</span>}
              </a>
            )
          }}
        />
      )}
    </section>
  )
}

/** A namespace, of which the tenant is told apart. */
const NamespaceName = ({ name }: { readonly name: string }) => {
  const [, tenant, rest] = /^tenant:([^/]+)(?:\/(.*))?$/.exec(name) ?? []
  return (
    <span class="row-title mono">
      {tenant === undefined ? (
        name
      ) : (
        <>
          <span class="muted">tenant:</span>
          <bdi>{tenant}</bdi>
          {rest !== undefined && (
            <span class="muted">
              /<bdi>{rest}</bdi>
            </span>
          )}
        </>
      )}
    </span>
  )
}

interface KeyPaneProps {
  readonly list: KeyList
  readonly present: string | undefined
  readonly prefix: string
  readonly onPrefix: (prefix: string) => void
}

const KeyPane = ({ list, onPrefix, prefix, present }: KeyPaneProps) => {
  const [dialog, setDialog] = useState<"new" | "transfer">()
  const { isComplete, isLive, isLoading, items, namespace, problem, revision, total } = list
  // What is listed changes with the revision.
  const version = revision.value
  return (
    <section class="pane list" aria-label="Keys">
      <PaneHead title={namespace} isName back={{ href: href("store"), label: "All namespaces" }}>
        <button
          type="button"
          class="button quiet icon-only"
          aria-label="Import and export"
          title="Import and export"
          onClick={() => setDialog("transfer")}
        >
          <Icon name="down" />
        </button>
        {canWrite.value && (
          <button type="button" class="button small primary" onClick={() => setDialog("new")}>
            <Icon name="plus" /> New
          </button>
        )}
      </PaneHead>
      <div class="pane-head">
        <SearchField label="Keys that start with" placeholder="Key prefix" value={prefix} onInput={onPrefix} />
      </div>
      {problem.value !== "" && (
        <p class="banner bad" role="alert">
          {problem.value}{" "}
          <button type="button" class="button small" onClick={() => void list.loadMore()}>
            Try again
          </button>
        </p>
      )}
      {items.length === 0 && (isComplete.value || total === 0) ? (
        <p class="empty">
          {prefix === "" ? "This namespace has no entries." : `No key starts with “${isolated(prefix)}”.`}
        </p>
      ) : (
        <VirtualList
          label={`Keys of ${namespace}`}
          count={items.length}
          rowHeight={48}
          revision={version}
          keyOf={index => items[index]?.key ?? index}
          onEnd={() => void list.loadMore()}
          row={index => {
            const item = items[index]
            if (item === undefined) return null
            return (
              <a
                class="row two"
                href={href("store", namespace, item.key)}
                aria-current={item.key === present ? "true" : undefined}
              >
                <span class="row-title mono" dir="auto">
                  {item.key}
                </span>
                <span class="row-note">
                  v{item.version} · {isolated(item.updatedBy)} · {ago(item.updatedAt, now.value)}
                </span>
              </a>
            )
          }}
        />
      )}
      <ListFoot isLive={isLive.value}>
        {total === undefined
          ? isLoading.value
            ? "Reading…"
            : ""
          : `${count(total)} ${total === 1 ? "entry" : "entries"}`}
        {items.length < (total ?? 0) && `, ${count(items.length)} read`}
      </ListFoot>
      {dialog === "new" && <NewEntry namespace={namespace} onClose={() => setDialog(undefined)} />}
      {dialog === "transfer" && <Transfer list={list} onClose={() => setDialog(undefined)} />}
    </section>
  )
}

const useKeyList = (namespace: string, prefix: string): KeyList => {
  const typed = useRested(prefix)
  const list = useMemo(() => new KeyList(namespace, typed), [namespace, typed])
  useEffect(() => () => list.close(), [list])
  return list
}

const Keys = ({ namespace, present }: { readonly namespace: string; readonly present: string | undefined }) => {
  const [prefix, setPrefix] = useState("")
  const list = useKeyList(namespace, prefix)
  useEffect(() => remember(namespace), [namespace])
  return (
    <>
      <KeyPane list={list} present={present} prefix={prefix} onPrefix={setPrefix} />
      {present === undefined ? (
        <section class="pane item vacant" aria-label="Entry">
          <p class="empty">Choose a key to see its entry.</p>
        </section>
      ) : (
        <EntryPanel key={present} namespace={namespace} entryKey={present} />
      )}
    </>
  )
}

export const StoreView = () => {
  const [, namespace, key] = route.value
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      if (event.key !== "/" || event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement)
        return
      event.preventDefault()
      const fields = box.current?.querySelectorAll<HTMLInputElement>('input[type="search"]') ?? []
      Array.from(fields).at(-1)?.focus()
    }
    document.addEventListener("keydown", focus)
    return () => document.removeEventListener("keydown", focus)
  }, [])
  return (
    <div class="panes" data-depth={depthOf(namespace, key)} ref={box}>
      <h1 class="visually-hidden">Store</h1>
      <NamespacePane present={namespace} />
      {namespace === undefined ? (
        <section class="pane list vacant" aria-label="Keys">
          <p class="empty">Choose a namespace.</p>
        </section>
      ) : (
        <Keys key={namespace} namespace={namespace} present={key} />
      )}
    </div>
  )
}
