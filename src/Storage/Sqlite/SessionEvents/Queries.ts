/** The reads of the session database. */
import type Database from "better-sqlite3"
import { activityOf, type BitFilter, bitFilter, positionOf } from "../../../Gateway/SessionEvents/ActivityBits.ts"
import {
  type ActivePosition,
  type ActiveQuery,
  type ActivityCount,
  type Checkpoint,
  type EventPage,
  type History,
  type LaunchConfiguration,
  pageOf,
  type Receipt,
  type StoredEvent,
  type Summary,
  type Unfinished
} from "../../../Gateway/SessionEvents.ts"
import { isUnreadable } from "../Database/DatabaseError.ts"
import type { ReadConnection } from "../Database/ReadConnection.ts"
import { lastEventAt } from "./Tables.ts"

interface SummaryRow extends Pick<Summary, "headSeq" | "lastEventAt"> {
  readonly activity: number
}

interface CountRow extends Pick<ActivityCount, "tenant" | "count"> {
  readonly activity: number
}

interface Row extends History {
  readonly id: number
}

/** The reads of the session database, each from one snapshot. Statements throw `SqliteError`. */
export class Queries {
  private readonly statements: ReturnType<typeof prepare>

  constructor(private readonly connection: ReadConnection) {
    this.statements = connection.prepare(prepare)
  }

  find(session: string): History | undefined {
    const row = this.statements.find.get(session)
    return row === undefined ? undefined : historyOf(row)
  }

  page(session: string, after: number, limit: number): EventPage | undefined {
    return this.connection.inSnapshot(() => {
      const row = this.statements.find.get(session)
      if (row === undefined) return undefined
      // Events up to `trimmedSeq` count as removed, even if an unreadable page has kept them.
      const from = Math.max(after, row.trimmedSeq)
      return { events: pageOf(this.statements.page.iterate(row.id, from, limit)), history: historyOf(row) }
    })
  }

  receipt(session: string, id: string): Receipt | undefined {
    return this.statements.receipt.get(session, id)
  }

  checkpoint(session: string): Checkpoint | undefined {
    return this.statements.checkpoint.get(session)
  }

  configuration(session: string): LaunchConfiguration {
    return this.statements.configuration.get(session) ?? { environment: null, deployment: null }
  }

  summaries(sessions: ReadonlyArray<string>): ReadonlyArray<Summary | null> {
    return this.connection.inSnapshot(() => sessions.map(session => this.summary(session)))
  }

  active(query: ActiveQuery): ReadonlyArray<ActivePosition> {
    const { isBefore, ...position } = positionOf(query)
    const { activeAfter, activeBefore } = this.statements
    const { limit, tenant } = query
    return (isBefore ? activeBefore : activeAfter).all({ tenant, limit, ...position, ...bitFilter(query.filter) })
  }

  counts(limit: number, tenant?: string): ReadonlyArray<ActivityCount> {
    const { counts, countsOfTenant } = this.statements
    const rows = tenant === undefined ? counts.all({ limit }) : countsOfTenant.all({ limit, tenant })
    return rows.map(({ activity, count, tenant }) => ({ tenant, ...activityOf(activity), count }))
  }

  unfinished(): ReadonlyArray<Unfinished> {
    return this.statements.unfinished.all()
  }

  sessions(after: string, limit: number): ReadonlyArray<string> {
    return this.statements.sessions.all({ after, limit })
  }

  /** When the oldest event was created, in epoch milliseconds; `undefined` if there is none. */
  oldest(): number | undefined {
    return this.statements.oldest.get()
  }

