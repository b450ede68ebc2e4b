/**
 * A write and what it does: preconditions, versions and change records are decided here, without effects,
 * for every backend alike.
 */
// By its own path, as backends run this in a thread that the whole of effect would cost 40 MB.
import * as Either from "effect/Either"
import type { JsonText } from "../Json/JsonText.ts"
import { expiryActor, type StoredEntry } from "./Entry.ts"

/** What an entry must be for an operation to go ahead: RFC 9110 `If-Match` and `If-None-Match`. */
export interface Precondition {
  /** The entry is present, and at one of these versions unless `"any"`. */
  readonly match?: "any" | ReadonlyArray<number>
  /** The entry is absent (`"any"`), or at none of these versions. */
  readonly noneMatch?: "any" | ReadonlyArray<number>
}

/** The precondition of a batch operation's `ifVersion`: 0 means absent, any other number that very version. */
export const ifVersion = (version: number): Precondition =>
  version === 0 ? { noneMatch: "any" } : { match: [version] }

export interface SetOperation {
  readonly op: "set"
  readonly namespace: string
  readonly key: string
  readonly value: JsonText
  /** Epoch milliseconds, or `null` to keep the entry for ever. */
  readonly expiresAt: number | null
  readonly precondition?: Precondition
}

export interface DeleteOperation {
  readonly op: "delete"
  readonly namespace: string
  readonly key: string
  readonly precondition?: Precondition
}

export type Operation = SetOperation | DeleteOperation

/**
 * Entries to delete: those of a namespace whose key starts with `prefix`, literally, the first ones in the order of
 * lists.
 */
export interface Removal {
  readonly namespace: string
  readonly prefix: string
  /** The most entries that are deleted. */
  readonly limit: number
}

/** What a write is remembered by. */
export interface IdempotencyKey {
  /** In whose share of `Limits.idempotencyBytes` it is remembered; `""` where it is nobody's. */
  readonly tenant: string
  /** Names the key among those of all clients: a digest of at most 64 characters. */
  readonly id: string
  /** A digest of the request, of at most 64 characters. The same key with another one is refused. */
  readonly digest: string
}

/** Operations that one actor wants applied in order, all or none. A single PUT or DELETE is a write of one. */
export interface Write {
  readonly operations: ReadonlyArray<Operation>
  readonly actor: string
  /** Deletes entries, which are looked for when the write is applied; the write has no operations then. */
  readonly removal?: Removal
  /**
   * The write is remembered by this in its own transaction if it is applied. Repeated, it has the results of the first
   * time, and applies nothing.
   */
  readonly idempotencyKey?: IdempotencyKey
}

/** What became of one operation. A set tells the entry as it was stored. */
export type OperationResult =
  | { readonly op: "set"; readonly version: number; readonly entry: StoredEntry }
  | { readonly op: "delete"; readonly deleted: boolean }

/** What became of a write. `timestamp` (epoch milliseconds) is that of all its change records. */
export interface Committed {
  readonly results: ReadonlyArray<OperationResult>
  readonly timestamp: number
  /** The log's last `seq` once this write is in it. */
  readonly lastSeq: number
  /** Of a removal, whether it has left entries that its prefix selects. */
  readonly more?: boolean
  /** Whether the write was applied before and is remembered; all else is of that time. */
  readonly isReplay?: boolean
}

/** What a backend decided of one operation. `version` is the one that the operation made. */
export type PlannedResult =
  | { readonly op: "set"; readonly version: number }
  | { readonly op: "delete"; readonly deleted: boolean }

/** What a backend tells of a write that it has applied. */
export interface Applied {
  readonly results: ReadonlyArray<PlannedResult>
  readonly timestamp: number
  readonly lastSeq: number
  readonly more?: boolean
  readonly isReplay?: boolean
  /** Of a write that was applied before: when each operation's entry expires or expired. */
  readonly expiries?: ReadonlyArray<number | null>
}

/** A write with an idempotency key by which another one is remembered. It is not applied. */
export interface KeyReused {
  readonly _tag: "KeyReused"
}

/** Makes the entry when it is asked for: the answer to a batch needs none. */
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

/** What the caller of a commit is told of a write that was applied. */
export const committed = (
  { actor, operations }: Write,
  { expiries, isReplay, lastSeq, more, results, timestamp }: Applied
): Committed => ({
  results: results.map((result, index): OperationResult => {
    // A removal has results alone.
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

/**
 * The write that a removal comes to, given the keys of the entries that are there, of which there is one more than it
 * deletes where there are more.
 */
export const removing = (
  { limit, namespace }: Removal,
  keys: ReadonlyArray<string>,
  actor: string
): { readonly write: Write; readonly more: boolean } => ({
  write: { operations: keys.slice(0, limit).map(key => ({ op: "delete", namespace, key })), actor },
  more: keys.length > limit
})

/** An operation of a write whose precondition does not hold; nothing of the write is applied. */
export interface Refused {
  readonly _tag: "Refused"
  /** Index of the operation in the write. */
  readonly index: number
  /** The version that is there, as if the write had never been tried; `null` when the entry is absent. */
  readonly currentVersion: number | null
  /** Whether an earlier operation of the write changes the key, so that the precondition was held against that. */
  readonly isChangedBefore: boolean
}

/** What a backend knows of a key: its newest version, and whether that is an entry or a tombstone. */
export interface KeyState {
  readonly version: number
  readonly present: boolean
  readonly expiresAt: number | null
}

/** One step to apply, in order; each becomes one change record with the next `seq`. */
export type Step<State extends KeyState = KeyState> = {
  readonly namespace: string
  readonly key: string
  readonly version: number
  readonly actor: string
  /** What the backend said of the key, unless an earlier step of the write has changed it. */
  readonly before?: State | undefined
} & ({ readonly op: "set"; readonly value: JsonText; readonly expiresAt: number | null } | { readonly op: "delete" })

export interface Plan<State extends KeyState = KeyState> {
  readonly steps: ReadonlyArray<Step<State>>
  readonly results: ReadonlyArray<PlannedResult>
}

/** Whether a state is of an entry that readers see at `now`. */
export const isLive = (state: KeyState | undefined, now: number): state is KeyState =>
  state?.present === true && (state.expiresAt === null || state.expiresAt > now)

/** Whether a precondition holds for the version that is there (`null` when absent). */
export const holds = (precondition: Precondition | undefined, current: number | null): boolean => {
  if (precondition === undefined) return true
  const { match, noneMatch } = precondition
  if (match !== undefined && (current === null || (match !== "any" && !match.includes(current)))) return false
  if (noneMatch === undefined || current === null) return true
  return noneMatch !== "any" && !noneMatch.includes(current)
}

/**
 * Decides what a write does at `now` (epoch milliseconds), given the state of each key before it.
 *
 * An expired entry that is still stored is deleted by the actor `expiry` before it is set again, ahead of the
 * write's own steps, so that the log shows what readers saw and the write's records stay consecutive.
 */
export const plan = <State extends KeyState>(
  { actor, operations }: Write,
  stateOf: (namespace: string, key: string) => State | undefined,
  now: number
): Either.Either<Plan<State>, Refused> => {
  // Keys as the write itself has left them; one of a single operation comes back to none.
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
      // A version that only this write would have made will never exist.
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
      // Only an entry from before this write gets a change record of its expiry: one that the write itself
      // set with a time already past is simply replaced.
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
