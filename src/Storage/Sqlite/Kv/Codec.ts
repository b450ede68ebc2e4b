/**
 * Packs writes and their outcomes for messages between threads.
 */
import type { JsonText } from "../../../Json/JsonText.ts"
import type { Comparison } from "../../../Kv/IdempotencyShares.ts"
import type {
  Applied,
  IdempotencyKey,
  KeyReused,
  Operation,
  PlannedResult,
  Precondition,
  Refused,
  Write
} from "../../../Kv/Write.ts"
import type { Codec, Packer, Unpacker } from "../Database/Messages.ts"

/** The outcome of one write of a group. */
export type Outcome = Done | Refused | KeyReused

/** A write that was applied, now or earlier. */
interface Done {
  readonly _tag: "Committed"
  readonly committed: Applied
  /** The result of the comparison of tenants that its group caused. */
  readonly comparison?: Comparison
}

/** Represents a value, a tag or a precondition that is absent, and the tag `"any"`. */
const absent = -1
const anyVersion = -2

/** Represents the idempotency key that follows, instead of the number of operations. */
const keyed = -3

const packIdempotencyKey = (packer: Packer, { digest, id, tenant }: IdempotencyKey): void => {
  packer.number(keyed)
  packer.text(tenant)
  packer.text(id)
  packer.text(digest)
}

const packVersions = (packer: Packer, versions: Precondition["match"]): void => {
  if (versions === undefined) packer.number(absent)
  else if (versions === "any") packer.number(anyVersion)
  else {
    packer.number(versions.length)
    for (const version of versions) packer.number(version)
  }
}

const unpackVersions = (unpacker: Unpacker): Precondition["match"] => {
  const length = unpacker.number()
  if (length === absent) return undefined
  return length === anyVersion ? "any" : Array.from({ length }, () => unpacker.number())
}

/** A write is packed as its operations, whose values are texts. An outcome is packed if the write was committed. */
export const codec: Codec<Write, Outcome> = {
  packWrite: (packer, { actor, idempotencyKey, operations, prefixDelete }) => {
    if (prefixDelete !== undefined) return false
    packer.text(actor)
    if (idempotencyKey !== undefined) packIdempotencyKey(packer, idempotencyKey)
    packer.number(operations.length)
    for (const operation of operations) {
      const { key, namespace, precondition } = operation
      packer.text(namespace)
      packer.text(key)
      if (operation.op === "delete") packer.number(absent)
      else {
        packer.text(operation.value)
        packer.number(operation.expiresAt ?? Number.NaN)
      }
      if (precondition === undefined) packer.number(absent)
      else {
        packer.number(0)
        packVersions(packer, precondition.match)
        packVersions(packer, precondition.noneMatch)
      }
    }
    return true
  },
  unpackWrite: unpacker => {
    const actor = unpacker.text()
    const idempotencyKey = unpacker.skip(keyed)
      ? { tenant: unpacker.text(), id: unpacker.text(), digest: unpacker.text() }
      : undefined
    const operations: Array<Operation> = []
    for (let left = unpacker.number(); left > 0; left--) operations.push(unpackOperation(unpacker))
    return idempotencyKey === undefined ? { operations, actor } : { operations, actor, idempotencyKey }
  },
  packOutcome: (packer, outcome) => {
    if (outcome._tag !== "Committed" || outcome.comparison !== undefined) return false
    if (outcome.committed.more !== undefined || outcome.committed.isReplay) return false
    const { lastSeq, results, timestamp } = outcome.committed
    packer.number(timestamp)
    packer.number(lastSeq)
    packer.number(results.length)
    // The version of a set, 0 for a delete, and -1 for a delete of what was absent.
    for (const result of results) packer.number(result.op === "set" ? result.version : result.deleted ? 0 : absent)
    return true
  },
  unpackOutcome: unpacker => {
    const timestamp = unpacker.number()
    const lastSeq = unpacker.number()
    const results: Array<PlannedResult> = []
    for (let left = unpacker.number(); left > 0; left--) {
      const result = unpacker.number()
      results.push(result > 0 ? { op: "set", version: result } : { op: "delete", deleted: result !== absent })
    }
    return { _tag: "Committed", committed: { results, timestamp, lastSeq } }
  }
}

const unpackOperation = (unpacker: Unpacker): Operation => {
  const namespace = unpacker.text()
  const key = unpacker.text()
  if (unpacker.skip(absent)) return { op: "delete", namespace, key, ...unpackPrecondition(unpacker) }
  const value = unpacker.text() as JsonText
  const expiry = unpacker.number()
  const expiresAt = Number.isNaN(expiry) ? null : expiry
  return { op: "set", namespace, key, value, expiresAt, ...unpackPrecondition(unpacker) }
}

const unpackPrecondition = (unpacker: Unpacker): { readonly precondition: Precondition } | undefined => {
  if (unpacker.number() === absent) return undefined
  const match = unpackVersions(unpacker)
  const noneMatch = unpackVersions(unpacker)
  return { precondition: { ...(match && { match }), ...(noneMatch && { noneMatch }) } }
}
