/** Snapshots of a database that last over several iterations of the event loop. */
import { Effect, type Scope } from "effect"
import * as Monotonic from "../../../../base/Monotonic.ts"
import { StoreBusy, type StoreUnavailable } from "../../../../Kv/Store.ts"
import { SnapshotShares } from "../../../SnapshotShares.ts"
import { DatabaseUnavailable } from "../DatabaseError.ts"
import type { Opened } from "./ReadConnection.ts"

/** The maximum number of connections of ended snapshots that are kept for later ones. */
const maxSpare = 2

/**
 * How long a snapshot may last, in milliseconds: without any read, and in total. The write-ahead log cannot be reset
 * during that time.
 */
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

export interface Connections<Q> {
  /** The connection for short reads. Throws if it cannot be opened. */
  readonly current: () => Opened<Q>
  readonly connect: () => Opened<Q>
  readonly attempt: <A>(body: () => A) => Effect.Effect<A, StoreUnavailable>
}

/** Snapshots that last over several iterations of the event loop, each on a separate connection. */
export class Snapshots<Q> {
  private readonly active = new Set<Snapshot<Q>>()
  private readonly spare: Array<Opened<Q>> = []
  private isPaused = false

  private readonly shares: SnapshotShares

  /** `max` is the maximum number of concurrent snapshots. */
  constructor(
    private readonly reader: Connections<Q>,
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
