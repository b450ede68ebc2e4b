/** What the service holds, and its nodes. */
import type { ComponentChildren } from "preact"
import type { FigureName, NodeActivity, SessionCounts, TenantNumber } from "../../Operations/Activity/Model.ts"
import { href } from "../Service/Navigation.ts"
import { cutMiddle } from "../Widgets/Names.tsx"
import { atLeast, bytes, count, dateAndTime, millis, short, visible } from "../Widgets/Text.ts"
import { activity, chosenNode, histories, holdings, plottedNode } from "./Activity.ts"
import { Dated } from "./Dated.tsx"
import { lastOf } from "./History.ts"

interface TileProps {
  readonly name: string
  readonly value: string
  readonly note?: string
  readonly tone?: "warn" | "bad" | undefined
  readonly link?: string
}

const Tile = ({ link, name, note, tone, value }: TileProps) => (
  <div class="tile" data-tone={tone}>
    <dt>{link === undefined ? name : <a href={link}>{name}</a>}</dt>
    <dd>
      <b>{value}</b>
      {note !== undefined && <span class="muted">{note}</span>}
    </dd>
  </div>
)

/** The last values of a figure, of all nodes that answer. */
const valuesOf = (name: FigureName): ReadonlyArray<number> =>
  (activity.value?.value.nodes ?? [])
    .filter(({ isAnswering }) => isAnswering)
    .map(({ id }) => lastOf(histories.value.get(id), name))
    .filter(Number.isFinite)

const sum = (name: FigureName): number => {
  const values = valuesOf(name)
  return values.length === 0 ? Number.NaN : values.reduce((all, value) => all + value, 0)
}

const sizes = (name: "databaseBytes" | "diskFreeBytes" | "diskSizeBytes"): ReadonlyArray<number> =>
  (activity.value?.value.nodes ?? []).flatMap(node => {
    const size = node[name]
    return size === undefined || size === null ? [] : [size]
  })

/** A share of the disk below which it is nearly full. */
const nearlyFull = 0.1

const Disk = () => {
  const [free, whole] = [Math.min(...sizes("diskFreeBytes")), Math.min(...sizes("diskSizeBytes"))]
  if (!Number.isFinite(free)) return null
  const tone = free < whole * nearlyFull ? "bad" : undefined
  return <Tile name="Free disk" value={bytes(free)} note={`of ${bytes(whole)}`} tone={tone} />
}

const Sessions = ({ failed, isComplete, running, total, waiting }: SessionCounts) => {
  const link = (only: string) => `${href("sessions")}?only=${only}`
  const shown = (value: number) => atLeast(value, isComplete)
  const [warn, bad] = [waiting > 0 ? "warn" : undefined, failed > 0 ? "bad" : undefined] as const
  return (
    <>
      <Tile name="Sessions" value={shown(total)} link={href("sessions")} />
      <Tile name="Running" value={shown(running)} link={link("running")} />
      <Tile name="Waiting" value={shown(waiting)} tone={warn} link={link("waiting")} />
      <Tile name="Failed" value={shown(failed)} tone={bad} link={link("failed")} />
    </>
  )
}

const Held = () => {
  const held = holdings.value?.value
  const shown = (value: number | undefined) => (value === undefined ? "–" : atLeast(value, held?.isComplete !== false))
  return (
    <Dated of={holdings.value} label="What the service holds">
      <dl class="tiles">
        <Tile name="Entries" value={shown(held?.entries)} link={href("store")} />
        <Tile name="Namespaces" value={shown(held?.namespaces)} />
        <Tile name="Tenants" value={shown(held?.tenants)} />
        {held != null && held.sessions !== null && <Sessions {...held.sessions} />}
      </dl>
    </Dated>
  )
}

/** What the nodes do. A credential that is limited to a tenant gets nothing of them. */
const Done = () => {
  const lags = valuesOf("lag")
  if (activity.value?.value.nodes.length === 0) return null
  return (
    <Dated of={activity.value} label="What the service does">
      <dl class="tiles">
        <Tile name="Reads" value={`${short(sum("reads"))}/s`} />
        <Tile name="Writes" value={`${short(sum("writes"))}/s`} />
        <Tile name="Followers" value={short(sum("followers"))} />
        <Tile name="Longest lag" value={lags.length === 0 ? "–" : short(Math.max(...lags))} note="changes" />
        {sizes("databaseBytes").length > 0 && (
          <Tile name="Database" value={bytes(Math.max(...sizes("databaseBytes")))} />
        )}
        <Disk />
      </dl>
    </Dated>
  )
}

