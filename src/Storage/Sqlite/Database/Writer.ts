/** The transactions of a database. */
import { dirname } from "node:path"
import type Database from "better-sqlite3"
import { checkpoint, clearCache, closeLast, type Format, openForWriting } from "./Connection.ts"
import {
  concernsOneWrite,
  DatabaseUnavailable,
  describe,
  isDefect,
  isUnreadable,
  leavesConnectionSound,
  unavailableCause
} from "./DatabaseError.ts"
import * as Files from "./Files.ts"
import { OpenLog } from "./Files.ts"
import type { Done, Reply, Request, Task, WriteFailure } from "./WriterPort.ts"

/** A task: reads the due items first, and then changes them in one transaction or several. */
export interface TaskSteps<A> {
  due(time: number, limit: number): ReadonlyArray<A>
  /** Returns the number of records that it created or removed. */
  run(items: ReadonlyArray<A>, time: number): number
}

/** The operations of the writer on the tables of a database. Statements throw `SqliteError`; nothing is caught. */
export interface Tables<W, O> {
  /** Applies writes within a transaction. */
  readonly apply: (writes: ReadonlyArray<W>, now: number) => ReadonlyArray<O>
  readonly tasks: { readonly [T in Task]?: TaskSteps<unknown> }
  /** The newest sequence number; 0 if the database has none. */
  readonly lastSeq: () => number
}

export interface WriterPlugin<W, O> {
  readonly format: Format
  readonly tables: (db: Database.Database) => Tables<W, O>
}

class Connection<W, O> {
  readonly db: Database.Database
  readonly tables: Tables<W, O>
  readonly identity: Files.FileIdentity
  /** `undefined` if the database has no log. */
  readonly log: OpenLog | undefined
  private readonly run: Database.Transaction<(body: () => unknown) => unknown>

  constructor(file: string, { format, tables }: WriterPlugin<W, O>, mayRenewEpoch: boolean) {
    this.db = openForWriting(file, format)
    try {
      this.run = this.db.transaction(body => body())
      this.tables = tables(this.db)
      this.identity = Files.identify(file)
      this.log = format.log && new OpenLog(this.db, file, format.log, mayRenewEpoch)
    } catch (error) {
      this.db.close()
      throw error
    }
  }

  transaction<A>(body: () => A): A {
    return this.run.immediate(body) as A
  }

  /** Throws if the file is read-only, where SQLite begins transactions, too. Changes no page on the disk. */
  probe(format: Format): void {
    this.db.exec("BEGIN IMMEDIATE")
    try {
      this.setVersion(format)
    } finally {
      // An error may have ended the transaction.
      if (this.db.inTransaction) this.db.exec("ROLLBACK")
    }
  }

  /** Writes and flushes one page, without a change of its content. */
  touch(format: Format): void {
    this.transaction(() => this.setVersion(format))
  }

  /** Sets the version that the database has: SQLite writes the page nevertheless. */
  private setVersion({ migrations }: Format): void {
    this.db.pragma(`user_version = ${migrations.length}`)
  }

  close(): void {
    this.db.close()
    this.log?.close()
  }

  closeLast(): void {
    closeLast(this.db)
    this.log?.close()
  }
}

/**
 * Runs the transactions of a database synchronously, one request at a time.
 *
 * It opens the database with the first request. After some errors, such as a failed flush, the content of the disk is
 * unknown. Then the writer reopens the file, and acknowledges nothing before a checkpoint has succeeded. The checkpoint
 * writes and flushes the database file and truncates the write-ahead log, so that no later commit depends on frames
 * that the kernel may have dropped.
 */
export class Writer<W, O> {
  private connection: Connection<W, O> | undefined
  /** The identity of the database file, also while it is closed. */
  private databaseId: string | undefined
  private isSuspect = false

  constructor(
    private readonly file: string,
    private readonly plugin: WriterPlugin<W, O>
  ) {}

  /** Handles a request. Never throws. Only `Done` acknowledges the request. */
  handle(request: Request<W>): Reply<O> {
    try {
      if (request.kind === "close") return this.close()
      const connection = request.kind === "reopen" ? this.reopen() : this.ready()
      return this.serve(connection, request)
    } catch (error) {
      this.recoverFrom(error)
      return {
        _tag: "Unavailable",
        cause: unavailableCause(error, () => Files.hasRoom(dirname(this.file))),
        reason: describe(error)
      }
    }
  }

  private serve(connection: Connection<W, O>, request: Request<W>): Reply<O> {
    switch (request.kind) {
      case "commit":
        return this.done(connection, this.commit(connection, request.writes, request.now))
      case "expire":
      case "trim":
        return this.done(connection, [], this.run(connection, request.kind, request.time, request.limit))
      case "checkpoint":
        checkpoint(connection.db)
        break
      case "probe":
        connection.probe(this.plugin.format)
        break
      case "touch":
        connection.touch(this.plugin.format)
        break
    }
    return this.done(connection)
  }

