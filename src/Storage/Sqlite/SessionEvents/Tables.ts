import Database from "better-sqlite3"
import { mostReceipts } from "../../../Gateway/SessionEvents/Limits.ts"
import type { Append, History, LaunchConfiguration, Retention } from "../../../Gateway/SessionEvents.ts"
import { isLocked } from "../Database/DatabaseError.ts"
import {
  Away,
  checkPlace,
  closeForGood,
  identityOf,
  type Obstacle,
  type Place,
  placeOf,
  setAside
} from "../Database/FileIdentity.ts"
import type { Close } from "../Kv/Messages.ts"
import { openForWriting, schemaVersion } from "./Format.ts"
import type { EventOutcome, EventReply, EventRequest, EventWrite } from "./Messages.ts"

interface Row {
  readonly id: number
  readonly epoch: string
  readonly headSeq: number
  readonly trimmedSeq: number
  readonly bytes: number
  readonly bookmark: string | null
}

interface OldEvent {
  readonly id: number
  readonly history: number
  readonly seq: number
  readonly timestamp: number
  readonly size: number
}

/** Errors after which the connection can be used as it is: the transaction is gone, and nothing else. */
const passing = /^SQLITE_(FULL|BUSY|NOMEM|INTERRUPT|TOOBIG|CONSTRAINT|CORRUPT|MISMATCH|RANGE|ERROR)/

const isPassing = (error: unknown): boolean => error instanceof Database.SqliteError && passing.test(error.code)

/**
 * Errors that may lie with one write, or with what is stored of its session, so that others of its group deserve
 * another attempt. They leave nothing in doubt: the transaction was given up, and no flush has failed.
 */
const concernsOneWrite = (error: unknown): boolean =>
  error instanceof Database.SqliteError
    ? /^SQLITE_(FULL|TOOBIG|CONSTRAINT|CORRUPT|MISMATCH|RANGE|ERROR)/.test(error.code)
    : !(error instanceof Away || (error instanceof Error && "syscall" in error))

const historyOf = ({ epoch, headSeq, trimmedSeq, bookmark }: Row): History => ({
  epoch,
  headSeq,
  trimmedSeq,
  bookmark
})

/** Everything with prepared statements on one connection. Statements throw `SqliteError`; nothing is caught here. */
class Connection {
  readonly place: Place
  private readonly db: Database.Database
  private readonly statements: ReturnType<typeof prepare>

  constructor(
    private readonly file: string,
    private readonly retention: Retention
  ) {
    this.db = openForWriting(file)
    this.place = placeOf(file)
    this.statements = prepare(this.db)
  }

  /** Throws where the open files are no longer those that bear their names. */
  checkPlace(): void {
    checkPlace(this.file, this.place)
  }

  transaction<A>(body: () => A): A {
    this.statements.begin.run()
    let result: A
    try {
      result = body()
      this.statements.commit.run()
    } catch (error) {
      if (this.db.inTransaction) this.statements.rollback.run()
      throw error
    }
    // A commit into a file that has lost its name in the meantime must not be acknowledged.
    this.checkPlace()
    return result
  }

  /**
   * Throws where the file cannot be written: SQLite opens one that is read-only all the same, and lets transactions
   * begin. Nothing is written, so that a full disk is no obstacle.
   */
  tryWriting(): void {
    this.statements.begin.run()
    try {
      this.db.pragma(`user_version = ${schemaVersion}`)
    } finally {
      this.statements.rollback.run()
    }
  }

  apply(write: EventWrite): EventOutcome {
    switch (write.op) {
      case "open": {
        this.statements.open.run(write.session, write.epoch)
        return { _tag: "Stored", history: historyOf(this.statements.find.get(write.session)!) }
      }
      case "append":
        return this.append(write)
      case "restart":
        this.removeHistory(write.session)
        return this.apply({ op: "open", session: write.session, epoch: write.epoch })
      case "configure":
        this.configure(write.session, write.configuration)
        return { _tag: "Stored", history: undefined }
      case "remove":
        this.removeHistory(write.session)
        this.statements.removeConfiguration.run(write.session)
        return { _tag: "Stored", history: undefined }
    }
  }

  private configure(session: string, { deployment, environment }: LaunchConfiguration): void {
    if (deployment === null && environment === null) this.statements.removeConfiguration.run(session)
    else {
      const [hasEnvironment, hasDeployment] = [environment !== null, deployment !== null].map(Number)
      this.statements.configure.run(session, hasEnvironment, hasDeployment, environment, deployment)
    }
  }