/** The numbers of the whole service. */
export const Tiles = () => (
  <div class="overview-panels">
    <Held />
    <Done />
  </div>
)

const Ranking = ({ list, title }: { readonly title: string; readonly list: ReadonlyArray<TenantNumber> }) => (
  <div class="ranking">
    <h3>{title}</h3>
    {list.length === 0 ? (
      <p class="muted">None</p>
    ) : (
      <ol>
        {list.map(({ count: number, tenant }) => (
          <li>
            <a href={`#/store?tenant=${encodeURIComponent(tenant)}`} title={visible(tenant)}>
              <bdi>{visible(cutMiddle(tenant, 28))}</bdi>
            </a>
            <span class="ranking-bar">
              <meter min={0} max={list[0]!.count} value={number} aria-label={`${title} of ${visible(tenant)}`} />
            </span>
            <span class="number">{count(number)}</span>
          </li>
        ))}
      </ol>
    )}
  </div>
)

export const Largest = () => {
  const held = holdings.value?.value
  if (held === undefined || held.largest.entries.length === 0) return null
  const { entries, namespaces, sessions } = held.largest
  return (
    <Dated of={holdings.value}>
      <h2>Largest tenants</h2>
      <div class="rankings">
        <Ranking title="Entries" list={entries} />
        <Ranking title="Namespaces" list={namespaces} />
        {held.sessions !== null && <Ranking title="Sessions" list={sessions} />}
      </div>
    </Dated>
  )
}

const Cell = ({ children }: { readonly children: ComponentChildren }) => <td class="number">{children}</td>

const NodeRow = ({ node: { id, isAnswering, since } }: { readonly node: NodeActivity }) => {
  const history = histories.value.get(id)
  const last = (name: FigureName) => (isAnswering ? lastOf(history, name) : Number.NaN)
  return (
    <tr>
      <th scope="row">
        <button
          type="button"
          class="button small quiet mono"
          title={id}
          aria-pressed={plottedNode.value?.id === id}
          onClick={() => {
            chosenNode.value = id
          }}
        >
          {cutMiddle(id, 16)}
        </button>
      </th>
      <td>
        <span class={`badge ${isAnswering ? "good" : "bad"}`}>{isAnswering ? "answers" : "does not answer"}</span>
      </td>
      <Cell>{short(last("succeeded") + last("refused") + last("failed"))}</Cell>
      <Cell>{short(last("writes"))}</Cell>
      <Cell>{millis(last("p99"))}</Cell>
      <Cell>{millis(last("eventLoop"))}</Cell>
      <Cell>{bytes(last("resident"))}</Cell>
      <td>{since === undefined ? "" : dateAndTime(since)}</td>
    </tr>
  )
}

const columns = ["Requests/s", "Writes/s", "p99", "Event loop", "Memory"]

/** The nodes that share the database; nothing if there is one. */
export const Nodes = () => {
  const { nodes = [], unlisted = 0 } = activity.value?.value ?? {}
  if (nodes.length + unlisted < 2) return null
  return (
    <Dated of={activity.value}>
      <h2>Nodes</h2>
      <div class="table-box" tabIndex={0} role="region" aria-label="Nodes">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col">State</th>
              {columns.map(name => (
                <th scope="col" class="number">
                  {name}
                </th>
              ))}
              <th scope="col">Since</th>
            </tr>
          </thead>
          <tbody>
            {nodes.map(node => (
              <NodeRow key={node.id} node={node} />
            ))}
          </tbody>
        </table>
      </div>
      {unlisted > 0 && (
        <p class="muted pad">
          {count(unlisted)} more share the database. Nodes show their figures to each other with{" "}
          <code>NODE_ADDRESS</code> and <code>NODE_SECRET</code>.
        </p>
      )}
    </Dated>
  )
}
