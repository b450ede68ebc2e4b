/**
 * Metrics of a node's connections to the database, and of the sessions that it owns.
 */
import { Metric, MetricBoundaries, MetricLabel } from "effect"
import * as MetricTags from "../../../base/MetricTags.ts"
import type { PoolUse } from "./Pool.ts"

const connections = Metric.gauge("postgres_connections", {
  description: "Connections to PostgreSQL, by pool and whether they are in use."
})

const waiting = Metric.gauge("postgres_statements_waiting", {
  description: "Statements that wait for a connection to PostgreSQL, by pool."
})

const pools = ["reads", "writes", "lists"] as const

type PoolName = (typeof pools)[number]

const seriesOf = (pool: PoolName) => {
  const label = MetricLabel.make("pool", pool)
  const inState = (state: string) => Metric.taggedWithLabels(connections, [label, MetricLabel.make("state", state)])
  return {
    inUse: inState("in_use"),
    idle: inState("idle"),
    waiting: Metric.taggedWithLabels(waiting, [label])
  }
}

const byPool = { reads: seriesOf("reads"), writes: seriesOf("writes"), lists: seriesOf("lists") }

const listener = Metric.gauge("postgres_listener_connected", {
  description: "1 while notifications of other nodes arrive, 0 while the node polls for their changes."
})

const clockOffset = Metric.gauge("postgres_clock_offset_ms", {
  description: "Milliseconds by which the clock of PostgreSQL is ahead of the node's."
})

const lockWaits = Metric.histogram(
  "postgres_log_lock_wait_ms",
  MetricBoundaries.fromIterable([0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000]),
  "Milliseconds that a group of writes has waited in PostgreSQL for the lock of the log, which other nodes held."
)

/** Records a wait for the lock of the log, in milliseconds. */
export const lockWaited = (millis: number, tags: MetricTags.MetricTags): void => lockWaits.unsafeUpdate(millis, tags)

/** The values of the gauges, which are sampled each second. */
export interface Sample {
  readonly pools: Readonly<Record<PoolName, PoolUse>>
  readonly isListening: boolean
  /** Milliseconds. */
  readonly clockOffset: number
}

/** Updates the gauges. */
export const sample = (found: Sample, tags: MetricTags.MetricTags): void => {
  for (const name of pools) {
    const { idle, inUse, waiting } = found.pools[name]
    byPool[name].idle.unsafeUpdate(idle, tags)
    byPool[name].inUse.unsafeUpdate(inUse, tags)
    byPool[name].waiting.unsafeUpdate(waiting, tags)
  }
  listener.unsafeUpdate(found.isListening ? 1 : 0, tags)
  clockOffset.unsafeUpdate(found.clockOffset, tags)
}

/** Registers the series of a store with the value 0. */
export const register = (tags: MetricTags.MetricTags): void =>
  MetricTags.register([...Object.values(byPool).flatMap(Object.values), listener, clockOffset, lockWaits], tags)

const owned = Metric.gauge("sessions_owned", { description: "Sessions that belong to this node." })

const nodes = Metric.gauge("session_nodes", {
  description: "Nodes that share the session database, this one included, by their leases."
})

const info = Metric.gauge("session_node_info", { description: "1, with the id of this run of the node." })

const lapses = Metric.counter("session_lease_lapses_total", {
  description: "How often the lease of this node had ended before it was renewed.",
  incremental: true
})

const lost = Metric.counter("sessions_lost_total", {
  description: "Sessions of this node that others took, as its lease had ended.",
  incremental: true
})

/** Registers the series of a node. Returns what changes them. */
export const ofNode = (id: string, tags: MetricTags.MetricTags) => {
  MetricTags.register([owned, nodes, lapses, lost], tags)
  Metric.taggedWithLabels(info, [MetricLabel.make("node", id)]).unsafeUpdate(1, tags)
  return {
    renewed: (found: { readonly owned: number; readonly nodes: number }): void => {
      owned.unsafeUpdate(found.owned, tags)
      nodes.unsafeUpdate(found.nodes, tags)
    },
    lapsed: () => lapses.unsafeUpdate(1, tags),
    lost: () => lost.unsafeUpdate(1, tags)
  }
}
