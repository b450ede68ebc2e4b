/**
 * The records of sessions in the key-value store, one entry for each.
 */
import { type Context, Effect, Option, type Scope } from "effect"
import { JsonText } from "../../Json/JsonText.ts"
import { type PreconditionFailed, type Store, type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { anyVersion, confirmedVersion, type Recorded, RecordSaver } from "./RecordSaver.ts"
import { addressOf, namespaceOf, readRecord, type SessionRecord } from "./SessionRecord.ts"

/** Reads and writes the records of all tenants. */
export interface SessionRecords {
  readonly find: (tenant: string, id: string) => Effect.Effect<Option.Option<SessionRecord>, StoreUnavailable>
  /** Whether there is an entry, also if it cannot be read. */
  readonly exists: (tenant: string, id: string) => Effect.Effect<boolean, StoreUnavailable>
  /** Those of some sessions that have no entry, by `<tenant>/<id>`. */
  readonly missing: (sessions: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<string>, StoreUnavailable>
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

/** Number of attempts to remove a record that other writers change. */
const removals = 10

const find = (
  store: Context.Tag.Service<Store>,
  tenant: string,
  id: string
): Effect.Effect<Option.Option<SessionRecord>, StoreUnavailable> =>
  Effect.gen(function* () {
    const found = yield* store.get(namespaceOf(tenant), id)
    const record = Option.flatMap(found, ({ value }) => readRecord(tenant, id, value))
    if (Option.isSome(found) && Option.isNone(record)) {
      yield* Effect.logWarning("The record of a session was changed by another client and cannot be read").pipe(
        Effect.annotateLogs({ tenant, id })
      )
    }
    return record
  })

/** Those of some sessions that have no entry. One that clients of the key-value store have made invalid is an entry. */
export const withoutEntry = (
  store: Pick<Context.Tag.Service<Store>, "getMany">,
  sessions: ReadonlyArray<string>
): Effect.Effect<ReadonlyArray<string>, StoreUnavailable> => {
  const addresses = sessions.map(session => {
    const [tenant, key] = addressOf(session)
    return { namespace: namespaceOf(tenant), key }
  })
  return Effect.map(
    // Without values, none of which can be too large.
    Effect.catchTag(store.getMany(addresses, 0, true), "EntriesTooLarge", Effect.die),
    ({ entries }) => sessions.filter((_, index) => entries[index] === undefined)
  )
}

/** Removes a record at the version that it has while the session is known to belong to this node. */
const remove = (
  store: Context.Tag.Service<Store>,
  isShared: boolean,
  session: Recorded,
  actor: string
): Effect.Effect<boolean, StoreBusy | StoreUnavailable> => {
  const { id, tenant } = session.record
  const target = { namespace: namespaceOf(tenant), key: id }
  return Effect.flatMap(isShared ? confirmedVersion(store, session) : Effect.succeed(anyVersion), precondition =>
    store.commit({ actor, operations: [{ op: "delete", ...target, precondition }] })
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
}

/** `isShared`: whether nodes share the store. Background work ends with the scope. */
export const make = (
  store: Context.Tag.Service<Store>,
  isShared: boolean
): Effect.Effect<SessionRecords, never, Scope.Scope> =>
  Effect.map(RecordSaver.make(store, isShared), saver => ({
    find: (tenant, id) => find(store, tenant, id),
    exists: (tenant, id) => Effect.map(store.get(namespaceOf(tenant), id), Option.isSome),
    missing: sessions => withoutEntry(store, sessions),
    create: (text, { tenant, id }, actor) => {
      const target = { namespace: namespaceOf(tenant), key: id, value: JsonText(text), expiresAt: null }
      return Effect.asVoid(
        store.commit({ actor, operations: [{ op: "set", ...target, precondition: { noneMatch: "any" } }] })
        // The write has no idempotency key.
      ).pipe(Effect.catchTag("IdempotencyConflict", Effect.die))
    },
    remove: (session, actor) => remove(store, isShared, session, actor),
    save: session => saver.save(session),
    isDirty: session => saver.isDirty(session),
    flush: saver.flush
  }))
