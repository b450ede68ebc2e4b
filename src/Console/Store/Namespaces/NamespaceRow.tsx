/** A row of the tree of namespaces. */

import { signal } from "@preact/signals"
import { isOfGateway } from "../../../Gateway/Protocol/Namespaces.ts"
import { href } from "../../Service/Navigation.ts"
import { Icon } from "../../Widgets/Controls.tsx"
import { Name } from "../../Widgets/Names.tsx"
import { count, counted, visible } from "../../Widgets/Text.ts"
import { type ListedNamespace, partsOf, titleOf } from "./Namespaces.ts"
import type { TreeRow } from "./NamespaceTree.ts"

/** The groups whose namespaces are not shown, by the start of their names. */
export const closed = signal<ReadonlySet<string>>(new Set())

const toggle = (start: string): void => {
  const next = new Set(closed.peek())
  if (!next.delete(start)) next.add(start)
  closed.value = next
}

interface RowProps {
  readonly row: TreeRow<ListedNamespace>
  readonly present: string | undefined
  readonly tenant: string | undefined
  readonly isSearched: boolean
}

/** A namespace, or a group of namespaces, or both. */
export const NamespaceRow = ({ isSearched, present, row, tenant }: RowProps) => {
  const { depth, isOpen, item, label, size, start } = row
  const indent = { paddingInlineStart: `${4 + depth * 14}px` }
  const isGroup = size > 0
  const name = visible(item?.namespace ?? start)
  // It contains what is seen of the row.
  const spoken = [
    name,
    ...(item !== undefined && isOfGateway(item.namespace) ? ["of the service"] : []),
    ...(item?.count === undefined ? [] : [count(item.count)])
  ].join(" ")
  const link = item !== undefined && (
    <a
      class="row"
      href={href("store", item.namespace)}
      aria-current={item.namespace === present ? "true" : undefined}
      aria-label={depth > 0 ? spoken : undefined}
      title={name}
      style={isGroup ? undefined : indent}
    >
      {depth === 0 ? <NamespaceName name={item.namespace} tenant={tenant} /> : <Label text={label} />}
      {isOfGateway(item.namespace) && (
        <>
          {" "}
          <span class="badge">of the service</span>
        </>
      )}
      {item.count !== undefined && (
        <>
          {" "}
          <span class="row-count">{count(item.count)}</span>
        </>
      )}
    </a>
  )
  if (!isGroup) return link
  const act = isOpen ? "Close" : "Open"
  const chevron = (
    <span class={isOpen ? "chevron open" : "chevron"}>
      <Icon name="right" />
    </span>
  )
  if (item === undefined) {
    return (
      <button
        type="button"
        class="row tree-group"
        style={indent}
        aria-expanded={isOpen}
        aria-label={`${name} ${counted(size, "namespace", "namespaces")}`}
        title={name}
        disabled={isSearched}
        onClick={() => toggle(start)}
      >
        {chevron}
        <Label text={label} />
        {!isOpen && (
          <>
            {" "}
            <span class="row-count">{count(size)}</span>
          </>
        )}
      </button>
    )
  }
  return (
    <div class="tree-both" style={indent}>
      {link}
      <button
        type="button"
        class="button quiet small tree-toggle"
        aria-expanded={isOpen}
        aria-label={`${act} ${start}`}
        disabled={isSearched}
        onClick={() => toggle(start)}
      >
        {chevron}
      </button>
    </div>
  )
}

const Label = ({ text }: { readonly text: string }) => (
  <span class="row-title mono">
    <Name text={text} />
  </span>
)

/** A namespace, with its tenant highlighted. If the tenant is known, it is left out. */
const NamespaceName = ({ name, tenant: known }: { readonly name: string; readonly tenant: string | undefined }) => {
  const { rest, tenant } = partsOf(name)
  const title = titleOf(name, known)
  return (
    <span class="row-title mono">
      {title !== name ? (
        <Name text={title} />
      ) : tenant === "" ? (
        <Name text={name} />
      ) : (
        <>
          <span class="muted">tenant:</span>
          <bdi>{visible(tenant)}</bdi>
          {rest !== undefined && (
            <span class="muted name-rest">
              /<Name text={rest} />
            </span>
          )}
        </>
      )}
    </span>
  )
}
