/**
 * The records of sessions in the key-value store, one entry for each.
 */
import { Cause, Clock, type Context, Effect, Option, Schema, type Scope, Struct } from "effect"
import { JsonText } from "../../Json/JsonText.ts"
import { type PreconditionFailed, type Store, type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { randomHex } from "../../RandomHex.ts"
import * as Supervision from "../../Supervision.ts"
import { LostPart, Session } from "../Protocol/Session.ts"

/** 32 random hexadecimal digits. */
export const randomId: Effect.Effect<string> = randomHex(4)

/** An id for a session: 12 hexadecimal digits of its creation time, so that ids sort by it, and 24 random ones. */
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

/** A session as it is stored: what clients see, and what tells later that something was lost. */
export const SessionRecord = Schema.Struct({
  ...Struct.omit(Session.fields, "missingSecrets", "missingConfiguration"),
  /** Names of the secrets, which are held in memory only. */
  secretNames: Schema.Array(Schema.String),
  /** The parts of the launch configuration that the session was given; they are in the session database. */
  configured: Schema.Array(LostPart),
  /** Whether the title is final: given by the client, or generated. */
  titled: Schema.Boolean
})

export type SessionRecord = (typeof SessionRecord)["Type"]

const RecordText = Schema.parseJson(SessionRecord)

/** A record as JSON text. */
export const encodeRecord = Schema.encodeSync(RecordText)

const decodeRecord = Schema.decodeOption(RecordText)

/** The record of a tenant's session; none where the text is none, as somebody else may have changed it. */
export const readRecord = (tenant: string, id: string, text: string): Option.Option<SessionRecord> =>
  Option.filter(decodeRecord(text), record => record.id === id && record.tenant === tenant)

/** What a session lacks that it was given. */
export interface Losses {
  readonly secrets: ReadonlyArray<string>
  readonly configuration: ReadonlyArray<LostPart>
}

/** What a session lacks of the secrets and of the launch configuration that its record names. */
export const lossesOf = (
  { configured, secretNames }: Pick<SessionRecord, "configured" | "secretNames">,
  secrets: Readonly<Record<string, unknown>>,
  parts: ReadonlyArray<LostPart>
): Losses => ({
  secrets: secretNames.filter(name => !Object.hasOwn(secrets, name)),
  configuration: configured.filter(part => !parts.includes(part))
})

/** What clients see of a record, with what the session lacks. */
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
  /** The record with the present state. */
  readonly toRecord: () => SessionRecord
  /** Its removal has begun, and may be complete. */
  readonly isDeleting: boolean
  readonly isDeleted: boolean
  /** It belongs to another node. */
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
  /** Writes a session's record in the background; changes that come before that are written as one. */
  readonly save: (session: Recorded) => void
  /** Whether a record is still to be written, or being written: until then a load would find an older one. */
  readonly isDirty: (session: Recorded) => boolean
  /** Writes what is dirty, as far as the store takes it. */
  readonly flush: Effect.Effect<void>
}

/** Records that are written concurrently. */
const concurrency = 32

/** How often a removal is tried while others write the record. */
const removals = 10

/**
 * Where nodes share the store, a record is written or removed only at the version that was there when the session was
 * known to belong to this node: a node that was paused while another one took the session changes nothing.
 */
export const make = (
  store: Context.Tag.Service<Store>,
  isShared: boolean
): Effect.Effect<SessionRecords, never, Scope.Scope> =>
  Effect.gen(function* () {
    /** Of shared records: the version that this node may replace. */
    const versions = new WeakMap<Recorded, number>()
    const dirty = new Set<Recorded>()
    const inFlight = new Set<Recorded>()
    const work = yield* Effect.makeLatch(false)

    const warnUnreadable = (tenant: string, id: string) =>
      Effect.logWarning("The record of a session was changed by somebody else and cannot be read").pipe(
        Effect.annotateLogs({ tenant, id })
      )

    /** The version of the record, read before the session was confirmed to be this node's. */
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
            // Somebody has changed it. The next attempt finds out whether the session is still this node's.
            if (currentVersion !== null)
              return Effect.zipRight(
                Effect.sync(() => versions.delete(session)),
                keepDirty
              )
            return session.isDeleting
              ? Effect.void
              : Effect.logWarning("The record of a session was removed by somebody else").pipe(
                  Effect.annotateLogs({ session: session.key })
                )
          }),
          Effect.catchAll(() => keepDirty),
          Effect.onInterrupt(() => keepDirty)
        )
      }).pipe(
        Effect.ensuring(Effect.sync(() => inFlight.delete(session))),
        // It is written again with its next change, and delays no other record.
        Effect.catchAllDefect(defect =>
          Effect.logError("The record of a session cannot be saved", Cause.die(defect)).pipe(
            Effect.annotateLogs({ session: session.key })
          )
        )
      )

    // One at a time, so that whoever flushes waits for the records in flight as well.
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
          // It was changed after its version was read, by the saver of this node or by somebody else.
          Effect.retry({
            while: error => error._tag === "PreconditionFailed" && error.currentVersion !== null,
            times: removals
          }),
          Effect.catchTags({
            PreconditionFailed: ({ currentVersion }) =>
              currentVersion === null
                ? Effect.succeed(false)
                : Effect.fail(new StoreUnavailable({ reason: "the record of the session is written all the time" })),
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
