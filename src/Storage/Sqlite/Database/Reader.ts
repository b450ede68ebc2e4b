import { dirname } from "node:path"
import Database from "better-sqlite3"
import { Clock, Effect, Option, type Scope, Stream } from "effect"
import type { StoredEntry } from "../../../Kv/Entry.ts"
import { type ListStream, type Selection, StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import * as Monotonic from "../../../Monotonic.ts"
import type { DebugLog } from "../../../Observability/DebugLog.ts"
import { ReaderConnection } from "../Kv/Queries.ts"
import { describe, isLocked, isUnreadable, lockedFor } from "./DatabaseError.ts"
import { hasRoom } from "./Directory.ts"
import { Away, identityOf } from "./FileIdentity.ts"
import { TurnSnapshot } from "./SharedSnapshot.ts"

/** Connections of finished lists that are kept for the next. */
const maxSpare = 2

/**
 * How long a list may hold its snapshot, since the write-ahead log cannot start over while it does: in milliseconds,
 * without anything being read from it, and in all.
 */
const patience = { idle: 60_000, whole: 900_000 }

/** Small portions, so that a client on a thin line takes one in time. */
const portionEntries = 1000
const portionSize = 256 * 1024

/** After pages could not be read, what is remembered of them is dropped, so often at most; in milliseconds. */
const forgetEvery = 1000

/** Memory of the connection for all other reads. */
const cacheKiB = 8192

/** Memory of a connection that walks along an index and comes back to nothing. */
const snapshotCacheKiB = 512

interface Snapshot {
  readonly connection: ReaderConnection
  /** Monotonic milliseconds. */
  readonly startedAt: number
  /** When a portion was last asked for, in monotonic milliseconds. */
  readAt: number
  /** Why it cannot be read from any more. */
  cut: string | undefined
}

/** A connection that has read, or none. */
const opened = (connection: ReaderConnection): ReaderConnection => {
  try {
    connection.touch()
    return connection
  } catch (error) {
    connection.close()
    throw error
  }
}

/**
 * All reads of a store, on the thread that asks. While the database file is away, every read fails with
 * `StoreUnavailable`.
 */
export class Reader {
  private connection: ReaderConnection | undefined
  private turn: TurnSnapshot | undefined
  private isWriting = false
  private identity: string | undefined
  private absence = "the store is not open yet"
  private isPaused = false
  /** Whether one connection reads all, and keeps the writer out. */
  isAlone = false
  private era = 0
  private forgotAt = Number.NEGATIVE_INFINITY
  private readonly snapshots = new Set<Snapshot>()
  private readonly spare: Array<ReaderConnection> = []
  /** Called when a lock kept a read from beginning, for which SQLite tried so many milliseconds. */
  onLocked: (reason: string, tried: number) => void = () => {}

  constructor(
    private readonly file: string,
    /** How many whole lists may be read at once, each from a snapshot of its own. */
    private readonly maxLists: number,
    /** Where statements are shown, if they are. */
    private readonly debug?: DebugLog
  ) {}

  /** Opens the file, or finds that the right one is open already. It does not throw: reads will tell. */
  open(databaseId: string | undefined): void {
    if (this.connection !== undefined) {
      this.absence = ""
      return
    }
    try {
      const connection = this.connect()
      this.connection = connection
      this.turn = new TurnSnapshot(connection, this.isWriting)
      this.era++
      this.identity = databaseId ?? identityOf(this.file)
      this.absence = ""
    } catch (error) {
      this.absence = describe(error)
    }
  }

  /**
   * Opens the file. On a full disk, which has no room for the index that connections share of a write-ahead log, one
   * connection reads alone.
   */
  private connect(): ReaderConnection {
    this.isAlone = false
    try {
      return opened(new ReaderConnection(this.file, cacheKiB, this.debug))
    } catch (error) {
      if (hasRoom(dirname(this.file))) throw error
      const connection = opened(new ReaderConnection(this.file, cacheKiB, this.debug, true))
      this.isAlone = true
      return connection
    }
  }

  get isOpen(): boolean {
    return this.connection !== undefined
  }

  /** Whether a file is open, and read from. */
  get isReading(): boolean {
    return this.connection !== undefined && this.absence === ""
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
    this.turn?.end()
    this.turn = undefined
    this.connection?.close()
    this.connection = undefined
    this.isAlone = false
    this.era++
  }

  /** To be called before the writer is given something to do, and when it has nothing left to do. */
  writing(isWriting: boolean): void {
    this.isWriting = isWriting
    this.turn?.writing(isWriting)
  }

  /** To be called when records were removed, before anybody learns of it. */
  forget(): void {
    this.era++
  }

  /** Changes with each file that is opened and whenever records are removed; fails where a read would. */
  readonly history: Effect.Effect<number, StoreUnavailable> = this.attempt(() => {
    this.opened()
    return this.era
  })

  /** Ends the lists that are under way, and lets no other begin until `resume`. */
  pause(reason: string): void {
    this.isPaused = true
    this.cutSnapshots(reason)
  }

  resume(): void {
    this.isPaused = false
  }

  /** Ends the lists that are under way. */
  cutSnapshots(reason: string): void {
    for (const snapshot of this.snapshots) this.cut(snapshot, reason)
  }

  /** Reads at the current time. */
  read<A>(body: (connection: ReaderConnection, now: number) => A): Effect.Effect<A, StoreUnavailable> {
    return Effect.flatMap(Clock.currentTimeMillis, now => this.attempt(() => body(this.entered(), now)))
  }

  /** Reads what does not depend on the time. */
  readTimeless<A>(body: (connection: ReaderConnection) => A): Effect.Effect<A, StoreUnavailable> {
    return this.attempt(() => body(this.entered()))
  }

  /** Reads at once, or not at all: whoever needs to know why asks `read`. */
  unsafeRead<A>(body: (connection: ReaderConnection) => A): A | undefined {
    if (this.connection === undefined || this.absence !== "") return undefined
    try {
      this.turn?.enter()
      return body(this.connection)
    } catch {
      return undefined
    }
  }

  /** A whole list from one snapshot, on a connection of its own. */
  listAll(selection: Selection): Effect.Effect<ListStream, StoreUnavailable | StoreBusy, Scope.Scope> {
    return Effect.gen(this, function* () {
      const now = yield* Clock.currentTimeMillis
      const startedAt = yield* Monotonic.millis
      const snapshot = yield* Effect.acquireRelease(this.acquire(startedAt), snapshot =>
        Effect.sync(() => this.release(snapshot))
      )
      const lastSeq = yield* this.attempt(() => snapshot.connection.lastSeq())
      const scope = yield* Effect.scope
      yield* Effect.forkIn(this.watch(snapshot), scope)
      const portion = (after: string) =>
        Effect.flatMap(Monotonic.millis, readAt =>
          this.readTimeless(() => {
            if (snapshot.cut !== undefined) throw new Away(snapshot.cut, "failed")
            snapshot.readAt = readAt
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
        )
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

  /** Cuts a list that holds its snapshot for too long. */
  private watch(snapshot: Snapshot): Effect.Effect<void> {
    return Effect.flatMap(Monotonic.millis, now => {
      const { startedAt, readAt } = snapshot
      const left = Math.min(readAt + patience.idle, startedAt + patience.whole) - now
      if (left > 0) return Effect.zipRight(Effect.sleep(left), this.watch(snapshot))
      const reason =
        now < startedAt + patience.whole
          ? `nothing of a list was read for ${patience.idle / 1000} s`
          : `a list was still being read after ${patience.whole / 1000} s`
      return Effect.sync(() => this.cut(snapshot, reason))
    })
  }

  private acquire(now: number): Effect.Effect<Snapshot, StoreUnavailable | StoreBusy> {
    return Effect.suspend((): Effect.Effect<Snapshot, StoreUnavailable | StoreBusy> => {
      if (this.isPaused || this.snapshots.size >= this.maxLists)
        return Effect.fail(new StoreBusy({ retryAfterSeconds: 1 }))
      return this.attempt(() => {
        const shared = this.opened()
        // Alone, nothing is written either, so that a list needs no snapshot.
        const connection = this.isAlone
          ? shared
          : (this.spare.pop() ?? new ReaderConnection(this.file, snapshotCacheKiB, this.debug))
        if (connection !== shared) connection.hold()
        const snapshot: Snapshot = { connection, startedAt: now, readAt: now, cut: undefined }
        this.snapshots.add(snapshot)
        return snapshot
      })
    })
  }

  private release(snapshot: Snapshot): void {
    if (!this.snapshots.delete(snapshot)) return
    snapshot.cut = "the list has been read to its end"
    if (snapshot.connection === this.connection) return
    snapshot.connection.release()
    if (this.spare.length < maxSpare && snapshot.connection.isOpen) this.spare.push(snapshot.connection)
    else snapshot.connection.close()
  }

  private cut(snapshot: Snapshot, reason: string): void {
    if (snapshot.cut !== undefined || !this.snapshots.delete(snapshot)) return
    snapshot.cut = reason
    if (snapshot.connection !== this.connection) snapshot.connection.close()
  }

  private opened(): ReaderConnection {
    if (this.connection === undefined || this.absence !== "") throw new Away(this.absence, "failed")
    return this.connection
  }

  private entered(): ReaderConnection {
    const connection = this.opened()
    this.turn?.enter()
    return connection
  }

  private attempt<A>(body: () => A): Effect.Effect<A, StoreUnavailable> {
    return Effect.suspend(() => {
      try {
        return Effect.succeed(body())
      } catch (error) {
        this.renew()
        if (isLocked(error)) this.onLocked(describe(error), lockedFor(error))
        if (!(error instanceof Away || error instanceof Database.SqliteError)) throw error
        const failure = new StoreUnavailable({ reason: describe(error), isUnreadable: isUnreadable(error) })
        return failure.isUnreadable ? Effect.zipRight(this.forgetPages, failure) : failure
      }
    })
  }

  /** Opens the file anew where the connection could not leave its snapshot and was closed. */
  private renew(): void {
    if (this.connection === undefined || this.connection.isOpen) return
    this.connection = undefined
    this.turn = undefined
    this.open(this.identity)
  }

  /** A page that was found damaged in memory may lie well on the disk, as it was read badly or has been restored. */
  private readonly forgetPages = Effect.map(Monotonic.millis, now => {
    if (now - this.forgotAt < forgetEvery) return
    this.forgotAt = now
    for (const { connection } of this.snapshots) connection.forgetPages()
    for (const connection of this.spare) connection.forgetPages()
    this.connection?.forgetPages()
  })
}