  private removeHistory(session: string): void {
    const row = this.statements.find.get(session)
    if (row === undefined) return
    this.statements.removeEvents.run(row.id)
    this.statements.removeReceipts.run(row.id)
    this.statements.remove.run(row.id)
  }

  private append(append: Append): EventOutcome {
    const { session, epoch, after, timestamp, texts, bookmark, receipt, revoked } = append
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
      this.statements.drop.run(row.id, trimmedSeq)
      this.statements.dropReceipts.run(row.id, trimmedSeq)
    }
    if (revoked !== undefined) this.statements.revoke.run(row.id, revoked)
    if (receipt !== undefined) {
      this.statements.keepReceipt.run(row.id, headSeq, receipt.id, receipt.digest, receipt.turnId)
      this.statements.limitReceipts.run(row.id, mostReceipts)
    }
    this.statements.update.run(headSeq, trimmedSeq, bytes, bookmark, row.id)
    return { _tag: "Stored", history: undefined }
  }

  /** The oldest events of a history that are more than may be kept. */
  private excess(id: number, trimmedSeq: number, headSeq: number, bytes: number): ReadonlyArray<OldEvent> {
    const { events: most, bytes: mostBytes } = this.retention
    if (headSeq - trimmedSeq <= most && bytes <= mostBytes) return []
    const excess: Array<OldEvent> = []
    let left = bytes
    for (const event of this.statements.oldestOf.iterate(id)) {
      const isTooMany = headSeq - event.seq + 1 > most
      if (event.seq === headSeq || !(isTooMany || left > mostBytes)) break
      excess.push(event)
      left -= event.size
    }
    return excess
  }

  /** Removes what is from before a time among the oldest events; tells how many. */
  trim(before: number, limit: number): number {
    const old: Array<OldEvent> = []
    for (const event of this.statements.oldest.iterate(limit)) {
      if (event.timestamp >= before) break
      old.push(event)
    }
    for (const { id, history, seq, size } of old) {
      this.statements.dropOne.run(id)
      this.statements.forget.run(seq, size, history)
      this.statements.dropReceipts.run(history, seq)
    }
    return old.length
  }

  /** Copies the write-ahead log into the file and flushes that; tells whether it could. */
  checkpoint(): boolean {
    const [row] = this.db.pragma("wal_checkpoint(TRUNCATE)") as ReadonlyArray<{ readonly busy: number }>
    return row?.busy === 0
  }

  close(): void {
    this.db.close()
  }

  /** As `close`, when nobody else of this process has the file open. */
  closeForGood(): void {
    closeForGood(this.db)
  }
}

/**
 * Makes the transactions of the histories, synchronously, one request after the other.
 *
 * After an error for which SQLite or the kernel cannot vouch, such as a failed flush, the file is opened anew, and a
 * checkpoint must go through before anything is acknowledged, so that no later commit rests on what may be lost.
 */
export class Writer {
  private connection: Connection | undefined
  /** Which file it is, also while it is not open. */
  private identity: string | undefined
  private isSuspect = false

  constructor(
    private readonly file: string,
    private readonly retention: Retention
  ) {}

  /** Serves a request. It never throws, and what it does not answer with `Done` is not acknowledged. */
  handle(request: EventRequest | Close): EventReply {
    try {
      if (request.kind === "close") {
        if (this.isSuspect) this.connection?.close()
        else this.connection?.closeForGood()
        this.connection = undefined
        return { _tag: "Done", outcomes: [], count: 0 }
      }
      const connection = request.kind === "reopen" ? this.reopen() : this.ready()
      switch (request.kind) {
        case "commit":
          return { _tag: "Done", outcomes: this.commit(connection, request.writes), count: 0 }
        case "trim": {
          const count = connection.transaction(() => connection.trim(request.before, request.limit))
          return { _tag: "Done", outcomes: [], count }
        }
        case "probe":
          connection.tryWriting()
          return { _tag: "Done", outcomes: [], count: 0 }
        case "reopen":
          return { _tag: "Done", outcomes: [], count: 0 }
      }
    } catch (error) {
      if (!(error instanceof Away || isPassing(error))) this.isSuspect = true
      return { _tag: "Away", obstacle: obstacleOf(error), reason: describe(error) }
    }
  }

