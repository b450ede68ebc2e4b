/**
 * Metrics of the tables: their sizes from the files of the server, their live and dead rows from its statistics, and
 * the time for which vacuum could not remove dead rows.
 */
import { Duration, Effect, Metric, MetricLabel, Schedule, type Scope } from "effect"
import * as MetricTags from "../../../MetricTags.ts"
import * as Monotonic from "../../../Monotonic.ts"
import { LabelValues } from "../../../Observability/LabelValues.ts"
import * as Supervision from "../../../Supervision.ts"
import type { Pool } from "./Pool.ts"
import type { Row, Statement } from "./Statement.ts"
import * as VacuumHolders from "./VacuumHolders.ts"

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

const sizes: Statement = {
  name: "table_sizes",
  text: `SELECT relname, pg_total_relation_size(oid) FROM pg_class
    WHERE relnamespace = to_regnamespace('causeway') AND relkind = 'r' ORDER BY oid`
}

const counts: Statement = {
  name: "table_rows",
  text: `SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'causeway' ORDER BY relid`
}

/**
 * Measures the tables each minute until the scope closes. If a query fails, its gauges stay unchanged: the size of a
 * locked table cannot be read, while the holders of vacuum can.
 */
export const make = (pool: Pick<Pool, "read">): Effect.Effect<void, never, Scope.Scope> =>
  Effect.flatMap(MetricTags.current, tags => {
    const tables = new LabelValues(maxTables)
    const held = new VacuumHolders.HeldBack()

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

    const measureSizes = pool.read(sizes, [], rows => update(bytes, rows, 1), timeoutMillis)
    const measureRows = pool.read(
      counts,
      [],
      rows => {
        update(tableRows, rows, 1, MetricLabel.make("state", "live"))
        update(tableRows, rows, 2, MetricLabel.make("state", "dead"))
      },
      timeoutMillis
    )
    const measureHolders = Effect.flatMap(Monotonic.millis, now =>
      pool.read(
        VacuumHolders.statement,
        [],
        rows => {
          for (const [holder, seconds] of held.update(rows, now)) {
            Metric.taggedWithLabels(heldBack, [MetricLabel.make("holder", holder)]).unsafeUpdate(seconds, tags)
          }
        },
        timeoutMillis
      )
    )
    const measurement = Effect.forEach([measureHolders, measureRows, measureSizes], Effect.ignore, { discard: true })
    return Supervision.forkScoped("measuring tables", Effect.repeat(measurement, Schedule.spaced(interval)))
  })
