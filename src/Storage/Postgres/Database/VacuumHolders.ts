/**
 * What prevents vacuum from removing dead rows of the tables: the oldest snapshots and transactions, by their holders.
 */
import type { Row, Statement } from "./Statement.ts"

/**
 * `session`: a transaction in this database; `prepared`: one that was prepared in it; `slot`: a replication slot;
 * `standby`: one with `hot_standby_feedback` and without a slot.
 */
export const holders = ["session", "prepared", "slot", "standby"] as const

/** What keeps `VACUUM` from removing dead rows. */
export type Holder = (typeof holders)[number]

/**
 * For each kind of holder: the seconds since the start of the oldest transaction, if the role may read it; the oldest
 * transaction id that is held; and the number of ids assigned since then. Every role may read ids. A running `VACUUM`
 * and transactions in other databases hold nothing back.
 */
export const statement: Statement = {
  name: "vacuum_holders",
  text: `SELECT holder, max(seconds)::float8 AS seconds, (array_agg(xid ORDER BY age(xid) DESC))[1]::text AS xid,
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
}

/**
 * The time for which each kind of holder has held vacuum back. If the role may not read it, it is the time for which
 * the oldest id has not changed.
 */
export class HeldBack {
  readonly #seen = new Map<string, { readonly xid: string; readonly since: number }>()

  /**
   * @param rows the result of {@link statement}
   * @param now monotonic time in milliseconds
   * @returns seconds, for every kind of holder
   */
  update(rows: ReadonlyArray<Row>, now: number): ReadonlyMap<Holder, number> {
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