  private commit(connection: Connection<W, O>, writes: ReadonlyArray<W>, now: number): ReadonlyArray<O | WriteFailure> {
    try {
      return connection.transaction(() => connection.tables.apply(writes, now))
    } catch (error) {
      if (!concernsOneWrite(error) || (writes.length === 1 && !isDefect(error))) throw error
      return this.commitEach(connection, writes, now)
    }
  }

  /** Commits each write in a separate transaction, after one of them made that of the group fail. */
  private commitEach(
    connection: Connection<W, O>,
    writes: ReadonlyArray<W>,
    now: number
  ): ReadonlyArray<O | WriteFailure> {
    let lost: string | undefined
    return writes.flatMap((write): ReadonlyArray<O | WriteFailure> => {
      if (lost !== undefined) return [{ _tag: "Failed", reason: lost }]
      try {
        return connection.transaction(() => connection.tables.apply([write], now))
      } catch (error) {
        this.recoverFrom(error)
        if (!concernsOneWrite(error)) lost = describe(error)
        return [{ _tag: isDefect(error) ? "Defect" : "Failed", reason: describe(error) }]
      }
    })
  }

  private run(connection: Connection<W, O>, task: Task, time: number, limit: number): number {
    const steps = connection.tables.tasks[task]
    const due = steps?.due(time, limit) ?? []
    if (steps === undefined || due.length === 0) return 0
    const { count, failure } = this.runAll(connection, steps, due, time)
    if (count === 0 && failure !== undefined) throw failure
    return count
  }

  /** Runs a task in one transaction. If a page cannot be read, runs the halves separately. */
  private runAll(
    connection: Connection<W, O>,
    steps: TaskSteps<unknown>,
    items: ReadonlyArray<unknown>,
    time: number
  ): { readonly count: number; readonly failure?: unknown } {
    try {
      return { count: connection.transaction(() => steps.run(items, time)) }
    } catch (error) {
      if (!isUnreadable(error)) throw error
      this.recoverFrom(error)
      if (items.length === 1) return { count: 0, failure: error }
      const half = items.length >> 1
      const first = this.runAll(connection, steps, items.slice(0, half), time)
      const second = this.runAll(connection, steps, items.slice(half), time)
      return { count: first.count + second.count, failure: error }
    }
  }

  private ready(mayRenewEpoch = false): Connection<W, O> {
    const connection = this.connection ?? this.open(mayRenewEpoch)
    Files.verify(this.file, connection.identity)
    if (!this.isSuspect) return connection
    this.connection = undefined
    connection.close()
    const fresh = this.open(mayRenewEpoch)
    if (!checkpoint(fresh.db)) {
      throw new DatabaseUnavailable("a checkpoint waits for readers of older snapshots", "Locked")
    }
    this.isSuspect = false
    return fresh
  }

  /** Opens the file that was open before, and no other: readers may still have it. */
  private open(mayRenewEpoch: boolean): Connection<W, O> {
    Files.verifyDatabase(this.file, this.databaseId)
    this.connection = new Connection(this.file, this.plugin, mayRenewEpoch)
    this.databaseId = this.connection.identity.databaseId
    return this.connection
  }

  private reopen(): Connection<W, O> {
    Files.verifyDatabase(this.file, undefined)
    const old = this.connection
    this.connection = undefined
    this.databaseId = undefined
    this.isSuspect = true
    if (old !== undefined) {
      try {
        // Frames that are only in the log belong to the old file, regardless of its current name.
        checkpoint(old.db)
      } catch {
        // The old file is no longer reachable.
      }
      old.close()
      Files.setAsideLog(this.file, old.identity)
    }
    // All readers are closed, so that none mistakes the old epoch for that of the new file.
    return this.ready(true)
  }

  private recoverFrom(error: unknown): void {
    const db = this.connection?.db
    // A failed read changes nothing: the connection is sound once its cache is empty.
    if (isUnreadable(error) && db?.inTransaction === false) clearCache(db)
    if (!leavesConnectionSound(error)) this.isSuspect = true
  }

  private close(): Reply<O> {
    if (this.connection !== undefined) {
      if (this.isSuspect) this.connection.close()
      else this.connection.closeLast()
    }
    this.connection = undefined
    return { _tag: "Done", outcomes: [], count: 0, lastSeq: 0, logBytes: 0, databaseId: undefined, epoch: "" }
  }

  /** The reply to a request. A commit into a file that has lost its name in the meantime must not be acknowledged. */
  private done(connection: Connection<W, O>, outcomes: ReadonlyArray<O | WriteFailure> = [], count = 0): Done<O> {
    const logBytes = Files.verify(this.file, connection.identity)
    const lastSeq = connection.tables.lastSeq()
    const { identity, log } = connection
    log?.reached(lastSeq)
    return {
      _tag: "Done",
      outcomes,
      count,
      lastSeq,
      logBytes,
      databaseId: identity.databaseId,
      epoch: log?.epoch ?? ""
    }
  }
}
