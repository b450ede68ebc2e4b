/** The tables of the session database as its writer changes them. */
import type Database from "better-sqlite3"
import { activityOf, bitsOf } from "../../../Gateway/SessionEvents/ActivityBits.ts"
import { maxReceipts } from "../../../Gateway/SessionEvents/Limits.ts"
import type {
  Append,
  Checkpoint,
  History,
  LaunchConfiguration,
  Opened,
  Retention
} from "../../../Gateway/SessionEvents.ts"
import type { CheckpointWrite, EventWrite } from "../../Commit/SessionCommit.ts"
import type { Format, Migration } from "../Database/Connection.ts"
import type { TaskSteps, WriterPlugin } from "../Database/Writer.ts"

/** The tables of the session database: histories, their events, receipts and checkpoints, and configurations of instances. */
const migrations: ReadonlyArray<Migration> = [
  {
    name: "first_release",
    statements: [
      `CREATE TABLE histories (
        id INTEGER PRIMARY KEY,
        session TEXT NOT NULL UNIQUE,
        epoch TEXT NOT NULL,
        head INTEGER NOT NULL,
        trimmed INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        recovery_state TEXT,
        active_at INTEGER NOT NULL DEFAULT 0,
        activity INTEGER NOT NULL DEFAULT 0,
        tenant TEXT GENERATED ALWAYS AS (substr(session, 1, instr(session, '/') - 1)) VIRTUAL
      ) STRICT`,
      // It contains all that lists of sessions need.
      "CREATE INDEX histories_by_activity ON histories (tenant, active_at, session, activity)",
      "CREATE INDEX histories_unfinished ON histories (id) WHERE recovery_state IS NOT NULL",
      `CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        history INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        timestamp INTEGER NOT NULL,
        size INTEGER NOT NULL,
        text TEXT NOT NULL,
        UNIQUE (history, seq)
      ) STRICT`,
      // The names of the parts come before the parts: they can be read without the large texts.
      `CREATE TABLE launch_configurations (
        id INTEGER PRIMARY KEY,
        session TEXT NOT NULL UNIQUE,
        has_environment INTEGER NOT NULL,
        has_deployment INTEGER NOT NULL,
        environment TEXT,
        deployment TEXT
      ) STRICT`,
      `CREATE TABLE receipts (
        id INTEGER PRIMARY KEY,
        history INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        name TEXT NOT NULL,
        digest TEXT NOT NULL,
        turn TEXT,
        UNIQUE (history, name)
      ) STRICT`,
      "CREATE INDEX receipts_by_age ON receipts (history, seq)",
      `CREATE TABLE checkpoints (
        history INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        epoch TEXT NOT NULL,
        text TEXT NOT NULL
      ) STRICT`
    ]
  }
]

/**
 * The database of the events of sessions.
 *
 * It is separate from the key-value store's file. Events are many and short-lived: in the store's file they would
 * enlarge its log and its backups and share its flushes. A store in PostgreSQL has no such file at all. No transaction
 * needs both. The record of a session is in the store, its history here. A session whose history is lost, or
 * the end of it, continues with what is left in another epoch.
 *
 * Its application id is `CWSE`.
 */
export const format: Format = {
  name: "sessions",
  applicationId: 0x43575345,
  migrations
}

/** The outcome of one write of a group. Only `open` and `renewEpoch` return the history. */
export type EventOutcome =
  | { readonly _tag: "Stored"; readonly history: Opened | undefined }
  | { readonly _tag: "OutOfStep"; readonly headSeq: number | null }

interface Row extends History {
  readonly id: number
  readonly bytes: number
}

interface OpenedRow extends Row {
  readonly activity: number
  readonly lastEventAt: number | null
}

interface OldEvent {
  readonly id: number
  readonly history: number
  readonly seq: number
  readonly timestamp: number
  readonly size: number
}

const stored: EventOutcome = { _tag: "Stored", history: undefined }

class Tables {
  private readonly statements: ReturnType<typeof prepare>

  constructor(
    private readonly db: Database.Database,
    private readonly retention: Retention
  ) {
    this.statements = prepare(db)
    // Deleted data is overwritten if its page is written anyway.
    db.pragma("secure_delete = FAST")
  }

  apply(writes: ReadonlyArray<EventWrite | CheckpointWrite>): ReadonlyArray<EventOutcome> {
    return writes.map(write => this.applyOne(write))
  }

  readonly tasks: { readonly trim: TaskSteps<OldEvent> } = {
    trim: {
      due: (before, limit) => {
        const old: Array<OldEvent> = []
        for (const event of this.statements.oldest.iterate(limit)) {
          if (event.timestamp >= before) break
          old.push(event)
        }
        return old
      },
      run: old => {
        for (const { id, history, seq, size } of old) {
          this.statements.dropOne.run(id)
          this.statements.forget.run(seq, size, history)
          this.statements.dropReceipts.run(history, seq)
        }
        return old.length
      }
    }
  }

