/**
 * The records of sessions in the key-value store, one entry for each.
 */
import { Cause, Clock, type Context, Effect, Option, Schema, type Scope, Struct } from "effect"
import { JsonText } from "../../Json/JsonText.ts"
import { type PreconditionFailed, type Store, type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { randomHex } from "../../RandomHex.ts"
import * as Supervision from "../../Supervision.ts"
import { LostPart, Session } from "../Protocol/Session.ts"
import type { CreateSession } from "../Sessions.ts"

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

const idPattern = /^[0-9a-f]{36}$/

export const isSessionId = (text: string): boolean => idPattern.test(text)

/** `<tenant>/<id>`, which names a session among those of all tenants. */
export const keyOf = (tenant: string, id: string): string => `${tenant}/${id}`

/** The namespace of a tenant's sessions; keys are their ids. */
export const namespaceOf = (tenant: string): string => `tenant:${tenant}/sessions`

const gatewayActor = "gateway"

/** A session as it is stored: what clients see, and which secrets and parts of the configuration it should have. */
export const SessionRecord = Schema.Struct({
  ...Struct.omit(Session.fields, "missingSecrets", "missingConfiguration"),
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

/** The record of a new session, with a new id. `configured` are the parts of its launch configuration. */
export const initial = (
  tenant: string,
  { agentType, secrets = {}, title = "" }: CreateSession,
  configured: ReadonlyArray<LostPart>
): Effect.Effect<SessionRecord> =>
  Effect.gen(function* () {
    const id = yield* sessionId
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

/** The view of a record for clients, with the losses of the session. */
export const toView = (
  { id, tenant, agentType, title, state, instanceId, createdAt, updatedAt, epoch, headSeq }: Session,
  { configuration, secrets }: Losses
): Session => ({
  ...{ id, tenant, agentType, title, state, instanceId, createdAt, updatedAt, epoch, headSeq },
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

export interface SessionRecords {
  readonly find: (tenant: string, id: string) => Effect.Effect<Option.Option<SessionRecord>, StoreUnavailable>
  readonly create: (
    text: string,
    record: SessionRecord,
    actor: string
  ) => Effect.Effect<void, PreconditionFailed | StoreBusy | StoreUnavailable>
  /** Removes the record of a session that belongs to this node, and reports whether there was one. */
  readonly remove: (session: Recorded, actor: string) => Effect.Effect<boolean, StoreBusy | StoreUnavailable>
  /** Writes a session's record in the background. Changes before the write are written together. */
  readonly save: (session: Recorded) => void
  /** Whether a record is to be written or being written. Until then a load would find an older one. */
  readonly isDirty: (session: Recorded) => boolean
  /** Writes the dirty records, as far as the store takes them. */
  readonly flush: Effect.Effect<void>
}

/** Number of records that are written concurrently. */
const concurrency = 32

/** Number of attempts to remove a record that other writers change. */
const removals = 10

/**
 * If nodes share the store, a record is written or removed only at the version that it had when the session was known to
 * belong to this node. A node that was paused while another one took the session changes nothing.
 */
export const make = (
  store: Context.Tag.Service<Store>,
  isShared: boolean
): Effect.Effect<SessionRecords, never, Scope.Scope> =>
  Effect.gen(function* () {
    /** The version of a shared record that this node may replace. */
    const versions = new WeakMap<Recorded, number>()
    const dirty = new Set<Recorded>()
    const inFlight = new Set<Recorded>()
    const work = yield* Effect.makeLatch(false)

    const warnUnreadable = (tenant: string, id: string) =>
      Effect.logWarning("The record of a session was changed by another client and cannot be read").pipe(
        Effect.annotateLogs({ tenant, id })
      )

    /** The version of the record. It is read before the session is confirmed to belong to this node. */
    const confirmedVersion = (session: Recorded) => {
      const { id, tenant } = session.record
      return Effect.flatMap(store.get(namespaceOf(tenant), id), found =>
        Effect.as(
          session.confirm,
          Option.match(found, { onNone: () => "any" as const, onSome: ({ version }) => [version] })
        )
      )
    }

    const replaceable = (session: Recorded) => {
      if (!isShared) return Effect.succeed("any" as const)
      const known = versions.get(session)
      return known === undefined ? confirmedVersion(session) : Effect.succeed([known])
    }

    const write = (session: Recorded): Effect.Effect<void> =>
      Effect.suspend(() => {
        if (!dirty.delete(session) || session.isDeleted || session.isGivenUp) return Effect.void
        inFlight.add(session)
        const { id, tenant } = session.record
        const keepDirty = Effect.sync(() => {
          dirty.add(session)
        })
        return Effect.flatMap(replaceable(session), match => {
          const value = JsonText(encodeRecord(session.toRecord()))
          const precondition = { match }
          return store.commit({
            actor: gatewayActor,
            operations: [{ op: "set", namespace: namespaceOf(tenant), key: id, value, expiresAt: null, precondition }]
          })
        }).pipe(
          Effect.flatMap(({ results: [result] }) => {
            if (isShared && result?.op === "set") versions.set(session, result.version)
            return Effect.void
          }),
          Effect.catchTag("PreconditionFailed", ({ currentVersion }) => {
            // Another writer has changed it. The next attempt checks whether the session still belongs to this node.
            if (currentVersion !== null)
              return Effect.zipRight(
                Effect.sync(() => versions.delete(session)),
                keepDirty
              )
            return session.isDeleting
              ? Effect.void
              : Effect.logWarning("The record of a session was removed by another client").pipe(
                  Effect.annotateLogs({ session: session.key })
                )
          }),
          Effect.catchAll(() => keepDirty),
          Effect.onInterrupt(() => keepDirty)
        )
      }).pipe(
        Effect.ensuring(Effect.sync(() => inFlight.delete(session))),
        // It is written with its next change, and delays no other record.
        Effect.catchAllDefect(defect =>
          Effect.logError("The record of a session cannot be saved", Cause.die(defect)).pipe(
            Effect.annotateLogs({ session: session.key })
          )
        )
      )

    // One at a time, so that a caller of `flush` also waits for the records in flight.
    const mutex = yield* Effect.makeSemaphore(1)
    const flush = Effect.suspend(() => Effect.forEach([...dirty], write, { concurrency, discard: true })).pipe(
      mutex.withPermits(1)
    )

    const saveDirty = Effect.gen(function* () {
      yield* work.await
      yield* work.close
      yield* flush
      if (dirty.size > 0) yield* Effect.zipRight(Effect.sleep("1 second"), work.open)
    })
    // A run that was interrupted may have left dirty records without a signal.
    const saving = Effect.zipRight(work.open, Effect.forever(saveDirty))
    yield* Supervision.forkScoped("saver of session records", saving)

    return {
      find: (tenant, id) =>
        Effect.gen(function* () {
          const found = yield* store.get(namespaceOf(tenant), id)
          const record = Option.flatMap(found, ({ value }) => readRecord(tenant, id, value))
          if (Option.isSome(found) && Option.isNone(record)) yield* warnUnreadable(tenant, id)
          return record
        }),
      create: (text, { tenant, id }, actor) => {
        const target = { namespace: namespaceOf(tenant), key: id, value: JsonText(text), expiresAt: null }
        return Effect.asVoid(
          store.commit({ actor, operations: [{ op: "set", ...target, precondition: { noneMatch: "any" } }] })
          // The write has no idempotency key.
        ).pipe(Effect.catchTag("IdempotencyConflict", Effect.die))
      },
      remove: (session, actor) => {
        const { id, tenant } = session.record
        const target = { namespace: namespaceOf(tenant), key: id }
        return Effect.flatMap(isShared ? confirmedVersion(session) : Effect.succeed("any" as const), match =>
          store.commit({ actor, operations: [{ op: "delete", ...target, precondition: { match } }] })
        ).pipe(
          Effect.as(true),
          // It was changed after its version was read, by the saver of this node or by another writer.
          Effect.retry({
            while: error => error._tag === "PreconditionFailed" && error.currentVersion !== null,
            times: removals
          }),
          Effect.catchTags({
            PreconditionFailed: ({ currentVersion }) =>
              currentVersion === null
                ? Effect.succeed(false)
                : Effect.fail(new StoreUnavailable({ reason: "the record of the session changes too often" })),
            // The write has no idempotency key.
            IdempotencyConflict: Effect.die
          })
        )
      },
      save: session => {
        dirty.add(session)
        work.unsafeOpen()
      },
      isDirty: session => dirty.has(session) || inFlight.has(session),
      flush
    }
  })
