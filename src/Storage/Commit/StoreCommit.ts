/**
 * Group commit of the key-value store: the weight of a write, and the metrics of its groups.
 */
import { Effect, Exit, Runtime, type Scope } from "effect"
import * as Direct from "../../base/Direct.ts"
import * as MetricTags from "../../base/MetricTags.ts"
import * as Supervision from "../../base/Supervision.ts"
import * as Idempotency from "../../Kv/Idempotency.ts"
import { IdempotencyConflict, type StoreBusy, type StoreUnavailable } from "../../Kv/Store.ts"
import type { Committed, IdempotencyKey, Write } from "../../Kv/Write.ts"
import * as CommitMetrics from "./CommitMetrics.ts"
import * as GroupCommit from "./GroupCommit.ts"

const metrics = CommitMetrics.make({
  names: { commits: "store_commits_total", writes: "store_commit_writes", duration: "store_commit_duration_ms" },
  target: "the store"
})

/** The size of the texts of a write, and of its overhead. */
const sizeOf = ({ idempotencyKey, operations }: Write, textSize: (text: string) => number): number => {
  let size = idempotencyKey === undefined ? 0 : Idempotency.overheadBytes
  for (const operation of operations) {
    size += 64 + textSize(operation.namespace) + textSize(operation.key)
    if (operation.op === "set") size += textSize(operation.value)
  }
  return size
}

const charactersOf = (text: string): number => text.length

/** Writes with more characters are measured in bytes, because their timeout depends on it. */
const large = 1024 * 1024

/** The operations of a write, and approximately the bytes of its texts. */
const weigh = (write: Write): GroupCommit.Weight => {
  const { idempotencyKey, operations, prefixDelete } = write
  if (prefixDelete !== undefined) return { operations: prefixDelete.limit, bytes: 64 * prefixDelete.limit }
  const characters = sizeOf(write, charactersOf)
  return {
    // A write without operations that has a key still stores a record.
    operations: idempotencyKey === undefined ? operations.length : Math.max(1, operations.length),
    bytes: characters < large ? characters : sizeOf(write, Buffer.byteLength)
  }
}

/** Commits the writes to a store. */
export interface StoreCommit<E> {
  /** As the port specifies. The effect is direct. */
  readonly commit: (write: Write) => Effect.Effect<Committed, E | IdempotencyConflict | StoreBusy | StoreUnavailable>
  /** Whether the group in flight has exceeded its timeout. */
  readonly isStuck: () => boolean
}

const noop = (): void => {}

/**
 * Runs one effect for each key at a time. The key of an interrupted caller is free again, though its write may be in
 * flight.
 */
const oneForEachKey = <A, E>(runtime: Runtime.Runtime<never>) => {
  const fork = Runtime.runFork(runtime)
  const inProgress = new Set<string>()
  return ({ id }: IdempotencyKey, effect: Effect.Effect<A, E>): Effect.Effect<A, E | IdempotencyConflict> =>
    Direct.async(resume => {
      if (inProgress.has(id)) {
        resume(Exit.fail(new IdempotencyConflict({ isInProgress: true })))
        return noop
      }
      inProgress.add(id)
      return Direct.run(effect, fork, exit => {
        inProgress.delete(id)
        resume(exit)
      })
    })
}

/** A committer of the writes to a store. It registers its metrics with the value 0. */
export const make = <E>({
  commit,
  ...options
}: Pick<GroupCommit.Options<Write, Committed, E>, "commit" | "maxBatchWaitMillis">): Effect.Effect<
  StoreCommit<E>,
  never,
  Scope.Scope
> =>
  Effect.gen(function* () {
    const tags = yield* MetricTags.current
    const { isStuck, submit } = yield* GroupCommit.make({
      commit,
      ...options,
      weigh,
      observe: metrics(tags),
      outage: Supervision.outage("writing")
    })
    const once = oneForEachKey<Committed, E | StoreBusy | StoreUnavailable>(yield* Effect.runtime<never>())
    return {
      commit: write => (write.idempotencyKey === undefined ? submit(write) : once(write.idempotencyKey, submit(write))),
      isStuck
    }
  })
