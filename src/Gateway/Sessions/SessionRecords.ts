import { Cause, type Context, Effect, Either, Option, type Scope } from "effect"
import { JsonText } from "../../Json/JsonText.ts"
import type { PreconditionFailed, Store, StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import * as Supervision from "../../Supervision.ts"
import type { Entity } from "./Entity.ts"
import { decodeRecord, encodeRecord, gatewayActor, namespaceOf, type SessionRecord } from "./SessionRecord.ts"

/** The records of sessions in the key-value store. */
export interface Records {
  readonly find: (tenant: string, id: string) => Effect.Effect<Option.Option<SessionRecord>, StoreUnavailable>
  readonly create: (
    text: string,
    record: SessionRecord,
    actor: string
  ) => Effect.Effect<void, PreconditionFailed | StoreBusy | StoreUnavailable>
  /** Tells whether there was one. */
  readonly remove: (tenant: string, id: string, actor: string) => Effect.Effect<boolean, StoreBusy | StoreUnavailable>
  /** Has an entity's record written soon; changes that come before that are written as one. */
  readonly save: (entity: Entity) => void
  /** Writes what is still to be written, as far as the store takes it. */
  readonly flush: Effect.Effect<void>
}

/** Records that are written at once. */
const concurrency = 32

export const make = (store: Context.Tag.Service<Store>): Effect.Effect<Records, never, Scope.Scope> =>
  Effect.gen(function* () {
    const dirty = new Set<Entity>()
    const work = yield* Effect.makeLatch(false)

    const decode = (tenant: string, id: string, text: string): Effect.Effect<Option.Option<SessionRecord>> => {
      const decoded = decodeRecord(text)
      if (Either.isRight(decoded) && decoded.right.id === id && decoded.right.tenant === tenant) {
        return Effect.succeedSome(decoded.right)
      }
      return Effect.as(
        Effect.logWarning("The record of a session was changed by somebody else and cannot be read").pipe(
          Effect.annotateLogs({ tenant, id })
        ),
        Option.none()
      )
    }

    const markDirty = (entity: Entity): void => {
      entity.isDirty = true
      dirty.add(entity)
    }

    const write = (entity: Entity): Effect.Effect<void> =>
      Effect.suspend(() => {
        const isDue = entity.isDirty && !entity.isDeleted
        entity.isDirty = false
        dirty.delete(entity)
        if (!isDue) return Effect.void
        const { id, tenant } = entity.record
        const value = JsonText(encodeRecord(entity.toRecord()))
        const precondition = { match: "any" } as const
        return store
          .commit({
            actor: gatewayActor,
            operations: [{ op: "set", namespace: namespaceOf(tenant), key: id, value, expiresAt: null, precondition }]
          })
          .pipe(
            Effect.asVoid,
            Effect.catchTag("PreconditionFailed", () =>
              // Of a session that is being deleted the gateway itself has removed it.
              entity.isGoing || entity.isDeleted
                ? Effect.void
                : Effect.logWarning("The record of a session was removed by somebody else").pipe(
                    Effect.annotateLogs({ session: entity.key })
                  )
            ),
            Effect.catchAll(() => Effect.sync(() => markDirty(entity))),
            Effect.onInterrupt(() => Effect.sync(() => markDirty(entity)))
          )
      }).pipe(
        // It is written again with its next change, and keeps no other record waiting.
        Effect.catchAllDefect(defect =>
          Effect.logError("The record of a session cannot be saved", Cause.die(defect)).pipe(
            Effect.annotateLogs({ session: entity.key })
          )
        )
      )

    const flush = Effect.suspend(() => Effect.forEach([...dirty], write, { concurrency, discard: true }))

    const saver = Effect.gen(function* () {
      yield* work.await
      yield* work.close
      yield* flush
      // What the store did not take waits; there is no use in asking it again at once.
      if (dirty.size > 0) yield* Effect.zipRight(Effect.sleep("1 second"), work.open)
    })
    // A run that was cut off may have left records behind without a signal.
    const saving = Effect.zipRight(work.open, Effect.forever(saver))
    yield* Supervision.forkScoped("saver of session records", saving)

    return {
      find: (tenant, id) =>
        Effect.flatMap(
          store.get(namespaceOf(tenant), id),
          Option.match({ onNone: () => Effect.succeedNone, onSome: ({ value }) => decode(tenant, id, value) })
        ),
      create: (text, { tenant, id }, actor) =>
        Effect.asVoid(
          store.commit({
            actor,
            operations: [
              {
                op: "set",
                namespace: namespaceOf(tenant),
                key: id,
                value: JsonText(text),
                expiresAt: null,
                precondition: { noneMatch: "any" }
              }
            ]
          })
        ),
      remove: (tenant, id, actor) =>
        Effect.map(
          store.commit({ actor, operations: [{ op: "delete", namespace: namespaceOf(tenant), key: id }] }),
          ({ results: [result] }) => result?.op === "delete" && result.deleted
          // A delete without precondition is never refused.
        ).pipe(Effect.catchTag("PreconditionFailed", Effect.die)),
      save: entity => {
        markDirty(entity)
        work.unsafeOpen()
      },
      flush
    }
  })
