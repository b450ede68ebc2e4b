/** What the clients of a simulation do, at random. */
import * as fc from "fast-check"

/** What one client does next, in terms that always make sense. Durations are in milliseconds. */
export interface Step {
  readonly client: number
  readonly kind: "put" | "delete" | "batch" | "prefix" | "get" | "read" | "list" | "page" | "poll"
  readonly keys: ReadonlyArray<number>
  readonly deletes: number
  readonly condition: "none" | "current" | "absent" | "wrong"
  readonly ttlMs: number
  /** Before the invocation, from there to the effect, and from there to the answer. */
  readonly pause: number
  readonly toEffect: number
  readonly toAnswer: number
  readonly fate: "answered" | "lost" | "late" | "never"
  /** How often a write is sent at most; more than once, it has an `Idempotency-Key`. */
  readonly tries: number
  /** Which parameters a list has, as bits. */
  readonly bounds: number
}

export interface Script {
  readonly steps: ReadonlyArray<Step>
  /** The intervals at which the followers of streams receive new records. */
  readonly followers: ReadonlyArray<number>
  readonly expiryInterval: number
  /** The store is put back at a time to the state of an earlier one, as from a backup. */
  readonly restore: { readonly backup: number; readonly at: number } | undefined
}

const weighted = <A>(...pairs: ReadonlyArray<readonly [number, A]>): fc.Arbitrary<A> =>
  fc.oneof(...pairs.map(([weight, value]) => ({ weight, arbitrary: fc.constant(value) })))

const step: fc.Arbitrary<Step> = fc.record({
  client: fc.nat(4),
  kind: weighted<Step["kind"]>(
    [6, "put"],
    [3, "delete"],
    [5, "batch"],
    [2, "prefix"],
    [5, "get"],
    [2, "read"],
    [3, "list"],
    [3, "page"],
    [3, "poll"]
  ),
  keys: fc.array(fc.nat(7), { minLength: 1, maxLength: 5 }),
  deletes: fc.nat(31),
  condition: weighted<Step["condition"]>([6, "none"], [2, "current"], [1, "absent"], [1, "wrong"]),
  ttlMs: weighted([8, 0], [1, 5], [1, 40]),
  pause: fc.nat(10),
  toEffect: fc.nat(10),
  toAnswer: fc.nat(10),
  fate: weighted<Step["fate"]>([12, "answered"], [1, "lost"], [1, "late"], [1, "never"]),
  tries: weighted([4, 1], [1, 2], [1, 3]),
  bounds: fc.nat(15)
})

/** Scripts of up to 120 operations. */
export const script = (restores: boolean): fc.Arbitrary<Script> =>
  fc.record({
    steps: fc.array(step, { maxLength: 120, size: "max" }),
    followers: fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 3 }),
    expiryInterval: fc.integer({ min: 2, max: 20 }),
    restore: restores
      ? fc.record({ backup: fc.nat(150), at: fc.integer({ min: 150, max: 300 }) })
      : fc.constant(undefined)
  })
