/** A committer over a backend that a test controls. */
import { Deferred, Effect, Either, Fiber } from "effect"
import * as TestClock from "effect/TestClock"
import type { StoreUnavailable } from "../../../src/Kv/Store.ts"
import * as GroupCommit from "../../../src/Storage/Commit/GroupCommit.ts"

export type Write = string

/** A backend that answers each group when `answer` is called. */
const makeBackend = () => {
  const groups: Array<ReadonlyArray<Write>> = []
  const gates: Array<Deferred.Deferred<void, StoreUnavailable>> = []
  const commit = (group: ReadonlyArray<Write>) =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void, StoreUnavailable>()
      groups.push(group)
      gates.push(gate)
      yield* Deferred.await(gate)
      return group.map(write =>
        write.startsWith("bad") ? Either.left(`refused ${write}`) : Either.right(`done ${write}`)
      )
    })
  /** Waits until a group was submitted, and answers it. */
  const answer = (index: number, result: Effect.Effect<void, StoreUnavailable> = Effect.void) =>
    Effect.zipRight(
      settled,
      Effect.suspend(() => Deferred.complete(gates[index]!, result))
    )
  return { groups, commit, answer }
}

/** Lets all fibers run that can. */
export const settled = TestClock.adjust(0)

export const weigh = (write: Write): GroupCommit.Weight => ({ operations: 1, bytes: write.length })

export const setup = (options: Partial<GroupCommit.Options<Write, string, string>> = {}) =>
  Effect.gen(function* () {
    const backend = makeBackend()
    const committer = yield* GroupCommit.make<Write, string, string>({ commit: backend.commit, weigh, ...options })
    const submit = (write: Write) => Effect.zipLeft(Effect.fork(Effect.either(committer.submit(write))), settled)
    return { ...backend, committer, submit }
  })

export const tagOf = <A, E extends string | { readonly _tag: string }>(outcome: Either.Either<A, E>) =>
  Either.match(outcome, {
    onLeft: error => (typeof error === "string" ? error : error._tag),
    onRight: value => value
  })

export const joinAll = (
  fibers: ReadonlyArray<Fiber.Fiber<Either.Either<string, string | { readonly _tag: string }>>>
) => Effect.forEach(fibers, fiber => Effect.map(Fiber.join(fiber), tagOf))
