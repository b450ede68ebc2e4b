/**
 * A write and its effects. Preconditions, versions and change records are decided here, without effects, for every
 * backend.
 */
// A direct path: backends run this in a thread, where the index of effect would use 40 MB.
import * as Either from "effect/Either"
import type { JsonText } from "../base/Json/JsonText.ts"
import { type Address, expiryActor, type StoredEntry } from "./Entry.ts"

/** The condition of an operation on its entry: RFC 9110 `If-Match` and `If-None-Match`. */
export interface Precondition {
  /** The entry is present, and at one of these versions unless `"any"`. */
  readonly match?: "any" | ReadonlyArray<number>
  /** The entry is absent (`"any"`), or at none of these versions. */
  readonly noneMatch?: "any" | ReadonlyArray<number>
}

/** The precondition of a batch operation's `ifVersion`: 0 means absent, any other number that version. */
export const ifVersion = (version: number): Precondition =>
  version === 0 ? { noneMatch: "any" } : { match: [version] }

/** Replaces an entry, including its expiry. */
export interface SetOperation extends Address {
  readonly op: "set"
  readonly value: JsonText
  /** Epoch milliseconds, or `null` if the entry does not expire. */
  readonly expiresAt: number | null
  readonly precondition?: Precondition
}

/** Deletes an entry. Without one it changes nothing. */
export interface DeleteOperation extends Address {
  readonly op: "delete"
  readonly precondition?: Precondition
}

export type Operation = SetOperation | DeleteOperation

/**
 * The entries to delete: the first ones, in the order of lists, of a namespace whose key has the literal prefix
 * `prefix`.
 */
export interface PrefixDelete {
  readonly namespace: string
  readonly prefix: string
  /** The maximum number of entries to delete. */
  readonly limit: number
}

/** The identity of a write. */
export interface IdempotencyKey {
  /** The tenant in whose share of `Limits.idempotencyBytes` the result is stored; `""` if it is in no tenant's. */
  readonly tenant: string
  /** Identifies the key among those of all clients: a digest of at most 64 characters. */
  readonly id: string
  /** A digest of the request, of at most 64 characters. The same key with another digest is refused. */
  readonly digest: string
}

/** Operations of one actor, applied in order, all or none. A single PUT or DELETE is a write of one. */
export interface Write {
  readonly operations: ReadonlyArray<Operation>
  readonly actor: string
  /** Deletes entries that are selected when the write is applied. The write has no operations then. */
  readonly prefixDelete?: PrefixDelete
  /**
   * If the write is applied, its result is stored under this key in the same transaction. A repeated write returns that
   * result, and applies nothing.
   */
  readonly idempotencyKey?: IdempotencyKey
}

/** The outcome of one operation. That of a set has the entry as it was stored. */
export type OperationResult =
  | { readonly op: "set"; readonly version: number; readonly entry: StoredEntry }
  | { readonly op: "delete"; readonly deleted: boolean }

/** A backend's outcome of one operation. `version` is the new one. */
export type PlannedResult =
  | { readonly op: "set"; readonly version: number }
  | { readonly op: "delete"; readonly deleted: boolean }

interface Outcome<Result> {
  readonly results: ReadonlyArray<Result>
  /** Of all its change records, in epoch milliseconds. */
  readonly timestamp: number
  /** The last `seq` of the log after this write. */
  readonly lastSeq: number
  /** For a delete of a prefix: whether it has left entries with its prefix. */
  readonly more?: boolean
  /** Whether this is the stored result of an earlier write with the same key. */
  readonly isReplay?: boolean
}

export interface Committed extends Outcome<OperationResult> {}

/** A backend's outcome of a write that it has applied. */
export interface Applied extends Outcome<PlannedResult> {
  /** Of a replayed write: when each operation's entry expires or has expired. */
  readonly expiries?: ReadonlyArray<number | null>
}

/** The idempotency key belongs to another write. This one is not applied. */
export interface KeyReused {
  readonly _tag: "KeyReused"
}

/** Creates the entry on demand: the answer to a batch needs none. */
class SetResult {
  readonly op = "set"

  constructor(
    private readonly operation: SetOperation,
    readonly version: number,
    private readonly actor: string,
    private readonly timestamp: number
  ) {}

  get entry(): StoredEntry {
    const { expiresAt, key, namespace, value } = this.operation
    const { actor: updatedBy, timestamp: updatedAt, version } = this
    return { namespace, key, value, version, updatedBy, updatedAt, expiresAt }
  }
}

/** The outcome of a write, as its caller receives it. */
export const committed = (
  { actor, operations }: Write,
  { expiries, isReplay, lastSeq, more, results, timestamp }: Applied
): Committed => ({
  results: results.map((result, index): OperationResult => {
    // A delete of a prefix has results only.
    const operation = operations[index]
    return result.op === "set" && operation?.op === "set"
      ? new SetResult(
          expiries === undefined ? operation : { ...operation, expiresAt: expiries[index] ?? null },
          result.version,
          actor,
          timestamp
        )
      : { op: "delete", deleted: result.op === "delete" && result.deleted }
  }),
  timestamp,
  lastSeq,
  ...(more === undefined ? undefined : { more }),
  ...(isReplay === undefined ? undefined : { isReplay })
})

