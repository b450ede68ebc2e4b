/**
 * Metrics of the tables: their sizes from the files of the server, their live and dead rows from its statistics, and
 * the time for which vacuum could not remove dead rows.
 */

import { Duration, Effect, Metric, MetricLabel, Schedule, type Scope } from "effect"
import * as MetricTags from "../../../base/Observability/MetricTags.ts"
import { LabelValues } from "../../../base/Observability/MetricTags.ts"
import * as Supervision from "../../../base/Supervision.ts"
import * as Monotonic from "../../../base/Time/Monotonic.ts"
import type { Pool } from "./Pool.ts"
import type { Query, Row } from "./Statement.ts"

const bytes = Metric.gauge("postgres_table_bytes", {
  description: "Size of a table of the store in PostgreSQL with its indexes, in bytes."
})

const tableRows = Metric.gauge("postgres_table_rows", {
  description:
    "Live and dead rows of a table of the store in PostgreSQL, as the statistics of the server estimate them."
})

const heldBack = Metric.gauge("postgres_vacuum_held_back_seconds", {
  description:
    "Seconds for which the oldest transaction or snapshot has kept vacuum from removing dead rows, by its holder."
})

/** More tables than the schema has. */
const maxTables = 20

/** The pause between two measurements. For each, the server queries its file system for every file of up to 1 GiB. */
const interval = Duration.minutes(1)

/** The timeout of a query, in milliseconds. Another session may have locked a table. */
const timeoutMillis = 1000

const sizes = `SELECT relname, pg_total_relation_size(oid) FROM pg_class
    WHERE relnamespace = to_regnamespace('causeway') AND relkind = 'r' ORDER BY oid`

const counts = `SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'causeway' ORDER BY relid`

/**
 * `session`: a transaction in this database; `prepared`: one that was prepared in it; `slot`: a replication slot;
 * `standby`: one with `hot_standby_feedback` and without a slot.
 */
const holders = ["session", "prepared", "slot", "standby"] as const

/**
 * For each kind of holder: the seconds since the start of the oldest transaction, if the role may read it; the oldest
 * transaction id that is held; and the number of ids assigned since then. Every role may read ids. A running `VACUUM`
 * and transactions in other databases hold nothing back.
 */
export const vacuumHolders = `SELECT holder, max(seconds)::float8 AS seconds, (array_agg(xid ORDER BY age(xid) DESC))[1]::text AS xid,
      max(age(xid)) AS age FROM (
      SELECT CASE WHEN datid IS NULL THEN 'standby' ELSE 'session' END AS holder,
        extract(epoch FROM clock_timestamp() - xact_start) AS seconds,
        CASE WHEN backend_xid IS NULL OR age(backend_xmin) > age(backend_xid) THEN backend_xmin ELSE backend_xid END AS xid
      FROM pg_stat_activity
      WHERE (datid IS NULL OR datname = current_database()) AND pid <> pg_backend_pid()
        AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)
        AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = pg_stat_activity.pid)
      UNION ALL
      SELECT 'prepared', extract(epoch FROM clock_timestamp() - prepared), transaction FROM pg_prepared_xacts
      WHERE database = current_database()
      UNION ALL
      SELECT 'slot', NULL, xmin FROM pg_replication_slots WHERE xmin IS NOT NULL
    ) held GROUP BY holder`

/**
 * The time for which each kind of holder has held vacuum back. If the role may not read it, it is the time for which
 * the oldest id has not changed.
 */
export class HeldBack {
  readonly #seen = new Map<string, { readonly xid: string; readonly since: number }>()

  /**
   * @param rows the result of {@link vacuumHolders}
   * @param now monotonic time in milliseconds
   * @returns seconds, for every kind of holder
   */
  update(rows: ReadonlyArray<Row>, now: number): ReadonlyMap<(typeof holders)[number], number> {
    const found = new Map(
      rows.map(([holder, seconds, xid, age]) => [
        String(holder),
        { seconds: Number(seconds ?? 0), xid: String(xid), age: Number(age) }
      ])
    )
    return new Map(
      holders.map(holder => {
        const oldest = found.get(holder)
        // While no id has been assigned since, every new snapshot has the same id, and nothing is held back.
        if (oldest === undefined || oldest.age <= 0) {
          this.#seen.delete(holder)
          return [holder, Math.max(0, oldest?.seconds ?? 0)]
        }
        const before = this.#seen.get(holder)
        const since = before?.xid === oldest.xid ? before.since : now
        this.#seen.set(holder, { xid: oldest.xid, since })
        return [holder, Math.max(0, oldest.seconds, (now - since) / 1000)]
      })
    )
  }
}

/**
 * Measures the tables each minute until the scope closes. If a query fails, its gauges stay unchanged: the size of a
 * locked table cannot be read, while the holders of vacuum can.
 */
export const make = (pool: Pick<Pool, "read">): Effect.Effect<void, never, Scope.Scope> =>
  Effect.flatMap(MetricTags.current, tags => {
    const tables = new LabelValues(maxTables)
    const held = new HeldBack()

    /** Sets a gauge for each table from a column. Tables that share a label are added up. */
    const update = (
      gauge: Metric.Metric.Gauge<number>,
      rows: ReadonlyArray<Row>,
      column: number,
      ...labels: ReadonlyArray<MetricLabel.MetricLabel>
    ): void => {
      const byTable = new Map<string, number>()
      for (const row of rows) {
        const table = tables.of(String(row[0]))
        byTable.set(table, (byTable.get(table) ?? 0) + Number(row[column]))
      }
      for (const [table, value] of byTable) {
        Metric.taggedWithLabels(gauge, [MetricLabel.make("table", table), ...labels]).unsafeUpdate(value, tags)
      }
    }

    const measure = (text: string, decode: Query<void>["decode"]) =>
      pool.read({ text, values: [], decode }, timeoutMillis)
    const measureSizes = measure(sizes, rows => update(bytes, rows, 1))
    const measureRows = measure(counts, rows => {
      update(tableRows, rows, 1, MetricLabel.make("state", "live"))
      update(tableRows, rows, 2, MetricLabel.make("state", "dead"))
    })
    const measureHolders = Effect.flatMap(Monotonic.millis, now =>
      measure(vacuumHolders, rows => {
        for (const [holder, seconds] of held.update(rows, now)) {
          Metric.taggedWithLabels(heldBack, [MetricLabel.make("holder", holder)]).unsafeUpdate(seconds, tags)
        }
      })
    )
    const measurement = Effect.forEach([measureHolders, measureRows, measureSizes], Effect.ignore, { discard: true })
    return Supervision.forkScoped("measuring tables", Effect.repeat(measurement, Schedule.spaced(interval)))
  })
