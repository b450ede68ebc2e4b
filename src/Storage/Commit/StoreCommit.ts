/**
 * Commits of the key-value store, as all its backends make them: their groups, and the end of the log, which they move.
 */
import { Effect, Exit, Metric, Runtime, type Scope } from "effect"
import * as Direct from "../../base/Direct.ts"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import * as Supervision from "../../base/Supervision.ts"
import * as Idempotency from "../../Kv/Idempotency.ts"
import type { Comparison } from "../../Kv/IdempotencyShares.ts"
import { IdempotencyConflict, type StoreBusy, type StoreUnavailable } from "../../Kv/Store.ts"
import type { Committed, IdempotencyKey, Write } from "../../Kv/Write.ts"
import * as GroupCommit from "./GroupCommit.ts"

const metrics = GroupCommit.metrics("the store", {
  commits: "store_commits_total",
  writes: "store_commit_writes",
  duration: "store_commit_duration_ms"
})

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

export interface StoreCommit<E> {
  /** As the port specifies. The effect is direct. */
  readonly commit: (write: Write) => Effect.Effect<Committed, E | IdempotencyConflict | StoreBusy | StoreUnavailable>
  readonly isStuck: () => boolean
}

const noop = (): void => {}

/** Runs one effect for each key at a time. The key of an interrupted caller is free again. */
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

interface Waiter {
  readonly seq: number
  readonly wake: () => void
}

export class LastSeq {
  private readonly waiters = new Set<Waiter>()
  private last = 0

  /** Sets the last `seq` and wakes the waiters for it. A lower `seq` belongs to another log, and wakes all waiters. */
  set(lastSeq: number): void {
    if (lastSeq === this.last) return
    const isReset = lastSeq < this.last
    this.last = lastSeq
    for (const waiter of this.waiters) {
      if (!isReset && waiter.seq >= lastSeq) continue
      this.waiters.delete(waiter)
      waiter.wake()
    }
  }

  /** Waits until the last `seq` is greater than `seq`. The effect is direct. */
  awaitPast(seq: number): Effect.Effect<void> {
    return Direct.async(resume => {
      const waiter: Waiter = { seq, wake: () => resume(Exit.void) }
      if (this.last > seq) waiter.wake()
      else this.waiters.add(waiter)
      return () => this.waiters.delete(waiter)
    })
  }
}

const bytes = Metric.gauge("kv_idempotency_bytes", {
  description: "Bytes of the records of writes with an Idempotency-Key, at the last comparison of the tenants."
})

const forgotten = Metric.counter("kv_idempotency_keys_forgotten_total", {
  description: "Idempotency-Keys that were removed within 24 hours, because their tenant had more than its share.",
  incremental: true
})

export const idempotencyMetrics = (tags: MetricTags.MetricTags): ((comparison: Comparison) => void) => {
  MetricTags.register([bytes, forgotten], tags)
  return comparison => {
    bytes.unsafeUpdate(comparison.bytes, tags)
    forgotten.unsafeUpdate(comparison.forgotten, tags)
  }
}
