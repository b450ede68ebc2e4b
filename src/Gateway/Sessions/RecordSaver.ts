/**
 * Writes the records of sessions back to the key-value store, in the background.
 */
import { Cause, type Context, Effect, Option, type Scope } from "effect"
import { JsonText } from "../../Json/JsonText.ts"
import type { Store, StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import type { Precondition } from "../../Kv/Write.ts"
import * as Supervision from "../../Supervision.ts"
import { encodeRecord, namespaceOf, type SessionRecord } from "./SessionRecord.ts"

/** A session in memory whose record is written back. */
export interface Recorded {
  readonly key: string
  readonly record: SessionRecord
  /** The record with the current state. */
  readonly toRecord: () => SessionRecord
  /** Whether its removal has started. It may be complete. */
  readonly isDeleting: boolean
  readonly isDeleted: boolean
  /** Whether it belongs to another node. */
  readonly isGivenUp: boolean
  /** Succeeds only if it belongs to this node. */
  readonly confirm: Effect.Effect<void, StoreBusy | StoreUnavailable>
}

/** The actor of changes that no client has requested. */
export const gatewayActor = "gateway"

/** Number of records that are written concurrently. */
const concurrency = 32

/** Holds for any record that exists. */
export const anyVersion: Precondition = { match: "any" }

/**
 * The version of a session's record, or any version if there is none. It is read before the session is confirmed to
 * belong to this node.
 */
export const confirmedVersion = (
  store: Pick<Context.Tag.Service<Store>, "get">,
  session: Recorded
): Effect.Effect<Precondition, StoreBusy | StoreUnavailable> => {
  const { id, tenant } = session.record
  return Effect.flatMap(store.get(namespaceOf(tenant), id), found =>
    Effect.as(
      session.confirm,
      Option.match(found, { onNone: () => anyVersion, onSome: ({ version }) => ({ match: [version] }) })
    )
  )
}

/**
 * If nodes share the store, a record is written only at the version that it had when the session was known to belong to
 * this node. A node that was paused while another one took the session changes nothing.
 */
export class RecordSaver {
  /** The version of a shared record that this node may replace. */
  private readonly versions = new WeakMap<Recorded, number>()
  private readonly dirty = new Set<Recorded>()
  private readonly inFlight = new Set<Recorded>()
  private readonly work = Effect.unsafeMakeLatch(false)
  private readonly mutex = Effect.unsafeMakeSemaphore(1)

  private constructor(
    private readonly store: Context.Tag.Service<Store>,
    private readonly isShared: boolean
  ) {}

  /** Makes a saver that writes until the scope closes. */
  static make(store: Context.Tag.Service<Store>, isShared: boolean): Effect.Effect<RecordSaver, never, Scope.Scope> {
    return Effect.suspend(() => {
      const saver = new RecordSaver(store, isShared)
      return Effect.as(Supervision.forkScoped("saver of session records", saver.saveForever), saver)
    })
  }

  /** Writes a session's record in the background. Changes before the write are written together. */
  save(session: Recorded): void {
    this.dirty.add(session)
    this.work.unsafeOpen()
  }

  /** Whether a record is to be written or being written. */
  isDirty(session: Recorded): boolean {
    return this.dirty.has(session) || this.inFlight.has(session)
  }

  /**
   * Writes the dirty records, as far as the store takes them. One run at a time, so that a caller also waits for the
   * records in flight.
   */
  readonly flush: Effect.Effect<void> = Effect.suspend(() =>
    Effect.forEach([...this.dirty], session => this.write(session), { concurrency, discard: true })
  ).pipe(this.mutex.withPermits(1))

  private readonly saveDirty = Effect.gen(this, function* () {
    yield* this.work.await
    yield* this.work.close
    yield* this.flush
    if (this.dirty.size > 0) yield* Effect.zipRight(Effect.sleep("1 second"), this.work.open)
  })

  // A run that was interrupted may have left dirty records without a signal.
  private readonly saveForever = Effect.zipRight(this.work.open, Effect.forever(this.saveDirty))

  private write(session: Recorded): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (!this.dirty.delete(session) || session.isDeleted || session.isGivenUp) return Effect.void
      this.inFlight.add(session)
      return this.commit(session).pipe(
        Effect.catchTag("PreconditionFailed", ({ currentVersion }) => this.onChanged(session, currentVersion)),
        Effect.catchAll(() => this.keepDirty(session)),
        Effect.onInterrupt(() => this.keepDirty(session))
      )
    }).pipe(
      Effect.ensuring(Effect.sync(() => this.inFlight.delete(session))),
      // It is written with its next change, and delays no other record.
      Effect.catchAllDefect(defect =>
        Effect.logError("The record of a session cannot be saved", Cause.die(defect)).pipe(
          Effect.annotateLogs({ session: session.key })
        )
      )
    )
  }

  private commit(session: Recorded) {
    return Effect.gen(this, function* () {
      const precondition = yield* this.replaceable(session)
      const { id, tenant } = session.record
      const value = JsonText(encodeRecord(session.toRecord()))
      const target = { namespace: namespaceOf(tenant), key: id }
      const { results } = yield* this.store.commit({
        actor: gatewayActor,
        operations: [{ op: "set", ...target, value, expiresAt: null, precondition }]
      })
      const [result] = results
      if (this.isShared && result?.op === "set") this.versions.set(session, result.version)
    })
  }

  private replaceable(session: Recorded): Effect.Effect<Precondition, StoreBusy | StoreUnavailable> {
    if (!this.isShared) return Effect.succeed(anyVersion)
    const known = this.versions.get(session)
    return known === undefined ? confirmedVersion(this.store, session) : Effect.succeed({ match: [known] })
  }

  private keepDirty(session: Recorded): Effect.Effect<void> {
    return Effect.sync(() => {
      this.dirty.add(session)
    })
  }

  /** Called if another writer has changed the record, or removed it. */
  private onChanged(session: Recorded, currentVersion: number | null): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (currentVersion !== null) {
        // The next attempt checks whether the session still belongs to this node.
        this.versions.delete(session)
        return this.keepDirty(session)
      }
      if (session.isDeleting) return Effect.void
      return Effect.annotateLogs(Effect.logWarning("The record of a session was removed by another client"), {
        session: session.key
      })
    })
  }
}
