import { dirname } from "node:path"
import Database from "better-sqlite3"
import * as Either from "effect/Either"
import { expiryActor } from "../../../Kv/Names.ts"
import { plan, type Step, type Write } from "../../../Kv/Write.ts"
import type { Outcome, Reply, Request } from "../Kv/Messages.ts"
import { type DueEntry, type RowState, WriterConnection } from "../Kv/Tables.ts"
import * as DatabaseError from "./DatabaseError.ts"
import { isLocked, isOfDisk, isUnreadable } from "./DatabaseError.ts"
import { hasRoom } from "./Directory.ts"
import { Away, identityOf, type Obstacle, setAside } from "./FileIdentity.ts"

/** Errors after which the connection can be used as it is: the transaction is gone, and nothing else. */
const passing = new Set(["SQLITE_FULL", "SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_NOMEM", "SQLITE_INTERRUPT"])

/** Whether an error is neither the database's nor the system's, and so this code's own. */
const isDefect = (error: unknown): boolean =>
  !(error instanceof Away || error instanceof Database.SqliteError || (error instanceof Error && "syscall" in error))

/** Whether a file could not be opened or made, for whatever reason. */
const isUnopened = (error: unknown): boolean =>
  error instanceof Database.SqliteError && error.code.startsWith("SQLITE_CANTOPEN")

/**
 * Errors that may lie with what one write holds or with the pages that it needs, so that the others of its group deserve
 * another attempt.
 */
const concernsOneWrite = (error: unknown): boolean =>
  isDefect(error) ||
  isUnreadable(error) ||
  (error instanceof Database.SqliteError && /^SQLITE_(FULL|TOOBIG|CONSTRAINT|MISMATCH|RANGE|ERROR)/.test(error.code))

const obstacleOf = (error: unknown, file: string): Obstacle => {
  if (error instanceof Away) return error.obstacle
  if (isDefect(error)) return "defect"
  if (isLocked(error)) return "locked"
  if (isUnopened(error) && !hasRoom(dirname(file))) return "disk"
  return isOfDisk(error) ? "disk" : "failed"
}

const describe = (error: unknown): string => {
  if (error instanceof Away) return error.message
  return isDefect(error) && error instanceof Error ? (error.stack ?? String(error)) : DatabaseError.describe(error)
}

/**
 * Makes the transactions of a store, synchronously, one request after the other.
 *
 * It opens the database with the first request. After an error for which SQLite or the kernel cannot vouch, such as a
 * failed flush, it opens it anew, and a checkpoint must have gone through before anything is acknowledged: that
 * writes and flushes the database file from what is known to be good, and leaves an empty write-ahead log, so that no
 * later commit rests on frames that the kernel may have dropped.
 */
export class Writer {
  private connection: WriterConnection | undefined
  /** Which file is the store, also while it is not open. */
  private identity: string | undefined
  private isSuspect = false

  constructor(private readonly file: string) {}

  /** Serves a request. It never throws, and what it does not answer with `Done` is not acknowledged. */
  handle(request: Request): Reply {
    try {
      if (request.kind === "close") return this.close()
      const connection = request.kind === "reopen" ? this.reopen() : this.ready()
      return this.serve(connection, request)
    } catch (error) {
      this.recoverFrom(error)
      return { _tag: "Away", obstacle: obstacleOf(error, this.file), reason: describe(error) }
    }
  }

  private serve(connection: WriterConnection, request: Request): Reply {
    switch (request.kind) {
      case "commit":
        return done(connection, { outcomes: this.commit(connection, request.writes, request.now) })
      case "expire":
        return done(connection, { count: this.expire(connection, request.now, request.limit) })
      case "trim":
        return done(connection, {
          count: this.transaction(connection, () => connection.trim(request.before, request.limit))
        })
      case "checkpoint":
        connection.checkpoint()
        return done(connection, {})
      case "probe":
        // A write needs a lock that reads do without.
        this.transaction(connection, () => undefined)
        return done(connection, {})
      default:
        return done(connection, {})
    }
  }

  private commit(connection: WriterConnection, writes: ReadonlyArray<Write>, now: number): ReadonlyArray<Outcome> {
    try {
      return this.commitTogether(connection, writes, now)
    } catch (error) {
      if (!concernsOneWrite(error) || (writes.length === 1 && !isDefect(error))) throw error
      return this.commitEach(connection, writes, now)
    }
  }

  private commitTogether(
    connection: WriterConnection,
    writes: ReadonlyArray<Write>,
    now: number
  ): ReadonlyArray<Outcome> {
    return this.transaction(connection, () => {
      const tail = connection.tail()
      const timestamp = Math.max(now, tail.timestamp)
      let seq = tail.seq
      return writes.map(write => {
        const planned = plan(write, (namespace, key) => connection.stateOf(namespace, key), now)
        if (Either.isLeft(planned)) return planned.left
        for (const step of planned.right.steps) connection.apply(step, ++seq, timestamp)
        return { _tag: "Committed", committed: { results: planned.right.results, timestamp, lastSeq: seq } }
      })
    })
  }

