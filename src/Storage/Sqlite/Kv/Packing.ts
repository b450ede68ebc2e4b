import type { JsonText } from "../../../Json/JsonText.ts"
import type { Operation, PlannedResult, Precondition, Write } from "../../../Kv/Write.ts"
import type { WriteFailure } from "../Database/Messages.ts"
import { type Codec, type Packed, Packer, Unpacker } from "../Database/Messages.ts"
import type { Outcome } from "./Writer.ts"

/**
 * A group of writes. For each the packed text has its actor and the number of its operations; for each of these the
 * namespace, the key, the value, and when it expires. A delete has a value of length -1; `NaN` stands for `null`.
 */
interface PackedWrites extends Packed {
  /** By the position of the operation in the group; few have one. */
  readonly preconditions: ReadonlyMap<number, Precondition>
}

type OtherOutcome = Exclude<Outcome, { _tag: "Committed" }> | WriteFailure

interface PackedOutcomes {
  readonly writes: number
  /**
   * For each write that was committed its timestamp, last `seq` and number of results; then these: the version of a
   * set, -1 for a delete, and 0 for a delete of what was absent.
   */
  readonly numbers: Float64Array
  /** By the position of the write in the group: the outcomes of those that were not committed. */
  readonly others: ReadonlyMap<number, OtherOutcome>
}

const pack = (writes: ReadonlyArray<Write>): PackedWrites | ReadonlyArray<Write> => {
  const packer = new Packer()
  const preconditions = new Map<number, Precondition>()
  let position = 0
  for (const { actor, operations } of writes) {
    packer.text(actor)
    packer.number(operations.length)
    for (const operation of operations) {
      packer.text(operation.namespace)
      packer.text(operation.key)
      if (operation.op === "set") {
        packer.text(operation.value)
        packer.check(operation.expiresAt === null || Number.isFinite(operation.expiresAt))
        packer.number(operation.expiresAt ?? Number.NaN)
      } else {
        packer.number(-1)
        packer.number(Number.NaN)
      }
      if (operation.precondition !== undefined) preconditions.set(position, operation.precondition)
      position++
    }
  }
  const packed = packer.finish()
  return packed === undefined ? writes : { preconditions, ...packed }
}

const unpack = (packed: PackedWrites): ReadonlyArray<Write> => {
  const unpacker = new Unpacker(packed)
  let position = 0
  const operation = (): Operation => {
    const namespace = unpacker.text()
    const key = unpacker.text()
    const length = unpacker.number()
    const value = length === -1 ? undefined : (unpacker.text(length) as JsonText)
    const expiry = unpacker.number()
    const precondition = packed.preconditions.get(position++)
    const condition = precondition === undefined ? undefined : { precondition }
    if (value === undefined) return { op: "delete", namespace, key, ...condition }
    return { op: "set", namespace, key, value, expiresAt: Number.isNaN(expiry) ? null : expiry, ...condition }
  }
  const writes: Array<Write> = []
  while (unpacker.hasMore) {
    const actor = unpacker.text()
    const operations: Array<Operation> = []
    for (let left = unpacker.number(); left > 0; left--) operations.push(operation())
    writes.push({ operations, actor })
  }
  return writes
}

const packOutcomes = (outcomes: ReadonlyArray<Outcome | WriteFailure>): PackedOutcomes => {
  const numbers: Array<number> = []
  const others = new Map<number, OtherOutcome>()
  for (const [index, outcome] of outcomes.entries()) {
    if (outcome._tag !== "Committed") {
      others.set(index, outcome)
      continue
    }
    const { lastSeq, results, timestamp } = outcome.committed
    numbers.push(timestamp, lastSeq, results.length)
    for (const result of results) numbers.push(result.op === "set" ? result.version : result.deleted ? -1 : 0)
  }
  return { writes: outcomes.length, numbers: new Float64Array(numbers), others }
}

const unpackOutcomes = ({ numbers, others, writes }: PackedOutcomes): ReadonlyArray<Outcome | WriteFailure> => {
  const outcomes: Array<Outcome | WriteFailure> = []
  let at = 0
  const number = (): number => numbers[at++]!
  for (let index = 0; index < writes; index++) {
    const other = others.get(index)
    if (other !== undefined) {
      outcomes.push(other)
      continue
    }
    const timestamp = number()
    const lastSeq = number()
    const results: Array<PlannedResult> = []
    for (let left = number(); left > 0; left--) {
      const result = number()
      results.push(result > 0 ? { op: "set", version: result } : { op: "delete", deleted: result === -1 })
    }
    outcomes.push({ _tag: "Committed", committed: { results, timestamp, lastSeq } })
  }
  return outcomes
}

/** How writes of the key-value store and their outcomes go between threads. */
export const codec: Codec<Write, Outcome, PackedWrites, PackedOutcomes> = {
  pack,
  unpack,
  packOutcomes,
  unpackOutcomes
}