  /** Each history has separate sequence numbers. */
  lastSeq(): number {
    return 0
  }

  private applyOne(write: EventWrite | CheckpointWrite): EventOutcome {
    switch (write.op) {
      case "open":
        return this.open(write.session, write.epoch, write.at)
      case "append":
        return this.append(write)
      case "renewEpoch":
        this.statements.renewEpoch.run(write.epoch, write.session)
        return this.open(write.session, write.epoch, write.at)
      case "configure":
        this.configure(write.session, write.configuration)
        return stored
      case "saveCheckpoint":
        this.saveCheckpoint(write.session, write.checkpoint)
        return stored
      case "remove":
        this.removeHistory(write.session)
        this.overwriting(() => this.statements.removeConfiguration.run(write.session))
        return stored
    }
  }

  private open(session: string, epoch: string, at: number): EventOutcome {
    this.statements.open.run(session, epoch, at)
    const { activity, bytes, id, ...history } = this.statements.opened.get(session)!
    return { _tag: "Stored", history: { ...history, activity: activityOf(activity) } }
  }

  private saveCheckpoint(session: string, { epoch, seq, text }: Checkpoint): void {
    this.statements.saveCheckpoint.run(seq, text, session, epoch, seq)
  }

  private configure(session: string, { deployment, environment }: LaunchConfiguration): void {
    this.overwriting(() => {
      if (deployment === null && environment === null) return this.statements.removeConfiguration.run(session)
      const [hasEnvironment, hasDeployment] = [environment !== null, deployment !== null].map(Number)
      return this.statements.configure.run(session, hasEnvironment, hasDeployment, environment, deployment)
    })
  }

  /** Runs a statement that overwrites everything that it deletes, because environments may have passwords. */
  private overwriting(statement: () => unknown): void {
    this.db.pragma("secure_delete = ON")
    try {
      statement()
    } finally {
      this.db.pragma("secure_delete = FAST")
    }
  }

  private removeHistory(session: string): void {
    const row = this.statements.find.get(session)
    if (row === undefined) return
    this.statements.removeEvents.run(row.id)
    this.statements.removeReceipts.run(row.id)
    this.statements.removeCheckpoint.run(row.id)
    this.statements.remove.run(row.id)
  }

  private append(append: Append): EventOutcome {
    const { activity, session, epoch, after, timestamp, texts, recoveryState, receipt, revoked } = append
    const row = this.statements.find.get(session)
    if (row === undefined || row.epoch !== epoch || row.headSeq !== after) {
      return { _tag: "OutOfStep", headSeq: row?.headSeq ?? null }
    }
    let { bytes, trimmedSeq } = row
    for (const [index, text] of texts.entries()) {
      const size = Buffer.byteLength(text)
      this.statements.insert.run(row.id, after + 1 + index, timestamp, size, text)
      bytes += size
    }
    const headSeq = after + texts.length
    for (const { seq, size } of this.excess(row.id, trimmedSeq, headSeq, bytes)) {
      trimmedSeq = seq
      bytes -= size
    }
    if (trimmedSeq > row.trimmedSeq) {
      this.statements.drop.run(row.id, row.trimmedSeq, trimmedSeq)
      this.statements.dropReceipts.run(row.id, trimmedSeq)
    }
    if (revoked !== undefined) this.statements.revoke.run(row.id, revoked)
    if (receipt !== undefined) {
      this.statements.keepReceipt.run(row.id, headSeq, receipt.id, receipt.digest, receipt.turnId)
      this.statements.limitReceipts.run(row.id, maxReceipts)
    }
    // The recovery state has an index, and is mostly the same.
    if (recoveryState === row.recoveryState) this.statements.advance.run(headSeq, trimmedSeq, bytes, row.id)
    else this.statements.update.run(headSeq, trimmedSeq, bytes, recoveryState, row.id)
    if (activity !== undefined) this.statements.activate.run(activity.at, bitsOf(activity), row.id)
    return stored
  }

  /** The oldest events of a history that exceed its limits. */
  private excess(id: number, trimmedSeq: number, headSeq: number, bytes: number): ReadonlyArray<OldEvent> {
    const { events: most, bytes: maxBytes } = this.retention
    if (headSeq - trimmedSeq <= most && bytes <= maxBytes) return []
    const excess: Array<OldEvent> = []
    let left = bytes
    for (const event of this.statements.oldestOf.iterate(id, trimmedSeq)) {
      const isTooMany = headSeq - event.seq + 1 > most
      if (event.seq === headSeq || !(isTooMany || left > maxBytes)) break
      excess.push(event)
      left -= event.size
    }
    return excess
  }
}

