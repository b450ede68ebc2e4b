/** The connections of a reader. */
import { basename } from "node:path"
import type Database from "better-sqlite3"
import type { DebugLog } from "../../../../base/Observability/DebugLog.ts"
import * as CommandLog from "../CommandLog.ts"
import { clearCache, openForReading, withReadable } from "../Connection.ts"

/** The memory of the connection for short reads. */
const cacheKiB = 8192

/** The memory of a connection that scans an index and reads no page twice. */
const snapshotCacheKiB = 512

/** The file to read, and the log of statements, if there is one. */
export interface Source {
  readonly file: string
  readonly debug: DebugLog | undefined
}

/** A connection that only reads. Statements throw `SqliteError`; nothing is caught here. */
export class ReadConnection {
  private readonly statements: Readonly<Record<"begin" | "commit" | "rollback", Database.Statement>>

  private constructor(
    private readonly db: Database.Database,
    private readonly source: Source,
    /** Whether it excludes all other connections, as on a full disk. */
    readonly isExclusive: boolean,
    cache: number
  ) {
    try {
      db.pragma(`cache_size = -${cache}`)
      db.pragma("mmap_size = 0")
      this.statements = this.prepare(db => ({
        begin: db.prepare("BEGIN"),
        commit: db.prepare("COMMIT"),
        rollback: db.prepare("ROLLBACK")
      }))
      // Opens the file and its write-ahead log, and reads no more than necessary.
      db.prepare("SELECT count(*) FROM sqlite_schema").get()
    } catch (error) {
      db.close()
      throw error
    }
  }

  /** Opens the connection for short reads. */
  static open(source: Source): ReadConnection {
    const open = (db: Database.Database, isExclusive: boolean) => new ReadConnection(db, source, isExclusive, cacheKiB)
    return withReadable(source.file, 100, open)
  }

  /** Opens a connection for a long-lived snapshot. */
  static openSnapshot(source: Source): ReadConnection {
    return new ReadConnection(openForReading(source.file), source, false, snapshotCacheKiB)
  }

  /** Prepares statements, which the log shows if there is one. */
  prepare<S extends object>(statements: (db: Database.Database) => S): S {
    return CommandLog.statements(statements(this.db), basename(this.source.file), this.source.debug)
  }

  /** Runs reads in one snapshot. */
  inSnapshot<A>(body: () => A): A {
    if (this.db.inTransaction) return body()
    this.hold()
    try {
      return body()
    } finally {
      this.release()
    }
  }

  /** Begins a snapshot that later reads share. The first of them takes it. */
  hold(): void {
    this.statements.begin.run()
  }

  /**
   * Ends a snapshot. Never throws. SQLite may refuse to commit after a page could not be read. A connection that cannot
   * end its snapshot is closed.
   */
  release(): void {
    if (!this.db.inTransaction) return
    try {
      this.statements.commit.run()
    } catch {
      try {
        if (this.db.inTransaction) this.statements.rollback.run()
      } catch {
        this.db.close()
      }
    }
  }

  get isOpen(): boolean {
    return this.db.open
  }

  clearCache(): void {
    clearCache(this.db)
  }

  close(): void {
    this.db.close()
  }
}

/** A connection and the queries on it. */
export interface Opened<Q> {
  readonly connection: ReadConnection
  readonly queries: Q
}
