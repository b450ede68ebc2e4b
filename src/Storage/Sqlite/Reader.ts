import Database from "better-sqlite3"
import { Clock, Effect, Option, type Scope, Stream } from "effect"
import type { StoredEntry } from "../../Kv/Entry.ts"
import { type ListStream, type Selection, StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { ReaderConnection } from "./ReaderConnection.ts"
import { Away, identityOf } from "./StoreFile.ts"

/** How many whole lists may be read at once, each from a snapshot of its own. */
const maxSnapshots = 8

/** Connections of finished lists that are kept for the next. */
const maxSpare = 2

/** How long a list may hold its snapshot: the write-ahead log cannot start over while it does. */
const patience = "60 seconds"

const portionEntries = 1000
const portionSize = 1024 * 1024

interface Snapshot {
  readonly connection: ReaderConnection
  /** Why it cannot be read from any more. */
  cut: string | undefined
}

/**
 * All reads of a store, on the thread that asks. While the database file is away, every read fails with
 * `StoreUnavailable`.
 */
export class Reader {
  private connection: ReaderConnection | undefined
  private identity: string | undefined
  private absence = "the store is not open yet"
  private readonly snapshots = new Set<Snapshot>()
  private readonly spare: Array<ReaderConnection> = []

  constructor(private readonly file: string) {}

  /** Opens the file, or finds that the right one is open already. It does not throw: reads will tell. */
  open(databaseId: string | undefined): void {
    if (this.connection !== undefined) {
      this.absence = ""
      return
    }
    try {
      const connection = new ReaderConnection(this.file, 8192)
      connection.lastSeq()
      this.connection = connection
      this.identity = databaseId ?? identityOf(this.file)
      this.absence = ""
    } catch (error) {
      this.absence = describe(error)
    }
  }

  /** Whether another file than this one is open. */
  isElsewhere(databaseId: string | undefined): boolean {
    return this.connection !== undefined && databaseId !== undefined && this.identity !== databaseId
  }

  /** Has reads fail until the next `open`, without letting go of the file. */
  suspend(reason: string): void {
    this.absence = reason
  }

  /** Lets go of the file; lists that are under way end with an error. */
  close(reason: string): void {
    this.absence = reason
    this.cutSnapshots(reason)
    for (const connection of this.spare.splice(0)) connection.close()
    this.connection?.close()
    this.connection = undefined
  }

  /** Ends the lists that are under way. */
  cutSnapshots(reason: string): void {
    for (const snapshot of this.snapshots) this.cut(snapshot, reason)
  }

  /** Reads at the current time. */
  read<A>(body: (connection: ReaderConnection, now: number) => A): Effect.Effect<A, StoreUnavailable> {
    return Effect.flatMap(Clock.currentTimeMillis, now => this.attempt(() => body(this.opened(), now)))
  }

  /** A whole list from one snapshot, on a connection of its own. */
  listAll(selection: Selection): Effect.Effect<ListStream, StoreUnavailable | StoreBusy, Scope.Scope> {
    return Effect.gen(this, function* () {
      const now = yield* Clock.currentTimeMillis
      const snapshot = yield* Effect.acquireRelease(this.acquire(), snapshot =>
        Effect.sync(() => this.release(snapshot))
      )
      const lastSeq = yield* this.attempt(() => snapshot.connection.lastSeq())
      const scope = yield* Effect.scope
      yield* Effect.forkIn(
        Effect.zipRight(
          Effect.sleep(patience),
          Effect.sync(() => this.cut(snapshot, `a list was still being read after ${patience}`))
        ),
        scope
      )
      const portion = (after: string) =>
        this.attempt(() => {
          if (snapshot.cut !== undefined) throw new Away(snapshot.cut, "failed")
          const rows = snapshot.connection.entries({
            ...selection,
            after,
            limit: portionEntries,
            now,
            size: portionSize
          })
          // A list that has been read to its end needs its snapshot no more, however long the scope lasts.
          if (!rows.more) this.release(snapshot)
          return rows
        })
      const portions = Stream.unfoldEffect<string | undefined, ReadonlyArray<StoredEntry>, StoreUnavailable, never>(
        "",
        after => {
          if (after === undefined) return Effect.succeedNone
          return Effect.map(portion(after), ({ entries, more }) =>
            Option.some([entries, more ? entries.at(-1)!.key : undefined] as const)
          )
        }
      )
      return { lastSeq, portions }
    })
  }

  private acquire(): Effect.Effect<Snapshot, StoreUnavailable | StoreBusy> {
    return Effect.suspend((): Effect.Effect<Snapshot, StoreUnavailable | StoreBusy> => {
      if (this.snapshots.size >= maxSnapshots) return Effect.fail(new StoreBusy({ retryAfterSeconds: 1 }))
      return this.attempt(() => {
        this.opened()
        const connection = this.spare.pop() ?? new ReaderConnection(this.file, 2048)
        connection.hold()
        const snapshot: Snapshot = { connection, cut: undefined }
        this.snapshots.add(snapshot)
        return snapshot
      })
    })
  }

  private release(snapshot: Snapshot): void {
    if (!this.snapshots.delete(snapshot)) return
    snapshot.cut = "the list has been read to its end"
    snapshot.connection.release()
    if (this.spare.length < maxSpare) this.spare.push(snapshot.connection)
    else snapshot.connection.close()
  }

  private cut(snapshot: Snapshot, reason: string): void {
    if (snapshot.cut !== undefined || !this.snapshots.delete(snapshot)) return
    snapshot.cut = reason
    snapshot.connection.close()
  }

  private opened(): ReaderConnection {
    if (this.connection === undefined || this.absence !== "") throw new Away(this.absence, "failed")
    return this.connection
  }

  private attempt<A>(body: () => A): Effect.Effect<A, StoreUnavailable> {
    return Effect.suspend(() => {
      try {
        return Effect.succeed(body())
      } catch (error) {
        if (!(error instanceof Away || error instanceof Database.SqliteError)) throw error
        return Effect.fail(new StoreUnavailable({ reason: describe(error) }))
      }
    })
  }
}

const describe = (error: unknown): string =>
  error instanceof Database.SqliteError ? `${error.code}: ${error.message}` : String(error)