  private commit(connection: Connection, writes: ReadonlyArray<EventWrite>): ReadonlyArray<EventOutcome> {
    try {
      return connection.transaction(() => writes.map(write => connection.apply(write)))
    } catch (error) {
      if (!concernsOneWrite(error) || writes.length === 1) throw error
      return this.commitEach(connection, writes)
    }
  }

  /** One transaction a write, after one of them has spoilt that of the group. */
  private commitEach(connection: Connection, writes: ReadonlyArray<EventWrite>): ReadonlyArray<EventOutcome> {
    let lost: string | undefined
    return writes.map((write): EventOutcome => {
      if (lost !== undefined) return { _tag: "Failed", reason: lost }
      try {
        return connection.transaction(() => connection.apply(write))
      } catch (error) {
        const reason = describe(error)
        if (!concernsOneWrite(error)) {
          lost = reason
          if (!(error instanceof Away || isPassing(error))) this.isSuspect = true
        }
        return { _tag: "Failed", reason }
      }
    })
  }

  private ready(): Connection {
    this.connection?.checkPlace()
    if (this.connection !== undefined && !this.isSuspect) return this.connection
    this.connection?.close()
    this.connection = undefined
    return this.open()
  }

  /** Opens the file that was open before, and no other: readers may still have it. */
  private open(): Connection {
    const identity = identityOf(this.file)
    if (identity === undefined) throw new Away(`${this.file} is missing`, "missing")
    if (this.identity !== undefined && this.identity !== identity) {
      throw new Away(`another file stands in the place of ${this.file}`, "replaced")
    }
    const fresh = new Connection(this.file, this.retention)
    this.connection = fresh
    this.identity = fresh.place.databaseId
    if (this.isSuspect && !fresh.checkpoint()) throw new Away("a checkpoint waits for a reader", "locked")
    this.isSuspect = false
    return fresh
  }

  /** Opens what now stands in the file's place, after readers have let go of the old one. */
  private reopen(): Connection {
    if (identityOf(this.file) === undefined) throw new Away(`${this.file} is missing`, "missing")
    const old = this.connection
    this.connection = undefined
    this.identity = undefined
    this.isSuspect = true
    if (old !== undefined) {
      try {
        // What is only in the log goes into the old file, wherever that lies by now.
        old.checkpoint()
      } catch {
        // The old file is out of reach; the new one counts.
      }
      old.close()
      setAside(this.file, old.place)
    }
    return this.open()
  }
}

const obstacleOf = (error: unknown): Obstacle => {
  if (error instanceof Away) return error.obstacle
  return isLocked(error) ? "locked" : "failed"
}

const describe = (error: unknown): string =>
  error instanceof Away
    ? error.message
    : error instanceof Database.SqliteError
      ? `${error.code}: ${error.message}`
      : String(error)

const prepare = (db: Database.Database) => ({
  begin: db.prepare("BEGIN IMMEDIATE"),
  commit: db.prepare("COMMIT"),
  rollback: db.prepare("ROLLBACK"),
  open: db.prepare(
    "INSERT INTO histories (session, epoch, head, trimmed, bytes, bookmark) VALUES (?, ?, 0, 0, 0, NULL) ON CONFLICT DO NOTHING"
  ),
  find: db.prepare<[string], Row>(
    "SELECT id, epoch, head AS headSeq, trimmed AS trimmedSeq, bytes, bookmark FROM histories WHERE session = ?"
  ),
  update: db.prepare("UPDATE histories SET head = ?, trimmed = ?, bytes = ?, bookmark = ? WHERE id = ?"),
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
  oldestOf: db.prepare<[number], OldEvent>(
    "SELECT id, history, seq, timestamp, size FROM events WHERE history = ? ORDER BY seq"
  ),
  removeReceipts: db.prepare("DELETE FROM receipts WHERE history = ?"),
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
  drop: db.prepare("DELETE FROM events WHERE history = ? AND seq <= ?"),
  oldest: db.prepare<[number], OldEvent>("SELECT id, history, seq, timestamp, size FROM events ORDER BY id LIMIT ?"),
  dropOne: db.prepare("DELETE FROM events WHERE id = ?"),
  forget: db.prepare("UPDATE histories SET trimmed = ?, bytes = bytes - ? WHERE id = ?")
})
