/**
 * The record of a session, which is one entry of the key-value store, and the records of all. Changed ones are written in
 * the background.
 */
import { Cause, Clock, type Context, Duration, Effect, Option, Schema, type Scope, Struct } from "effect"
import { JsonText } from "../../../base/Json/JsonText.ts"
import { randomHex } from "../../../base/RandomHex.ts"
import * as Supervision from "../../../base/Supervision.ts"
import { type PreconditionFailed, type Store, type StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import type { Precondition, SetOperation } from "../../../Kv/Write.ts"
import { LostPart, Session } from "../../Protocol/Fields.ts"
import { ofGateway } from "../../Protocol/Namespaces.ts"
import type { Summary } from "../../SessionEvents.ts"
import type { CreateSession } from "../../Sessions.ts"

/** 32 random hexadecimal digits. */
export const randomId: Effect.Effect<string> = randomHex(4)

/** An id for a session: its creation time in 12 hexadecimal digits, so that ids sort by it, and 24 random digits. */
export const sessionId: Effect.Effect<string> = Effect.zipWith(
  Clock.currentTimeMillis,
  randomHex(3),
  (now, random) => `${Math.trunc(now).toString(16).padStart(12, "0")}${random}`
)

/** The creation time in a session's id, in epoch milliseconds. */
export const timeOf = (id: string): number => Number.parseInt(id.slice(0, 12), 16)

/**
 * The maximum age of a session when its record is written, in milliseconds: other nodes remove what is stored of a session
 * that has no record for longer.
 */
export const longestCreation = Duration.toMillis("5 minutes")

const idPattern = /^[0-9a-f]{36}$/

/** Whether a text has the form of an id of this gateway: 36 lower-case hexadecimal digits. */
export const isSessionId = (text: string): boolean => idPattern.test(text)

/** `<tenant>/<id>`, which names a session among those of all tenants. */
export const keyOf = (tenant: string, id: string): string => `${tenant}/${id}`

/** The tenant and the id of a session named by {@link keyOf}. */
export const addressOf = (key: string): readonly [tenant: string, id: string] => {
  const slash = key.indexOf("/")
  return [key.slice(0, slash), key.slice(slash + 1)]
}

/** The namespace of a tenant's sessions; keys are their ids. */
export const namespaceOf = (tenant: string): string => ofGateway(tenant, "sessions")

/** A session as it is stored: what clients see, and which secrets and parts of the configuration it should have. */
export const SessionRecord = Schema.Struct({
  ...Struct.omit(
    Session.fields,
    ...(["lastEventAt", "running", "waiting", "failed", "missingSecrets", "missingConfiguration"] as const)
  ),
  /** Names of the secrets, which are kept in memory only. */
  secretNames: Schema.Array(Schema.String),
  /** The parts of the launch configuration, which are stored in the session database. */
  configured: Schema.Array(LostPart),
  /** Whether the title is final: given by the client or generated. */
  titled: Schema.Boolean
})
export type SessionRecord = (typeof SessionRecord)["Type"]

const RecordText = Schema.parseJson(SessionRecord)

/** A record as JSON text. */
export const encodeRecord = Schema.encodeSync(RecordText)

const decodeRecord = Schema.decodeOption(RecordText)

/** Parses the record of a tenant's session. None if it is invalid: clients of the key-value store can change it. */
export const readRecord = (tenant: string, id: string, text: string): Option.Option<SessionRecord> =>
  Option.filter(decodeRecord(text), record => record.id === id && record.tenant === tenant)

/** The record of a new session, with the id of its creation or a new one. `configured` are the parts of its launch configuration. */
export const initial = (
  tenant: string,
  { agentType, secrets = {}, title = "" }: CreateSession,
  configured: ReadonlyArray<LostPart>,
  chosen?: string
): Effect.Effect<SessionRecord> =>
  Effect.gen(function* () {
    const id = chosen ?? (yield* sessionId)
    const createdAt = timeOf(id)
    return {
      ...{ id, tenant, agentType, title, state: "inactive", instanceId: null, createdAt, updatedAt: createdAt },
      epoch: yield* randomId,
      headSeq: 0,
      secretNames: Object.keys(secrets),
      configured,
      titled: title !== ""
    } satisfies SessionRecord
  })

/** The secrets and parts of the launch configuration that were lost. */
export interface Losses {
  readonly secrets: ReadonlyArray<string>
  readonly configuration: ReadonlyArray<LostPart>
}

/** The losses of a session, by what its record names and what exists. */
export const lossesOf = (
  { configured, secretNames }: Pick<SessionRecord, "configured" | "secretNames">,
  secrets: Readonly<Record<string, unknown>>,
  parts: ReadonlyArray<LostPart>
): Losses => ({
  secrets: secretNames.filter(name => !Object.hasOwn(secrets, name)),
  configuration: configured.filter(part => !parts.includes(part))
})

/** What a session that has no events does. */
export const idle: Recent = { lastEventAt: null, running: false, waiting: false, failed: false }

/** What the history of a session knows in addition to its record. */
export type Recent = Pick<Summary, "lastEventAt" | "running" | "waiting" | "failed">

const recentOf = ({ failed, lastEventAt, running, waiting }: Recent) => ({
  ...(lastEventAt === null ? {} : { lastEventAt }),
  ...{ running, waiting, failed }
})

/** The view of a record for clients, with the losses of the session. `recent` is absent if it cannot be read. */
export const toView = (
  { id, tenant, agentType, title, state, instanceId, createdAt, updatedAt, epoch, headSeq }: Session,
  { configuration, secrets }: Losses,
  recent: Recent | undefined
): Session => ({
  ...{ id, tenant, agentType, title, state, instanceId, createdAt, updatedAt, epoch, headSeq },
  ...(recent === undefined ? {} : recentOf(recent)),
  ...(secrets.length === 0 ? {} : { missingSecrets: secrets }),
  ...(configuration.length === 0 ? {} : { missingConfiguration: configuration })
})

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

/** Number of attempts to remove a record that other writers change. */
const removals = 10

/** Holds for any record that exists. */
const anyVersion: Precondition = { match: "any" }

/**
 * The records of all tenants.
 *
 * If nodes share the store, a record is written only at the version that it had when the session was known to belong to
 * this node. A node that was paused while another one took the session changes nothing.
 */
export class SessionRecords {
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

  /** `isShared`: whether nodes share the store. Records are written until the scope closes. */
  static make(store: Context.Tag.Service<Store>, isShared: boolean): Effect.Effect<SessionRecords, never, Scope.Scope> {
    return Effect.suspend(() => {
      const records = new SessionRecords(store, isShared)
      return Effect.as(Supervision.forkScoped("saver of session records", records.saveForever), records)
    })
  }

  find(tenant: string, id: string): Effect.Effect<Option.Option<SessionRecord>, StoreUnavailable> {
    return Effect.gen(this, function* () {
      const found = yield* this.store.get(namespaceOf(tenant), id)
      const record = Option.flatMap(found, ({ value }) => readRecord(tenant, id, value))
      if (Option.isSome(found) && Option.isNone(record)) {
        yield* Effect.logWarning("The record of a session was changed by another client and cannot be read").pipe(
          Effect.annotateLogs({ tenant, id })
        )
      }
      return record
    })
  }

  /** Those of some sessions that have no entry. One that clients of the key-value store have made invalid is an entry. */
  missing(sessions: ReadonlyArray<string>): Effect.Effect<ReadonlyArray<string>, StoreUnavailable> {
    const addresses = sessions.map(session => {
      const [tenant, key] = addressOf(session)
      return { namespace: namespaceOf(tenant), key }
    })
    return Effect.map(
      // Without values, none of which can be too large.
      Effect.catchTag(this.store.getMany(addresses, 0, true), "EntriesTooLarge", Effect.die),
      ({ entries }) => sessions.filter((_, index) => entries[index] === undefined)
    )
  }

  create(
    text: string,
    { tenant, id }: SessionRecord,
    actor: string,
    also: ReadonlyArray<SetOperation> = []
  ): Effect.Effect<void, PreconditionFailed | StoreBusy | StoreUnavailable> {
    const target = { namespace: namespaceOf(tenant), key: id, value: JsonText(text), expiresAt: null }
    return this.store
      .commit({ actor, operations: [{ op: "set", ...target, precondition: { noneMatch: "any" } }, ...also] })
      .pipe(
        Effect.asVoid,
        // The write has no idempotency key.
        Effect.catchTag("IdempotencyConflict", Effect.die)
      )
  }

  /** Removes the record of a session that belongs to this node, and returns whether there was one. */
  remove(session: Recorded, actor: string): Effect.Effect<boolean, StoreBusy | StoreUnavailable> {
    const { id, tenant } = session.record
    const target = { namespace: namespaceOf(tenant), key: id }
    const version = this.isShared ? this.confirmedVersion(session) : Effect.succeed(anyVersion)
    return Effect.flatMap(version, precondition =>
      this.store.commit({ actor, operations: [{ op: "delete", ...target, precondition }] })
    ).pipe(
      Effect.as(true),
      // It was changed after its version was read, by this node or by another writer.
      Effect.retry({
        while: error => error._tag === "PreconditionFailed" && error.currentVersion !== null,
        times: removals
      }),
      Effect.catchTags({
        PreconditionFailed: ({ currentVersion }) =>
          currentVersion === null
            ? Effect.succeed(false)
            : Effect.fail(new StoreUnavailable({ reason: "the record of the session changes too often" })),
        IdempotencyConflict: Effect.die
      })
    )
  }

  /** Writes a session's record in the background. Changes before the write are written together. */
  save(session: Recorded): void {
    this.dirty.add(session)
    this.work.unsafeOpen()
  }

  /** Whether a record is to be written or being written. Until then a load would find an older one. */
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
    return known === undefined ? this.confirmedVersion(session) : Effect.succeed({ match: [known] })
  }

  /** The version of a record, read before the session is confirmed to belong to this node; any without a record. */
  private confirmedVersion(session: Recorded): Effect.Effect<Precondition, StoreBusy | StoreUnavailable> {
    const { id, tenant } = session.record
    return Effect.flatMap(this.store.get(namespaceOf(tenant), id), found =>
      Effect.as(
        session.confirm,
        Option.match(found, { onNone: () => anyVersion, onSome: ({ version }) => ({ match: [version] }) })
      )
    )
  }

  private keepDirty(session: Recorded): Effect.Effect<void> {
    return Effect.sync(() => void this.dirty.add(session))
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