/** SQL for when the newest event of a history was received. It may be removed already. */
export const lastEventAt = `CASE WHEN head > 0 THEN coalesce(
  (SELECT e.timestamp FROM events e WHERE e.history = histories.id AND e.seq = histories.head), active_at) END`

const prepare = (db: Database.Database) => ({
  open: db.prepare(
    `INSERT INTO histories (session, epoch, head, trimmed, bytes, recovery_state, active_at, activity)
     VALUES (?, ?, 0, 0, 0, NULL, ?, 0) ON CONFLICT DO NOTHING`
  ),
  renewEpoch: db.prepare("UPDATE histories SET epoch = ? WHERE session = ?"),
  find: db.prepare<[string], Row>(
    "SELECT id, epoch, head AS headSeq, trimmed AS trimmedSeq, bytes, recovery_state AS recoveryState FROM histories WHERE session = ?"
  ),
  opened: db.prepare<[string], OpenedRow>(
    `SELECT id, epoch, head AS headSeq, trimmed AS trimmedSeq, bytes, recovery_state AS recoveryState, activity,
       ${lastEventAt} AS lastEventAt
     FROM histories WHERE session = ?`
  ),
  activate: db.prepare("UPDATE histories SET active_at = max(active_at, ?), activity = ? WHERE id = ?"),
  advance: db.prepare("UPDATE histories SET head = ?, trimmed = ?, bytes = ? WHERE id = ?"),
  update: db.prepare("UPDATE histories SET head = ?, trimmed = ?, bytes = ?, recovery_state = ? WHERE id = ?"),
  configure: db.prepare(
    `INSERT INTO launch_configurations (session, has_environment, has_deployment, environment, deployment)
     VALUES (?, ?, ?, ?, ?)
     ON CONFLICT (session) DO UPDATE SET has_environment = excluded.has_environment,
       has_deployment = excluded.has_deployment, environment = excluded.environment, deployment = excluded.deployment`
  ),
  removeConfiguration: db.prepare("DELETE FROM launch_configurations WHERE session = ?"),
  remove: db.prepare("DELETE FROM histories WHERE id = ?"),
  removeEvents: db.prepare("DELETE FROM events WHERE history = ?"),
  insert: db.prepare("INSERT INTO events (history, seq, timestamp, size, text) VALUES (?, ?, ?, ?, ?)"),
  oldestOf: db.prepare<[number, number], OldEvent>(
    "SELECT id, history, seq, timestamp, size FROM events WHERE history = ? AND seq > ? ORDER BY seq"
  ),
  removeReceipts: db.prepare("DELETE FROM receipts WHERE history = ?"),
  removeCheckpoint: db.prepare("DELETE FROM checkpoints WHERE history = ?"),
  saveCheckpoint: db.prepare(
    `INSERT INTO checkpoints (history, seq, epoch, text)
     SELECT id, ?, epoch, ? FROM histories WHERE session = ? AND epoch = ? AND head >= ?
     ON CONFLICT (history) DO UPDATE SET seq = excluded.seq, epoch = excluded.epoch, text = excluded.text
     WHERE checkpoints.epoch <> excluded.epoch OR checkpoints.seq <= excluded.seq`
  ),
  revoke: db.prepare("DELETE FROM receipts WHERE history = ? AND name = ?"),
  keepReceipt: db.prepare(
    `INSERT INTO receipts (history, seq, name, digest, turn) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT (history, name) DO UPDATE SET seq = excluded.seq, digest = excluded.digest, turn = excluded.turn`
  ),
  limitReceipts: db.prepare(
    `DELETE FROM receipts WHERE id IN
     (SELECT id FROM receipts WHERE history = ? ORDER BY seq DESC, id DESC LIMIT -1 OFFSET ?)`
  ),
  dropReceipts: db.prepare("DELETE FROM receipts WHERE history = ? AND seq <= ?"),
  drop: db.prepare("DELETE FROM events WHERE history = ? AND seq > ? AND seq <= ?"),
  oldest: db.prepare<[number], OldEvent>("SELECT id, history, seq, timestamp, size FROM events ORDER BY id LIMIT ?"),
  dropOne: db.prepare("DELETE FROM events WHERE id = ?"),
  // An unreadable page may prevent the removal of events. They are removed after later ones.
  forget: db.prepare("UPDATE histories SET trimmed = max(trimmed, ?), bytes = bytes - ? WHERE id = ?")
})

export const writer = (retention: Retention): WriterPlugin<EventWrite | CheckpointWrite, EventOutcome> => ({
  format,
  tables: db => new Tables(db, retention)
})
