/** Sends the batches of an import. */
import { Effect, Either, Option, Ref } from "effect"
import type { RawJson } from "../../base/Json/JsonText.ts"
import type * as Client from "../../Client/Effect/Client.ts"
import { type EntryLine, type Existing, ImportBatch, type Imported } from "../../Client/EntryLines.ts"
import { operationIndexOf, serverTimeOf } from "../../Client/Errors.ts"

/** An entry of a line, with the text of its value. */
export type Item = EntryLine<RawJson>

/** What an import knows from the answers so far. */
export interface BatchState {
  /** The latest time that the service has reported, in epoch milliseconds; 0 before. The client's clock is not used. */
  readonly serverTime: Ref.Ref<number>
  /** The entries of the batch that was sent last: errors name an entry by its index. */
  readonly sent: Ref.Ref<ReadonlyArray<Item>>
}

/** The state at the start of an import. */
export const initialState: Effect.Effect<BatchState> = Effect.all({
  serverTime: Ref.make(0),
  sent: Ref.make<ReadonlyArray<Item>>([])
})

const operationOf = ({ expiresAt, key, namespace, value }: Item, existing: Existing) => ({
  op: "set" as const,
  namespace,
  key,
  value,
  ...(expiresAt !== undefined && { expiresAt }),
  ...(existing === "skip" && { ifVersion: 0 })
})

/** The entries of the store among these. */
const findExisting = (
  client: Client.Service,
  items: ReadonlyArray<Item>
): Effect.Effect<ReadonlyArray<Item>, Client.ClientError> =>
  Effect.map(client.getManyKeys(items), ({ items: found }) =>
    items.filter((_, index) => Option.isSome(found[index] ?? Option.none()))
  )

/**
 * Writes entries as one batch, without those that are left out by the rules of {@link ImportBatch}.
 *
 * The effect may be repeated after a lost answer: `id` is the idempotency key of its batch, so that no entry is replaced
 * twice. A batch without some of the entries has another key.
 */
export const send = (
  client: Client.Service,
  items: ReadonlyArray<Item>,
  existing: Existing,
  { sent, serverTime }: BatchState,
  id: string
): Effect.Effect<Imported, Client.ClientError> => {
  const attempt = (batch: ImportBatch<Item>): Effect.Effect<Imported, Client.ClientError> =>
    Effect.gen(function* () {
      const { entries } = batch
      if (entries.length === 0) return batch.outcome
      yield* Ref.set(sent, entries)
      // With a precondition the batch is applied once anyway.
      const options = existing === "skip" ? {} : { idempotencyKey: `${id}-${entries.length}` }
      const operations = entries.map(item => operationOf(item, existing))
      const written = yield* Effect.either(client.batch(operations, options))
      return Either.isLeft(written) ? yield* afterRefusal(written.left, batch) : batch.outcome
    })
  const afterRefusal = (error: Client.ClientError, batch: ImportBatch<Item>) =>
    Effect.gen(function* () {
      if (existing === "skip" && error._tag === "PreconditionFailed") {
        // If the entry was deleted since then, none is found, and the same batch may succeed.
        return yield* attempt(batch.withoutExisting(yield* findExisting(client, batch.entries)))
      }
      const now = serverTimeOf(error)
      const smaller = now === undefined ? undefined : batch.withoutExpired(now)
      if (now === undefined || smaller === undefined) return yield* error
      yield* Ref.update(serverTime, known => Math.max(known, now))
      return yield* attempt(smaller)
    })
  return Effect.flatMap(Ref.get(serverTime), now => attempt(ImportBatch.of(items, existing, now)))
}

/** The line that an error of the service names by the index of its operation. */
export const lineOf = (error: Client.ClientError, sent: ReadonlyArray<Item>): number | undefined => {
  const index = operationIndexOf(error)
  return index === undefined ? undefined : sent[index]?.line
}