/** Converts a delete of a prefix into a write. `keys` has the keys of the selected entries, at most one more than the limit. */
export const writeOfPrefix = (
  { limit, namespace }: PrefixDelete,
  keys: ReadonlyArray<string>,
  actor: string
): { readonly write: Write; readonly more: boolean } => ({
  write: { operations: keys.slice(0, limit).map(key => ({ op: "delete", namespace, key })), actor },
  more: keys.length > limit
})

/** A precondition of an operation does not hold. Nothing of the write is applied. */
export interface Refused {
  readonly _tag: "Refused"
  /** Index of the operation in the write. */
  readonly index: number
  /** The current version, as if the write had never been tried; `null` if the entry is absent. */
  readonly currentVersion: number | null
  /**
   * Whether an earlier operation of the write changes the key. Then the precondition was checked against that change.
   */
  readonly isChangedBefore: boolean
}

/** The state of a key: its newest version, and whether that is an entry or a tombstone. */
export interface KeyState {
  readonly version: number
  readonly present: boolean
  readonly expiresAt: number | null
}

/** One step to apply, in order. Each becomes one change record with the next `seq`. */
export type Step<State extends KeyState = KeyState> = Address & {
  readonly version: number
  readonly actor: string
  /** The backend's state of the key, unless an earlier step of the write has changed it. */
  readonly before?: State | undefined
} & ({ readonly op: "set"; readonly value: JsonText; readonly expiresAt: number | null } | { readonly op: "delete" })

/** What a write does: its steps, in order, and a result for each operation. */
export interface Plan<State extends KeyState = KeyState> {
  readonly steps: ReadonlyArray<Step<State>>
  readonly results: ReadonlyArray<PlannedResult>
}

/** Whether a state is that of an entry that readers see at `now`. */
export const isLive = (state: KeyState | undefined, now: number): state is KeyState =>
  state?.present === true && (state.expiresAt === null || state.expiresAt > now)

/** Whether a precondition holds for the current version (`null` if the entry is absent). */
export const holds = (precondition: Precondition | undefined, current: number | null): boolean => {
  if (precondition === undefined) return true
  const { match, noneMatch } = precondition
  if (match !== undefined && (current === null || (match !== "any" && !match.includes(current)))) return false
  if (noneMatch === undefined || current === null) return true
  return noneMatch !== "any" && !noneMatch.includes(current)
}

/**
 * Decides what a write does at `now` (epoch milliseconds). `stateOf` returns the state of a key before the write.
 *
 * If a set replaces an entry that has expired and is still stored, the actor `expiry` deletes that entry first, before
 * the write's own steps. The log then shows what readers saw, and the write's records stay consecutive.
 */
export const plan = <State extends KeyState>(
  { actor, operations }: Write,
  stateOf: (namespace: string, key: string) => State | undefined,
  now: number
): Either.Either<Plan<State>, Refused> => {
  // Keys in the state that this write leaves them in. A single operation does not need it.
  const written = operations.length > 1 ? new Map<string, KeyState>() : undefined
  const expiries: Array<Step<State>> = []
  const steps: Array<Step<State>> = []
  const results: Array<PlannedResult> = []
  for (let index = 0; index < operations.length; index++) {
    const operation = operations[index]!
    const { namespace, key } = operation
    const id = written === undefined ? "" : `${namespace}\u0000${key}`
    const own = written?.get(id)
    let before = own === undefined ? stateOf(namespace, key) : undefined
    const state = own ?? before
    const current = isLive(state, now) ? state.version : null
    if (!holds(operation.precondition, current)) {
      // A version that only this write would create will never exist.
      const original = own === undefined ? state : stateOf(namespace, key)
      const currentVersion = isLive(original, now) ? original.version : null
      return Either.left({ _tag: "Refused", index, currentVersion, isChangedBefore: own !== undefined })
    }
    if (operation.op === "delete") {
      if (current === null) {
        results.push({ op: "delete", deleted: false })
        continue
      }
      const version = current + 1
      steps.push({ op: "delete", namespace, key, version, actor, before })
      results.push({ op: "delete", deleted: true })
      written?.set(id, { version, present: false, expiresAt: null })
    } else {
      const { expiresAt, value } = operation
      let version = state?.version ?? 0
      // Only an entry from before this write gets a change record of its expiry. An entry that the write itself has set
      // with a past time is simply replaced.
      if (before?.present === true && current === null) {
        version++
        expiries.push({ op: "delete", namespace, key, version, actor: expiryActor, before })
        before = undefined
      }
      version++
      steps.push({ op: "set", namespace, key, value, expiresAt, version, actor, before })
      results.push({ op: "set", version })
      written?.set(id, { version, present: true, expiresAt })
    }
  }
  return Either.right({ steps: expiries.length === 0 ? steps : [...expiries, ...steps], results })
}
