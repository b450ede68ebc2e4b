/** Sends the entries of an import. */
import { Effect, Either, Option, Ref } from "effect"
import { operationIndexOf, serverTimeOf } from "../../Client/Errors.ts"
import type * as Client from "../../EffectClient/Client.ts"
import type { Line, TextLine } from "./Lines.ts"

/** An entry, and the line that it is from. */
export interface Item extends Line {
  readonly line: number
}

/** What is done with an entry that is there already. */
export type Existing = "replace" | "skip"

/** The limits of a batch. */
export interface Bounds {
  readonly operations: number
  /** Bytes of the lines. A single line may exceed it. */
  readonly bytes: number
}

/** What a batch has done. */
export interface Done {
  readonly written: number
  readonly skipped: number
  /** Entries whose time is over. */
  readonly expired: number
}

/** Gathers lines into portions that are sent as one batch each, in order. */
export async function* portions(
  lines: AsyncIterable<TextLine>,
  bounds: Bounds
): AsyncGenerator<ReadonlyArray<TextLine>, void> {
  let held: Array<TextLine> = []
  let size = 0
  for await (const line of lines) {
    const { length } = line.bytes
    if (held.length > 0 && (held.length >= bounds.operations || size + length > bounds.bytes)) {
      yield held
      held = []
      size = 0
    }
    held.push(line)
    size += length
  }
  if (held.length > 0) yield held
}

const operationOf = ({ expiresAt, key, namespace, value }: Item, existing: Existing) => ({
  op: "set" as const,
  namespace,
  key,
  value,
  ...(expiresAt !== undefined && { expiresAt }),
  ...(existing === "skip" && { ifVersion: 0 })
})

/** What the answers have told so far. */
export interface Learned {
  /**
   * The time by which the service has refused entries as expired, in epoch milliseconds; 0 before it has. The clock of
   * the client decides nothing.
   */
  readonly expiredBy: Ref.Ref<number>
  /** The entries of the batch that was sent last, by which errors count. */
  readonly sent: Ref.Ref<ReadonlyArray<Item>>
}

export const learned: Effect.Effect<Learned> = Effect.all({
  expiredBy: Ref.make(0),
  sent: Ref.make<ReadonlyArray<Item>>([])
})

/** Those of the entries that the store has. */
const present = (
  client: Client.Service,
  items: ReadonlyArray<Item>
): Effect.Effect<ReadonlyArray<Item>, Client.ClientError> =>
  Effect.map(client.getManyKeys(items), ({ items: found }) =>
    items.filter((_, index) => Option.isSome(found[index] ?? Option.none()))
  )

const addressOf = ({ key, namespace }: Item): string => JSON.stringify([namespace, key])

/** The first entry of each key, as a later one of the batch would find it there. */
const firstOfEach = (items: ReadonlyArray<Item>): ReadonlyArray<Item> => {
  const seen = new Set<string>()
  return items.filter(item => {
    const address = addressOf(item)
    return !seen.has(address) && seen.add(address)
  })
}

const isExpired = ({ expiresAt }: Item, now: number): boolean => expiresAt !== undefined && expiresAt <= now

/**
 * Writes entries as one batch, without those whose time is over by the clock of the service: it refuses them, and tells
 * its time. Where entries that are there are skipped, they are looked for once the batch is refused, and left out;
 * somebody else may write the next one meanwhile, so that it may take several turns.
 *
 * The effect may be repeated: what it has replaced is not replaced again. `name` is the idempotency key of its batch,
 * and a batch without some of the entries has another one.
 */
export const send = (
  client: Client.Service,
  items: ReadonlyArray<Item>,
  existing: Existing,
  { expiredBy, sent }: Learned,
  name: string
): Effect.Effect<Done, Client.ClientError> => {
  const attempt = (left: ReadonlyArray<Item>): Effect.Effect<Done, Client.ClientError> =>
    Effect.gen(function* () {
      const now = yield* Ref.get(expiredBy)
      const living = left.filter(item => !isExpired(item, now))
      const wanted = existing === "skip" ? firstOfEach(living) : living
      if (wanted.length > 0) {
        yield* Ref.set(sent, wanted)
        // What must be absent is written once at most, as it has a precondition.
        const options = existing === "skip" ? {} : { idempotencyKey: `${name}-${wanted.length}` }
        const operations = wanted.map(item => operationOf(item, existing))
        const refused = yield* Effect.either(client.batch(operations, options))
        if (Either.isLeft(refused)) return yield* afterRefusal(refused.left, living, wanted)
      }
      const expired = items.filter(item => isExpired(item, now)).length
      return { written: wanted.length, expired, skipped: items.length - wanted.length - expired }
    })
  const afterRefusal = (error: Client.ClientError, left: ReadonlyArray<Item>, wanted: ReadonlyArray<Item>) =>
    Effect.gen(function* () {
      if (error._tag === "PreconditionFailed") {
        const there = new Set((yield* present(client, wanted)).map(addressOf))
        // An entry that was deleted meanwhile is not there, and the batch may succeed as it is.
        return yield* attempt(left.filter(item => !there.has(addressOf(item))))
      }
      const now = serverTimeOf(error)
      // An answer that would not make the batch smaller is an error like any other.
      if (now === undefined || !wanted.some(item => isExpired(item, now))) return yield* error
      yield* Ref.update(expiredBy, known => Math.max(known, now))
      return yield* attempt(left)
    })
  return attempt(items)
}

/** The line that an error of the service is about. */
export const lineOf = (error: Client.ClientError, items: ReadonlyArray<Item>): number | undefined => {
  const index = operationIndexOf(error)
  return index === undefined ? undefined : items[index]?.line
}
