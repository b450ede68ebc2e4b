/** The live change feed, with a filter and a pause. */

import { useEffect, useMemo, useState } from "preact/hooks"
import { isOfGateway } from "../../Gateway/Protocol/Namespaces.ts"
import { href } from "../Service/Navigation.ts"
import { copiesOf } from "../Store/Entries.ts"
import { Banner, Button } from "../Widgets/Controls.tsx"
import { Name } from "../Widgets/Names.tsx"
import { ListFoot, SearchField } from "../Widgets/Pane.tsx"
import { count, counted, dateAndTime, shortTime, visible, visibleJson } from "../Widgets/Text.ts"
import { VirtualList } from "../Widgets/VirtualList.tsx"
import { Changes, maxChanges, type SeenChange } from "./Changes.ts"

type Filter = { readonly text: string; readonly op: "all" | SeenChange["op"]; readonly hasOwn: boolean }

const matches = ({ hasOwn, op, text }: Filter, change: SeenChange): boolean =>
  (op === "all" || change.op === op) &&
  (hasOwn || !isOfGateway(change.namespace)) &&
  (text === "" || [change.namespace, change.key, change.actor].some(part => part.includes(text)))

const Row = ({ change }: { readonly change: SeenChange }) => (
  <a class="feed-row" href={href("store", change.namespace, change.key)} title={dateAndTime(change.timestamp)}>
    <span class="feed-time">{shortTime(change.timestamp)}</span>
    <span class={change.op === "set" ? "badge good" : "badge bad"}>{change.op}</span>
    <span class="feed-name mono">
      <span class="feed-namespace muted">
        <Name text={change.namespace} />
        {" /"}
      </span>
      <Name text={change.key} />
      {isOfGateway(change.namespace) && <OfService />}
    </span>
    <span class="feed-value mono muted">{visibleJson(change.preview)}</span>
    <span class="feed-actor">{visible(change.actor)}</span>
    <span class="feed-version">v{change.version}</span>
    <span class="feed-seq">{change.seq}</span>
  </a>
)

/** Marks what the gateway keeps in the store. */
const OfService = () => (
  <span class="badge" title="The gateway keeps its sessions in the store">
    of the service
  </span>
)

/** The titles of the columns. Screen readers do not need them, as rows are read as text. */
const Titles = () => (
  <div class="feed-row feed-titles" aria-hidden="true">
    <span>Time</span>
    <span />
    <span>Namespace and key</span>
    <span>Value</span>
    <span>Actor</span>
    <span class="feed-version">Version</span>
    <span class="feed-seq">Change</span>
  </div>
)

export const Feed = () => {
  const changes = useMemo(() => new Changes(), [])
  useEffect(() => () => changes.close(), [changes])
  const [filter, setFilter] = useState<Filter>({ text: "", op: "all", hasOwn: false })
  const all = changes.shown.value
  const wanted = useMemo(() => all.filter(change => matches(filter, change)).reverse(), [all, filter])
  const own = useMemo(() => all.filter(({ namespace }) => isOfGateway(namespace)).length, [all])
  const isPaused = changes.isPaused.value
  const waiting = changes.waiting.value
  return (
    <div class="feed">
      <h1 class="visually-hidden">Change feed</h1>
      <div class="pane-head">
        <SearchField
          label="Filter by namespace, key or actor"
          placeholder="Namespace, key or actor"
          value={filter.text}
          onInput={text => setFilter({ ...filter, text })}
        />
        <select
          aria-label="Operation"
          value={filter.op}
          onChange={event => setFilter({ ...filter, op: event.currentTarget.value as Filter["op"] })}
        >
          <option value="all">sets and deletes</option>
          <option value="set">sets</option>
          <option value="delete">deletes</option>
        </select>
        <Button
          text={isPaused ? (waiting > 0 ? `Resume, ${count(waiting)} new` : "Resume") : "Pause"}
          icon={isPaused ? "play" : "pause"}
          isPressed={isPaused}
          onClick={() => (isPaused ? changes.resume() : changes.pause())}
        />
        <label class="check">
          <input
            type="checkbox"
            checked={filter.hasOwn}
            onChange={event => setFilter({ ...filter, hasOwn: event.currentTarget.checked })}
          />
          Records of the service
        </label>
        <Button text="Clear" look="quiet" onClick={() => changes.clear()} />
      </div>
      <Banner tone="bad" text={changes.problem.value} />
      {wanted.length === 0 ? (
        <p class="empty">
          {all.length > 0
            ? own === all.length && filter.text === "" && filter.op === "all"
              ? `No changes but ${counted(own, "record", "records")} of the service.`
              : "No changes match the filter."
            : changes.isRead.value
              ? "No changes yet. New ones appear here."
              : changes.problem.value === "" && "Loading…"}
        </p>
      ) : (
        <>
          <Titles />
          <VirtualList
            label="Changes, newest first"
            count={wanted.length}
            rowHeight={36}
            keyOf={index => wanted[index]?.seq ?? index}
            copies={index => wanted[index] && copiesOf(wanted[index].namespace, wanted[index].key)}
            row={index => wanted[index] && <Row change={wanted[index]} />}
          />
        </>
      )}
      <ListFoot isLive={changes.isLive.value}>
        {wanted.length === all.length ? "" : `${count(wanted.length)} of `}
        {count(all.length)} changes
        {own > 0 && !filter.hasOwn && `, ${count(own)} of the service hidden`}
        {all.length === maxChanges && `, the latest ${count(maxChanges)} only`}
      </ListFoot>
    </div>
  )
}