  /** `null` if a row is damaged, so that the other sessions are listed. */
  private summary(session: string): Summary | null {
    const { parts, summary } = this.statements
    try {
      const { hasDeployment, hasEnvironment } = parts.get(session) ?? { hasDeployment: 0, hasEnvironment: 0 }
      const { activity, ...ofHistory } = summary.get(session) ?? { headSeq: null, lastEventAt: null, activity: 0 }
      return {
        ...ofHistory,
        ...activityOf(activity),
        hasEnvironment: hasEnvironment === 1,
        hasDeployment: hasDeployment === 1
      }
    } catch (error) {
      if (isUnreadable(error)) return null
      throw error
    }
  }
}

const historyOf = ({ epoch, headSeq, trimmedSeq, recoveryState }: Row): History => ({
  epoch,
  headSeq,
  trimmedSeq,
  recoveryState
})

const active = (db: Database.Database, comparison: "<" | ">", order: "ASC" | "DESC") =>
  db.prepare<[Omit<ActiveQuery, "from" | "filter"> & ActivePosition & BitFilter], ActivePosition>(
    `SELECT active_at AS at, session FROM histories
     WHERE tenant = @tenant AND (active_at, session) ${comparison} (@at, @session) AND activity & @mask = @wanted
     ORDER BY active_at ${order}, session ${order} LIMIT @limit`
  )

const counts = <Parameters extends { readonly limit: number }>(db: Database.Database, condition: string) =>
  db.prepare<[Parameters], CountRow>(
    `SELECT tenant, activity, count(*) AS count
     FROM (SELECT tenant, activity FROM histories ${condition} ORDER BY tenant LIMIT @limit)
     GROUP BY tenant, activity`
  )

const prepare = (db: Database.Database) => ({
  counts: counts<{ readonly limit: number }>(db, ""),
  countsOfTenant: counts<{ readonly limit: number; readonly tenant: string }>(db, "WHERE tenant = @tenant"),
  activeBefore: active(db, "<", "DESC"),
  activeAfter: active(db, ">", "ASC"),
  summary: db.prepare<[string], SummaryRow>(
    `SELECT head AS headSeq, activity, ${lastEventAt} AS lastEventAt FROM histories WHERE session = ?`
  ),
  find: db.prepare<[string], Row>(
    "SELECT id, epoch, head AS headSeq, trimmed AS trimmedSeq, recovery_state AS recoveryState FROM histories WHERE session = ?"
  ),
  page: db.prepare<[number, number, number], StoredEvent>(
    "SELECT seq, text FROM events WHERE history = ? AND seq > ? ORDER BY seq LIMIT ?"
  ),
  receipt: db.prepare<[string, string], Receipt>(
    `SELECT name AS id, digest, turn AS turnId FROM receipts
     WHERE history = (SELECT id FROM histories WHERE session = ?) AND name = ?`
  ),
  checkpoint: db.prepare<[string], Checkpoint>(
    "SELECT epoch, seq, text FROM checkpoints WHERE history = (SELECT id FROM histories WHERE session = ?)"
  ),
  configuration: db.prepare<[string], LaunchConfiguration>(
    "SELECT environment, deployment FROM launch_configurations WHERE session = ?"
  ),
  parts: db.prepare<[string], { readonly hasEnvironment: number; readonly hasDeployment: number }>(
    `SELECT has_environment AS hasEnvironment, has_deployment AS hasDeployment
     FROM launch_configurations WHERE session = ?`
  ),
  unfinished: db.prepare<[], Unfinished>(
    "SELECT session, recovery_state AS recoveryState FROM histories WHERE recovery_state IS NOT NULL"
  ),
  sessions: db
    .prepare<[{ readonly after: string; readonly limit: number }], string>(
      `SELECT session FROM (SELECT session FROM histories WHERE session > @after ORDER BY session LIMIT @limit)
       UNION
       SELECT session FROM (SELECT session FROM launch_configurations WHERE session > @after ORDER BY session LIMIT @limit)
       ORDER BY session LIMIT @limit`
    )
    .pluck(),
  oldest: db.prepare<[], number>("SELECT timestamp FROM events ORDER BY id LIMIT 1").pluck()
})
