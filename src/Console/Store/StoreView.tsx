/** The entries of the store: namespaces, their keys, and one entry. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import { isOfGateway } from "../../Gateway/Protocol/Namespaces.ts"
import { canWrite } from "../Service/Connection.ts"
import { ofNamespace } from "../Service/Copies.ts"
import { href, route } from "../Service/Navigation.ts"
import { Button, IconButton } from "../Widgets/Controls.tsx"
import { CopyMenu, place } from "../Widgets/CopyMenu.tsx"
import { now, useDebounced } from "../Widgets/Hooks.ts"
import { cutMiddle, Name } from "../Widgets/Names.tsx"
import { ListFoot, PaneHead, SearchField } from "../Widgets/Pane.tsx"
import { ago, count, counted, isolated, visible } from "../Widgets/Text.ts"
import { VirtualList } from "../Widgets/VirtualList.tsx"
import { copiesOf } from "./Entries.ts"
import { EntryPanel } from "./EntryPanel.tsx"
import { KeyList } from "./KeyList.ts"
import { NamespacePane } from "./Namespaces/NamespacePane.tsx"
import { remember } from "./Namespaces/Namespaces.ts"
import { NewEntry } from "./NewEntry.tsx"
import { Transfer } from "./Transfer.tsx"

const depthOf = (namespace: string | undefined, key: string | undefined): string =>
  key !== undefined ? "item" : namespace !== undefined ? "list" : "groups"

interface KeyPaneProps {
  readonly list: KeyList
  readonly present: string | undefined
  readonly prefix: string
  readonly onPrefix: (prefix: string) => void
}

const KeyPane = ({ list, onPrefix, prefix, present }: KeyPaneProps) => {
  const [dialog, setDialog] = useState<"new" | "transfer">()
  const { isComplete, isLive, isLoading, items, namespace, problem, revision, total } = list
  const isEditable = canWrite.value && !isOfGateway(namespace)
  // The items are changed in place.
  const version = revision.value
  const presentIndex = useMemo(() => items.findIndex(({ key }) => key === present), [version, items.length, present])
  return (
    <section class="pane list" aria-label="Keys">
      <PaneHead title={namespace} isName back={{ href: href("store"), label: "All namespaces" }}>
        <IconButton icon="transfer" label="Import and export" onClick={() => setDialog("transfer")} />
        {isEditable && <Button text="New" look="small primary" icon="plus" onClick={() => setDialog("new")} />}
      </PaneHead>
      <div class="pane-head">
        <SearchField label="Keys that start with" placeholder="Key prefix" value={prefix} onInput={onPrefix} />
        <CopyMenu copies={ofNamespace(place(), namespace)} />
      </div>
      {problem.value !== "" && (
        <p class="banner bad" role="alert">
          {problem.value} <Button text="Try again" look="small" onClick={() => void list.loadMore()} />
        </p>
      )}
      {items.length === 0 && (isComplete.value || total === 0) ? (
        <p class="empty">
          {prefix === "" ? "This namespace has no entries." : `No key starts with “${isolated(prefix)}”.`}
          {isEditable && prefix !== "" && (
            <span class="empty-action">
              <Button
                text={`Create ${isolated(cutMiddle(prefix, 32))}`}
                look="small"
                onClick={() => setDialog("new")}
              />
            </span>
          )}
        </p>
      ) : (
        <VirtualList
          label={`Keys of ${visible(namespace)}`}
          count={items.length}
          rowHeight={48}
          revision={version}
          presentIndex={presentIndex}
          keyOf={index => items[index]?.key ?? index}
          onEnd={() => void list.loadMore()}
          copies={index => items[index] && copiesOf(namespace, items[index].key)}
          row={index => {
            const item = items[index]
            if (item === undefined) return null
            return (
              <a
                class="row two"
                href={href("store", namespace, item.key)}
                aria-current={item.key === present ? "true" : undefined}
              >
                <span class="row-title mono">
                  <Name text={item.key} />
                </span>
                <span class="row-note">
                  v{item.version} · {isolated(item.updatedBy)} · {ago(item.updatedAt, now.value)}
                </span>
              </a>
            )
          }}
        />
      )}
      {present !== undefined && presentIndex === -1 && items.length > 0 && (
        <a class="row two row-apart" href={href("store", namespace, present)} aria-current="true">
          <span class="row-title mono">
            <Name text={present} />
          </span>
          <span class="row-note">
            {isComplete.value ? "Not among these keys" : "Further down, where the list is not loaded yet"}
          </span>
        </a>
      )}
      <ListFoot isLive={isLive.value}>
        {total !== undefined ? counted(total, "entry", "entries") : isLoading.value && "Loading…"}
        {items.length < (total ?? 0) && `, ${count(items.length)} loaded`}
      </ListFoot>
      {dialog === "new" && (
        <NewEntry
          namespace={namespace}
          initialKey={items.length === 0 ? prefix : ""}
          onClose={() => setDialog(undefined)}
        />
      )}
      {dialog === "transfer" && <Transfer list={list} onClose={() => setDialog(undefined)} />}
    </section>
  )
}

const Keys = ({ namespace, present }: { readonly namespace: string; readonly present: string | undefined }) => {
  const [prefix, setPrefix] = useState("")
  const typed = useDebounced(prefix)
  const list = useMemo(() => new KeyList(namespace, typed), [namespace, typed])
  useEffect(() => () => list.close(), [list])
  useEffect(() => remember(namespace), [namespace])
  return (
    <>
      <KeyPane list={list} present={present} prefix={prefix} onPrefix={setPrefix} />
      {present === undefined ? (
        <section class="pane item vacant" aria-label="Entry">
          <p class="empty">Select a key to see its entry.</p>
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
          <p class="empty">Select a namespace.</p>
        </section>
      ) : (
        <Keys key={namespace} namespace={namespace} present={key} />
      )}
    </div>
  )
}
