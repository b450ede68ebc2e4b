/**
 * What each key-value endpoint that writes does: from a request to a write, and from what became of it to an answer.
 * Both are plain steps, that a fiber takes or nobody has to: a write costs little more than the checks of what it holds.
 */
import { Clock, Effect, Either, Exit } from "effect"
import type { ApiError } from "../Http/ApiError.ts"
import type { AtOnce, Pending } from "../Http/Endpoints.ts"
import * as Reply from "../Http/Reply.ts"
import { Limits, type LimitsShape } from "../Limits.ts"
import * as Errors from "./Errors.ts"
import { type EntryRequest, entryReply, preconditionOf } from "./Handlers.ts"
import * as Operations from "./Operations.ts"
import type { BatchPayload, SetPayload } from "./Requests.ts"
import { type Commit, type PreconditionFailed, Store, type UnsafeCommit } from "./Store.ts"
import type { Committed, Operation, OperationResult, Write } from "./Write.ts"

/** A write whose parts were checked, and what its client is told. */
interface Checked {
  readonly write: Write
  readonly done: (committed: Committed) => Reply.Reply
  readonly refused: (error: PreconditionFailed) => ApiError
}

/** What a request comes to at a time (epoch milliseconds): a write, or an answer without one. */
type Check<Request> = (
  request: Request,
  limits: LimitsShape,
  now: number
) => Either.Either<Checked | Reply.Reply, ApiError>

/** The answer to what becomes of a write. */
const answering = ({ done, refused }: Checked, commit: ReturnType<Commit>): Effect.Effect<Reply.Reply, ApiError> =>
  Effect.map(
    Effect.catchTags(commit, {
      PreconditionFailed: error => Effect.fail(refused(error)),
      StoreBusy: error => Effect.fail(Errors.busy(error)),
      StoreUnavailable: Errors.unavailable
    }),
    done
  )

/** The handler of a request that is checked so. */
const writing =
  <Request>(check: Check<Request>) =>
  (request: Request): Effect.Effect<Reply.Reply, ApiError, Store> =>
    Effect.flatMap(Store, store =>
      Effect.flatMap(Limits, limits =>
        Effect.flatMap(Clock.currentTimeMillis, now => {
          const checked = check(request, limits, now)
          if (Either.isLeft(checked)) return Effect.fail(checked.left)
          return "write" in checked.right
            ? answering(checked.right, store.commit(checked.right.write))
            : Effect.succeed(checked.right)
        })
      )
    )

const pending =
  (checked: Checked, commit: UnsafeCommit): Pending =>
  answer =>
    commit(checked.write, exit => answer(Exit.isSuccess(exit) ? doneOf(checked, exit.value) : answering(checked, exit)))

const doneOf = ({ done }: Checked, committed: Committed): Reply.Reply | Effect.Effect<never> => {
  try {
    return done(committed)
  } catch (error) {
    return Effect.die(error)
  }
}

/** The same without a fiber, over a store that needs none. */
const writingAtOnce = <Request>(check: Check<Request>): Effect.Effect<AtOnce<Request>, never, Store> =>
  Effect.gen(function* () {
    const limits = yield* Limits
    const { commit } = yield* Store
    const clock = yield* Effect.clock
    return request => {
      if (commit.unsafe === undefined) return undefined
      const checked = check(request, limits, clock.unsafeCurrentTimeMillis())
      if (Either.isLeft(checked)) return Reply.fromError(checked.left)
      return "write" in checked.right ? pending(checked.right, commit.unsafe) : checked.right
    }
  })

type SetRequest = EntryRequest & { readonly payload: typeof SetPayload.Type }

const checkSet: Check<SetRequest> = ({ path, headers, payload }, limits, now) => {
  const precondition = preconditionOf(headers)
  if (Either.isLeft(precondition)) return Either.left(precondition.left)
  const actor = Operations.actor(payload.actor, limits)
  if (Either.isLeft(actor)) return Either.left(actor.left)
  const operation = Operations.set({ ...payload, ...path }, precondition.right, limits, now)
  if (Either.isLeft(operation)) return Either.left(operation.left)
  const { expiresAt, key, namespace, value } = operation.right
  return Either.right({
    write: { operations: [operation.right], actor: actor.right },
    done: ({ results: [result], timestamp }) =>
      entryReply({
        namespace,
        key,
        value,
        version: result?.op === "set" ? result.version : 0,
        updatedBy: actor.right,
        updatedAt: timestamp,
        expiresAt
      }),
    refused: ({ currentVersion }) => Errors.entryRefused(currentVersion)
  })
}

/** Sets an entry and answers it as stored. */
export const set = writing(checkSet)

/** `set` without a fiber. */
export const setAtOnce = writingAtOnce(checkSet)

type RemoveRequest = EntryRequest & { readonly urlParams: { readonly actor?: string } }

const checkRemove: Check<RemoveRequest> = ({ path, headers, urlParams }, limits) => {
  const precondition = preconditionOf(headers)
  if (Either.isLeft(precondition)) return Either.left(precondition.left)
  const actor = Operations.actor(urlParams.actor, limits)
  if (Either.isLeft(actor)) return Either.left(actor.left)
  const operation = Operations.remove(path, precondition.right, limits)
  if (Either.isLeft(operation)) return Either.left(operation.left)
  return Either.right({
    write: { operations: [operation.right], actor: actor.right },
    done: ({ results: [result] }) => Reply.json(resultJson(result!)),
    refused: ({ currentVersion }) => Errors.entryRefused(currentVersion)
  })
}

/** Deletes an entry; where there was none, nothing happens. */
export const remove = writing(checkRemove)

/** `remove` without a fiber. */
export const removeAtOnce = writingAtOnce(checkRemove)

const resultJson = (result: OperationResult): string =>
  result.op === "set" ? `{"version":${result.version}}` : `{"deleted":${result.deleted}}`

const batchDone = ({ results }: Committed): Reply.Reply =>
  Reply.json(`{"ok":true,"results":[${results.map(resultJson).join(",")}]}`)

type BatchRequest = { readonly payload: typeof BatchPayload.Type }

const checkBatch: Check<BatchRequest> = ({ payload }, limits, now) => {
  const count = payload.operations.length
  if (count > limits.batchOperations) {
    return Either.left(Errors.tooLarge(`operations has ${count} elements; the limit is ${limits.batchOperations}`))
  }
  const actor = Operations.actor(payload.actor, limits)
  if (Either.isLeft(actor)) return Either.left(actor.left)
  const operations: Array<Operation> = []
  for (let index = 0; index < count; index++) {
    const operation = Operations.ofBatch(payload.operations[index]!, index, limits, now)
    if (Either.isLeft(operation)) return Either.left(operation.left)
    operations.push(operation.right)
  }
  return Either.right(
    count === 0
      ? Reply.json('{"ok":true,"results":[]}')
      : { write: { operations, actor: actor.right }, done: batchDone, refused: Errors.batchRefused }
  )
}

/** Applies operations atomically, in order. */
export const batch = writing(checkBatch)

/** `batch` without a fiber. */
export const batchAtOnce = writingAtOnce(checkBatch)
