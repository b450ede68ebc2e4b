/** The reads of a database: short ones, those from snapshots, and the reports of pages that cannot be read. */

import { Clock, Effect, Exit, type Scope } from "effect"
import * as Direct from "../../../base/Direct.ts"
import type { MetricTags } from "../../../base/Observability/MetricTags.ts"
import * as LabelValues from "../../../base/Observability/MetricTags.ts"
import * as Monotonic from "../../../base/Time/Monotonic.ts"
import { StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import { SnapshotShares } from "../../SnapshotShares.ts"
import { DatabaseUnavailable, describe, isDefect, isLocked, isUnreadable, lockedFor } from "./DatabaseError.ts"
import { idOf } from "./Files.ts"
import { type Opened, ReadConnection, type Source } from "./ReadConnection.ts"

/** SQLite's codes for pages that are malformed or cannot be read. */
const damage = /^SQLITE_(CORRUPT|NOTADB|IOERR)/

/** Whether a reason, which begins with a code of SQLite, indicates a damaged file or disk. */
export const isDamage = (reason: string): boolean => damage.test(reason)

const logIntervalNanos = 10_000_000_000n

/** Reports a failure if its reason indicates damage, with annotations for the log. */
export type ReportDamage = (
  operation: "read" | "write",
  reason: string,
  annotations?: Readonly<Record<string, unknown>>
) => Effect.Effect<void>

/** Counts damage, and logs it with the number of reports since the last line. */
export const damageReporter = (database: string, metric: string, tags: MetricTags): ReportDamage => {
  const counter = LabelValues.counter(metric, {
    label: "operation",
    description: `Reads and writes of the ${database} that met a damaged or unreadable page.`
  })
  counter.register(["read", "write"], tags)
  let logAgainAt: bigint | undefined
  let unlogged = 0
  return (operation, reason, annotations) =>
    Effect.flatMap(Clock.currentTimeNanos, now => {
      if (!isDamage(reason)) return Effect.void
      counter.increment(operation, tags)
      if (logAgainAt !== undefined && now < logAgainAt) {
        unlogged++
        return Effect.void
      }
      logAgainAt = now + logIntervalNanos
      const notLogged = unlogged
      unlogged = 0
      return Effect.annotateLogs(Effect.logError(`The ${database} is damaged`), {
        operation,
        reason,
        ...annotations,
        ...(notLogged === 0 ? {} : { notLogged })
      })
    })
}

/** After an unreadable page, caches are emptied at most once in this interval. */
const clearCachesIntervalMillis = 1000

/**
 * One snapshot for the reads of a turn of the event loop: without it, each lookup takes and releases a lock of the
 * database, with system calls that cost as much as the lookup.
 *
 * The first read of a turn has its own snapshot, so that a single read costs nothing more. The second begins a snapshot
 * that lasts until the end of the turn. While the writer has a request, no snapshot is shared. No other process writes,
 * so that the database does not change during such a snapshot: each read finds what it would find by itself.
 */
export class SharedSnapshot {
  private hasRead = false
  private isHeld = false

  constructor(
    /** Its `release` must not throw, because no caller would catch the error. */
    private readonly connection: Pick<ReadConnection, "hold" | "release">,
    private isWriting: boolean
  ) {}

  /** Must be called before each read. */
  enter(): void {
    if (this.isHeld || this.isWriting) return
    if (this.hasRead) {
      this.connection.hold()
      this.isHeld = true
    } else {
      this.hasRead = true
      setImmediate(this.endTurn)
    }
  }

  writing(isWriting: boolean): void {
    this.isWriting = isWriting
    if (isWriting) this.end()
  }

  end(): void {
    if (!this.isHeld) return
    this.isHeld = false
    this.connection.release()
  }

  private readonly endTurn = (): void => {
    this.hasRead = false
    this.end()
  }
}

interface Main<Q> extends Opened<Q> {
  /** The file that it reads. */
  readonly databaseId: string | undefined
  readonly shared: SharedSnapshot
}

export interface ReaderListener {
  readonly onSuspended: () => void
  /** The file is not the one that was adopted. */
  readonly onReplaced: (reason: string) => void
  /** A lock could not be taken. SQLite itself tried for `tried` milliseconds. */
  readonly onLocked: (reason: string, tried: number) => void
}

/**
 * All reads of a database, on the calling thread. The connection is opened by the first read, and again after an error
 * made it unusable. While the reader is suspended, every read fails with `StoreUnavailable`.
 */
export class Reader<Q> {
  readonly snapshots: Snapshots<Q>
  private main: Main<Q> | undefined
  private suspension: string | undefined = "the database is not open yet"
  private isWriting = false
  private generation = 0
  private adopted: string | undefined
  private clearedAt = Number.NEGATIVE_INFINITY

  constructor(
    private readonly source: Source,
    private readonly queries: (connection: ReadConnection) => Q,
    /** The maximum number of snapshots that last over several iterations of the event loop. */
    maxSnapshots: number,
    private readonly clock: Clock.Clock,
    private readonly reportDamage: ReportDamage,
    private readonly listener: ReaderListener
  ) {
    this.snapshots = new Snapshots(this, maxSnapshots)
  }

  /**
   * Reads at the current time (epoch milliseconds). The effect is direct. The annotations are for a report of damage.
   */
  read<A>(
    body: (queries: Q, now: number) => A,
    annotations?: Readonly<Record<string, unknown>>
  ): Effect.Effect<A, StoreUnavailable> {
    return this.attempt(() => body(this.enter(), this.clock.unsafeCurrentTimeMillis()), annotations)
  }

  /** Changes with each file that is opened and whenever records are removed. Fails if a read would. */
  readonly history: Effect.Effect<number, StoreUnavailable> = this.attempt(() => {
    this.current()
    return this.generation
  })

  /** Must be called after records were removed, before any caller can observe it. */
  forget(): void {
    this.generation++
  }

  /** Whether a connection is open, even if the reader is suspended. */
  get isOpen(): boolean {
    return this.main !== undefined
  }

  /** Whether the connection excludes the writer, as on a full disk. */
  get isExclusive(): boolean {
    return this.main?.connection.isExclusive === true
  }

  canRead(): boolean {
    try {
      this.current()
      return true
    } catch {
      return false
    }
  }

  /** Whether a file other than this one is open. */
  readsOther(databaseId: string | undefined): boolean {
    return this.main !== undefined && databaseId !== undefined && this.main.databaseId !== databaseId
  }

  /** Sets the file that may be read. Until then any file may. */
  adopt(databaseId: string | undefined): void {
    this.adopted = databaseId
  }

  resume(): void {
    this.suspension = undefined
  }

  /** Makes reads fail until `resume`; the file stays open. */
  suspend(reason: string): void {
    this.suspension = reason
  }

  /** Makes reads fail until `resume`, and closes the file; snapshots end. */
  close(reason: string): void {
    this.suspension = reason
    this.snapshots.close(reason)
    this.main?.shared.end()
    this.main?.connection.close()
    this.main = undefined
    this.generation++
  }

  /** Must be called before the writer receives a request, and when it has answered all. */
  writing(isWriting: boolean): void {
    this.isWriting = isWriting
    this.main?.shared.writing(isWriting)
  }

  private enter(): Q {
    const main = this.current()
    main.shared.enter()
    return main.queries
  }

  /** The connection for short reads. Throws if it cannot be opened. */
  current(): Main<Q> {
    if (this.suspension !== undefined) {
      this.listener.onSuspended()
      throw new DatabaseUnavailable(this.suspension, "Error")
    }
    if (this.main === undefined) {
      const databaseId = idOf(this.source.file)
      const opened = this.openedFile(() => ReadConnection.open(this.source))
      this.main = { ...opened, databaseId, shared: new SharedSnapshot(opened.connection, this.isWriting) }
      this.generation++
    }
    return this.main
  }

  connect(): Opened<Q> {
    return this.openedFile(() => ReadConnection.openSnapshot(this.source))
  }

  attempt<A>(body: () => A, annotations?: Readonly<Record<string, unknown>>): Effect.Effect<A, StoreUnavailable> {
    return Direct.suspend(() => {
      try {
        return Exit.succeed(body())
      } catch (error) {
        // A connection that could not end its snapshot was closed. The next read opens another.
        if (this.main?.connection.isOpen === false) this.main = undefined
        if (isLocked(error)) this.listener.onLocked(describe(error), lockedFor(error))
        if (isDefect(error)) throw error
        const failure = new StoreUnavailable({ reason: describe(error), isUnreadable: isUnreadable(error) })
        if (failure.isUnreadable) this.clearCaches()
        if (!isDamage(failure.reason)) return Exit.fail(failure)
        return Effect.zipRight(this.reportDamage("read", failure.reason, annotations), failure)
      }
    })
  }

  private openedFile(open: () => ReadConnection): Opened<Q> {
    const connection = open()
    try {
      this.verify()
      return { connection, queries: this.queries(connection) }
    } catch (error) {
      connection.close()
      throw error
    }
  }

  /** Throws if another file, with its own log, has replaced the one that was adopted. */
  private verify(): void {
    const { file } = this.source
    if (this.adopted === undefined || idOf(file) === this.adopted) return
    const reason = `another file has replaced ${file}`
    this.listener.onReplaced(reason)
    throw new DatabaseUnavailable(reason, "FileReplaced")
  }

  /** A page that is damaged in memory may be intact on the disk: it was read badly, or was restored. */
  private clearCaches(): void {
    const now = Monotonic.unsafeMillis(this.clock)
    if (now - this.clearedAt < clearCachesIntervalMillis) return
    this.clearedAt = now
    this.snapshots.clearCaches()
    this.main?.connection.clearCache()
  }
}

/** The maximum number of connections of ended snapshots that are kept for later ones. */
const maxSpare = 2

/** How many milliseconds a snapshot, which keeps the log from being reset, may last: without any read, and in total. */
const timeoutMillis = { idle: 60_000, total: 900_000 }

export class Snapshot<Q> {
  /** Why nothing more can be read from it. */
  ended: string | undefined
  /** When it was last read from, in monotonic milliseconds. */
  readAt: number

  constructor(
    readonly opened: Opened<Q>,
    readonly giveBack: () => void,
    /** Monotonic milliseconds. */
    readonly startedAt: number
  ) {
    this.readAt = startedAt
  }
}

/** Snapshots that last over several iterations of the event loop, each on a separate connection. */
class Snapshots<Q> {
  private readonly active = new Set<Snapshot<Q>>()
  private readonly spare: Array<Opened<Q>> = []
  private isPaused = false

  private readonly shares: SnapshotShares

  /** `max` is the maximum number of concurrent snapshots. */
  constructor(
    private readonly reader: Reader<Q>,
    max: number
  ) {
    this.shares = new SnapshotShares(max)
  }

  /**
   * Takes a snapshot for a tenant, or for `""`. It ends when the scope closes, when it is released, or after a timeout.
   */
  take(tenant: string): Effect.Effect<Snapshot<Q>, StoreUnavailable | StoreBusy, Scope.Scope> {
    return Effect.gen(this, function* () {
      const startedAt = yield* Monotonic.millis
      const snapshot = yield* Effect.acquireRelease(this.acquire(tenant, startedAt), snapshot =>
        Effect.sync(() => this.release(snapshot))
      )
      yield* Effect.forkIn(this.limit(snapshot), yield* Effect.scope)
      return snapshot
    })
  }

  read<A>(snapshot: Snapshot<Q>, body: (queries: Q) => A): Effect.Effect<A, StoreUnavailable> {
    return Effect.flatMap(Monotonic.millis, now =>
      this.reader.attempt(() => {
        if (snapshot.ended !== undefined) throw new DatabaseUnavailable(snapshot.ended, "Error")
        snapshot.readAt = now
        return body(snapshot.opened.queries)
      })
    )
  }

  release(snapshot: Snapshot<Q>): void {
    if (!this.active.delete(snapshot)) return
    snapshot.giveBack()
    snapshot.ended = "the snapshot was released"
    const { connection } = snapshot.opened
    if (connection.isExclusive) return
    connection.release()
    if (this.spare.length < maxSpare && connection.isOpen) this.spare.push(snapshot.opened)
    else connection.close()
  }

  /** Ends all snapshots; reads from them fail with the reason. */
  endAll(reason: string): void {
    for (const snapshot of this.active) this.end(snapshot, reason)
  }

  /** Ends all snapshots, and starts no other until `resume`. */
  pause(reason: string): void {
    this.isPaused = true
    this.endAll(reason)
  }

  resume(): void {
    this.isPaused = false
  }

  close(reason: string): void {
    this.endAll(reason)
    for (const { connection } of this.spare.splice(0)) connection.close()
  }

  clearCaches(): void {
    for (const { opened } of this.active) opened.connection.clearCache()
    for (const { connection } of this.spare) connection.clearCache()
  }

  private acquire(tenant: string, now: number): Effect.Effect<Snapshot<Q>, StoreUnavailable | StoreBusy> {
    return Effect.suspend((): Effect.Effect<Snapshot<Q>, StoreUnavailable | StoreBusy> => {
      const giveBack = this.isPaused ? undefined : this.shares.take(tenant)
      if (giveBack === undefined) return new StoreBusy({ retryAfterSeconds: 1 })
      const begin = this.reader.attempt(() => {
        const shared = this.reader.current()
        // An exclusive connection excludes the writer, and so needs no snapshot.
        const opened = shared.connection.isExclusive ? shared : (this.spare.pop() ?? this.reader.connect())
        if (opened !== shared) opened.connection.hold()
        const snapshot = new Snapshot(opened, giveBack, now)
        this.active.add(snapshot)
        return snapshot
      })
      return Effect.onError(begin, () => Effect.sync(giveBack))
    })
  }

  /** Ends a snapshot after its timeout. */
  private limit(snapshot: Snapshot<Q>): Effect.Effect<void> {
    return Effect.flatMap(Monotonic.millis, now => {
      const { startedAt, readAt } = snapshot
      const left = Math.min(readAt + timeoutMillis.idle, startedAt + timeoutMillis.total) - now
      if (left > 0) return Effect.zipRight(Effect.sleep(left), this.limit(snapshot))
      const reason =
        now < startedAt + timeoutMillis.total
          ? `nothing of a list was read for ${timeoutMillis.idle / 1000} s`
          : `a list was still being read after ${timeoutMillis.total / 1000} s`
      return Effect.sync(() => this.end(snapshot, reason))
    })
  }

  private end(snapshot: Snapshot<Q>, reason: string): void {
    if (snapshot.ended !== undefined || !this.active.delete(snapshot)) return
    snapshot.giveBack()
    snapshot.ended = reason
    if (!snapshot.opened.connection.isExclusive) snapshot.opened.connection.close()
  }
}
