/** The connections of a reader. */
import { basename } from "node:path"
import { performance } from "node:perf_hooks"
import type Database from "better-sqlite3"
import type { DebugLog } from "../../../base/Observability/DebugLog.ts"
import { clearCache, openForReading, withReadable } from "./Connection.ts"

const message = "Database command"

const longest = 500

const methods: ReadonlySet<string | symbol> = new Set(["run", "get", "all", "iterate"])

/** The milliseconds since a moment, with microseconds. */
const since = (start: number): number => Math.round((performance.now() - start) * 1000) / 1000

interface Statement {
  readonly source: string
}

const isStatement = (value: object): value is Statement =>
  "source" in value && typeof value.source === "string" && "run" in value

const loggedStatement = (statement: Statement, database: string, debug: DebugLog): Statement => {
  const command = statement.source.replace(/\s+/g, " ").trim().slice(0, longest)
  return new Proxy(statement, {
    get: (target, name) => {
      const member: unknown = Reflect.get(target, name, target)
      if (typeof member !== "function") return member
      const bound = member.bind(target)
      if (!methods.has(name)) return bound
      return (...parameters: ReadonlyArray<unknown>): unknown => {
        const start = performance.now()
        let outcome = "failed"
        try {
          const result: unknown = bound(...parameters)
          outcome = "ok"
          return result
        } finally {
          debug(message, { database, command, outcome, millis: since(start) })
        }
      }
    }
  })
}

/** Makes prepared statements, in objects of any depth, log each use; that of an iteration when it starts. */
export const loggedStatements = <S extends object>(prepared: S, database: string, debug: DebugLog | undefined): S => {
  if (debug === undefined) return prepared
  const entries = Object.entries(prepared).map(([name, value]: [string, unknown]) => {
    if (typeof value !== "object" || value === null) return [name, value]
    return [
      name,
      isStatement(value) ? loggedStatement(value, database, debug) : loggedStatements(value, database, debug)
    ]
  })
  return Object.fromEntries(entries) as S
}

/** Starts the time of a command that is answered later. The returned function logs it with its outcome. */
export const logCommand = (database: string, debug: DebugLog, detail: Readonly<Record<string, unknown>>) => {
  const start = performance.now()
  return (outcome: string): void => debug(message, { database, ...detail, outcome, millis: since(start) })
}

const cacheKiB = 8192

/** The memory of a connection that scans an index and reads no page twice. */
const snapshotCacheKiB = 512

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

  static open(source: Source): ReadConnection {
    const open = (db: Database.Database, isExclusive: boolean) => new ReadConnection(db, source, isExclusive, cacheKiB)
    return withReadable(source.file, 100, open)
  }

  static openSnapshot(source: Source): ReadConnection {
    return new ReadConnection(openForReading(source.file), source, false, snapshotCacheKiB)
  }

  /** Prepares statements, which the log shows if there is one. */
  prepare<S extends object>(statements: (db: Database.Database) => S): S {
    return loggedStatements(statements(this.db), basename(this.source.file), this.source.debug)
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

  /** Ends a snapshot. Never throws: a connection that cannot end it, after an unreadable page, is closed. */
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

export interface Opened<Q> {
  readonly connection: ReadConnection
  readonly queries: Q
}