  /** One transaction a write, after one of them has spoilt that of the group. */
  private commitEach(connection: WriterConnection, writes: ReadonlyArray<Write>, now: number): ReadonlyArray<Outcome> {
    let lost: string | undefined
    return writes.flatMap((write): ReadonlyArray<Outcome> => {
      if (lost !== undefined) return [{ _tag: "Failed", reason: lost }]
      try {
        return this.commitTogether(connection, [write], now)
      } catch (error) {
        this.recoverFrom(error)
        if (!concernsOneWrite(error)) lost = describe(error)
        return [{ _tag: isDefect(error) ? "Defect" : "Failed", reason: describe(error) }]
      }
    })
  }

  private expire(connection: WriterConnection, now: number, limit: number): number {
    const due = connection.due(now, limit)
    if (due.length === 0) return 0
    const { count, failure } = this.expireAll(connection, due, now)
    if (count === 0 && failure !== undefined) throw failure
    return count
  }

  /** Deletes entries in one transaction, or in halves where one of them spoils it. */
  private expireAll(
    connection: WriterConnection,
    due: ReadonlyArray<DueEntry>,
    now: number
  ): { readonly count: number; readonly failure?: unknown } {
    try {
      return { count: this.expireTogether(connection, due, now) }
    } catch (error) {
      if (!isUnreadable(error)) throw error
      this.recoverFrom(error)
      if (due.length === 1) return { count: 0, failure: error }
      const half = due.length >> 1
      const first = this.expireAll(connection, due.slice(0, half), now)
      const second = this.expireAll(connection, due.slice(half), now)
      return { count: first.count + second.count, failure: error }
    }
  }

  private expireTogether(connection: WriterConnection, due: ReadonlyArray<DueEntry>, now: number): number {
    return this.transaction(connection, () => {
      const tail = connection.tail()
      const timestamp = Math.max(now, tail.timestamp)
      for (const [index, { namespace, key, version }] of due.entries()) {
        const step: Step<RowState> = { op: "delete", namespace, key, version: version + 1, actor: expiryActor }
        connection.apply(step, tail.seq + 1 + index, timestamp)
      }
      return due.length
    })
  }

  private transaction<A>(connection: WriterConnection, body: () => A): A {
    let result: A
    try {
      connection.begin()
      result = body()
      connection.commit()
    } catch (error) {
      connection.rollback()
      throw error
    }
    return result
  }

  /** The connection, fit for a transaction. */
  private ready(): WriterConnection {
    const connection = this.connection ?? this.open()
    connection.checkPlace()
    if (!this.isSuspect) return connection
    this.connection = undefined
    connection.close()
    const fresh = this.open()
    if (!fresh.checkpoint()) throw new Away("a checkpoint waits for readers of older snapshots", "locked")
    this.isSuspect = false
    return fresh
  }

  /** Opens the file that was open before, and no other: readers may still have it. */
  private open(): WriterConnection {
    const identity = identityOf(this.file)
    if (identity === undefined) throw new Away(`${this.file} is missing`, "missing")
    if (this.identity !== undefined && this.identity !== identity) {
      throw new Away(`another file stands in the place of ${this.file}`, "replaced")
    }
    this.connection = new WriterConnection(this.file)
    this.identity = this.connection.databaseId
    return this.connection
  }

  /** Opens what now stands in the file's place, after everybody else has let go of the old one. */
  private reopen(): WriterConnection {
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
      setAside(this.file, old)
    }
    return this.ready()
  }

  private recoverFrom(error: unknown): void {
    if (error instanceof Away) return
    // What was not read cannot have been changed: the connection is as good as before, once it has forgotten the page.
    if (isUnreadable(error)) this.connection?.forgetPages()
    if (error instanceof Database.SqliteError && (passing.has(error.code) || concernsOneWrite(error))) return
    this.isSuspect = true
  }

  private close(): Reply {
    if (this.isSuspect) this.connection?.close()
    else this.connection?.closeForGood()
    this.connection = undefined
    return { _tag: "Done", outcomes: [], count: 0, lastSeq: 0, logBytes: 0, databaseId: undefined }
  }
}

/** The answer to a request. A commit into a file that has lost its name in the meantime must not be acknowledged. */
const done = (
  connection: WriterConnection,
  result: { readonly outcomes?: ReadonlyArray<Outcome>; readonly count?: number }
): Reply => ({
  _tag: "Done",
  outcomes: result.outcomes ?? [],
  count: result.count ?? 0,
  lastSeq: connection.tail().seq,
  logBytes: connection.checkPlace(),
  databaseId: connection.databaseId
})
