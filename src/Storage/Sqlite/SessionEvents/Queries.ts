import { basename, dirname } from "node:path"
import Database from "better-sqlite3"
import { Effect } from "effect"
import {
  type EventPage,
  type History,
  type LaunchConfiguration,
  pageCharacters,
  type Receipt,
  type StoredEvent,
  type Summary,
  type Unfinished
} from "../../../Gateway/SessionEvents.ts"
import { StoreUnavailable } from "../../../Kv/Store.ts"
import type { DebugLog } from "../../../Observability/DebugLog.ts"
import * as CommandLog from "../Database/CommandLog.ts"
import { describe, isLocked, lockedFor } from "../Database/DatabaseError.ts"
import { hasRoom } from "../Database/Directory.ts"
import { openAlone } from "../Database/FileIdentity.ts"
import { isDamage } from "./Damage.ts"

interface Row extends History {
  readonly id: number
}

interface Opened {
  /** Whether it keeps the writer out, as on a full disk. */
  readonly isAlone: boolean
  readonly db: Database.Database
  readonly statements: ReturnType<typeof prepare>
}

/** All reads of the histories, on the thread that asks. A connection that failed is opened anew by the next read. */
export class Reader {
  private opened: Opened | undefined
  private suspension: string | undefined
  /** Called when a lock kept a read from beginning, for which SQLite tried so many milliseconds. */
  onLocked: (reason: string, tried: number) => void = () => {}

  constructor(
    private readonly file: string,
    /** Where statements are shown, if they are. */
    private readonly debug?: DebugLog
  ) {}

  find(session: string): Effect.Effect<History | undefined, StoreUnavailable> {
    return this.read(({ find }) => {
      const row = find.get(session)
      return row === undefined ? undefined : historyOf(row)
    })
  }

  page(session: string, after: number, limit: number): Effect.Effect<EventPage | undefined, StoreUnavailable> {
    return this.read(statements => {
      const row = statements.find.get(session)
      if (row === undefined) return undefined
      const events: Array<StoredEvent> = []
      let characters = 0
      for (const event of statements.page.iterate(row.id, after, limit)) {
        events.push(event)
        characters += event.text.length
        if (characters >= pageCharacters) break
      }
      return { events, history: historyOf(row) }
    })
  }

  receipt(session: string, id: string): Effect.Effect<Receipt | undefined, StoreUnavailable> {
    return this.read(({ receipt }) => receipt.get(session, id))
  }

  configuration(session: string): Effect.Effect<LaunchConfiguration, StoreUnavailable> {
    return this.read(({ configuration }) => configuration.get(session) ?? { environment: null, deployment: null })
  }

  summaries(sessions: ReadonlyArray<string>): Effect.Effect<ReadonlyArray<Summary | null>, StoreUnavailable> {
    return this.read(statements => sessions.map(session => summaryOf(statements, session)))
  }

  get unfinished(): Effect.Effect<ReadonlyArray<Unfinished>, StoreUnavailable> {
    return this.read(({ unfinished }) => unfinished.all())
  }

  /** When the oldest event was made, in epoch milliseconds; `undefined` where there is none. */
  get oldest(): Effect.Effect<number | undefined, StoreUnavailable> {
    return this.read(({ oldest }) => oldest.get())
  }

  /** Whether one connection reads all, and keeps the writer out. */
  get isAlone(): boolean {
    return this.opened?.isAlone === true
  }

  close(): void {
    this.opened?.db.close()
    this.opened = undefined
  }

  /** Closes the file; reads fail until `resume`. */
  suspend(reason: string): void {
    this.suspension = reason
    this.close()
  }

  resume(): void {
    this.suspension = undefined
  }

  /** Reads from one snapshot. */
  private read<A>(body: (statements: Opened["statements"]) => A): Effect.Effect<A, StoreUnavailable> {
    return Effect.suspend(() => {
      if (this.suspension !== undefined) return Effect.fail(new StoreUnavailable({ reason: this.suspension }))
      try {
        this.opened ??= open(this.file, this.debug)
        const { statements } = this.opened
        statements.begin.run()
        try {
          return Effect.succeed(body(statements))
        } finally {
          statements.commit.run()
        }
      } catch (error) {
        this.close()
        if (isLocked(error)) this.onLocked(describe(error), lockedFor(error))
        return Effect.fail(new StoreUnavailable({ reason: describe(error) }))
      }
    })
  }
}

const open = (file: string, debug: DebugLog | undefined): Opened => {
  try {
    return opened(new Database(file, { readonly: true, fileMustExist: true, timeout: 100 }), file, false, debug)
  } catch (error) {
    // A full disk has no room for the index that connections share of a write-ahead log.
    if (hasRoom(dirname(file))) throw error
    return opened(openAlone(file, 100), file, true, debug)
  }
}

const opened = (db: Database.Database, file: string, isAlone: boolean, debug: DebugLog | undefined): Opened => {
  try {
    return { db, isAlone, statements: CommandLog.statements(prepare(db), basename(file), debug) }
  } catch (error) {
    db.close()
    throw error
  }
}

/** One damaged row leaves those of other sessions as they are. */
const summaryOf = ({ find, parts }: Opened["statements"], session: string): Summary | null => {
  try {
    const { hasDeployment, hasEnvironment } = parts.get(session) ?? { hasDeployment: 0, hasEnvironment: 0 }
    return {
      headSeq: find.get(session)?.headSeq ?? null,
      hasEnvironment: hasEnvironment === 1,
      hasDeployment: hasDeployment === 1
    }
  } catch (error) {
    if (error instanceof Database.SqliteError && isDamage(error.code)) return null
    throw error
  }
}

const historyOf = ({ epoch, headSeq, trimmedSeq, bookmark }: Row): History => ({
  epoch,
  headSeq,
  trimmedSeq,
  bookmark
})

const prepare = (db: Database.Database) => ({
  begin: db.prepare("BEGIN"),
  commit: db.prepare("COMMIT"),
  find: db.prepare<[string], Row>(
    "SELECT id, epoch, head AS headSeq, trimmed AS trimmedSeq, bookmark FROM histories WHERE session = ?"
  ),
  page: db.prepare<[number, number, number], StoredEvent>(
    "SELECT seq, text FROM events WHERE history = ? AND seq > ? ORDER BY seq LIMIT ?"
  ),
  receipt: db.prepare<[string, string], Receipt>(
    `SELECT name AS id, digest, turn AS turnId FROM receipts
     WHERE history = (SELECT id FROM histories WHERE session = ?) AND name = ?`
  ),
  configuration: db.prepare<[string], LaunchConfiguration>(
    "SELECT environment, deployment FROM launch_configurations WHERE session = ?"
  ),
  parts: db.prepare<[string], { readonly hasEnvironment: number; readonly hasDeployment: number }>(
    `SELECT has_environment AS hasEnvironment, has_deployment AS hasDeployment
     FROM launch_configurations WHERE session = ?`
  ),
  unfinished: db.prepare<[], Unfinished>("SELECT session, bookmark FROM histories WHERE bookmark IS NOT NULL"),
  oldest: db.prepare<[], number>("SELECT timestamp FROM events ORDER BY id LIMIT 1").pluck()
})
