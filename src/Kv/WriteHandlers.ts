/**
 * What each key-value endpoint that writes does: a request is checked and made into a write, and what became of that
 * into an answer. None of it needs a fiber.
 */
import { type Clock, type Context, type Effect, Either, Exit } from "effect"
import * as Direct from "../Direct.ts"
import type { ApiError } from "../Http/ApiError.ts"
import * as Reply from "../Http/Reply.ts"
import type { LimitsShape } from "../Limits.ts"
import * as Errors from "./Errors.ts"
import { type EntryRequest, entryReply, preconditionOf } from "./Handlers.ts"
import * as Operations from "./Operations.ts"
import type { BatchPayload, SetPayload } from "./Requests.ts"
import type { PreconditionFailed, Store, StoreBusy, StoreUnavailable } from "./Store.ts"
import type { Operation, OperationResult, Write } from "./Write.ts"

/** What handlers that write need. */
export interface Services {
  readonly store: Context.Tag.Service<Store>
  readonly limits: LimitsShape
  readonly clock: Clock.Clock
}

/** How one endpoint makes a write of a request, and an answer of what became of it. */
interface Writing<Request> {
  /** `now` is in epoch milliseconds. */
  readonly check: (request: Request, limits: LimitsShape, now: number) => Either.Either<Write, ApiError>
  readonly done: (results: ReadonlyArray<OperationResult>) => Reply.Reply
  readonly refused: (error: PreconditionFailed) => ApiError
}

/** The handler of such an endpoint. A write without operations is not committed. */
const handler =
  <Request>({ check, done, refused }: Writing<Request>, { clock, limits, store }: Services) =>
  (request: Request): Effect.Effect<Reply.Reply, ApiError> =>
    Direct.suspend(() => {
      const write = check(request, limits, clock.unsafeCurrentTimeMillis())
      if (Either.isLeft(write)) return Exit.fail(write.left)
      if (write.right.operations.length === 0) return Exit.succeed(done([]))
      return Direct.matchEffect(store.commit(write.right), {
        onFailure: (error): Effect.Effect<never, ApiError> => failed(error, refused),
        onSuccess: ({ results }) => Exit.succeed(done(results))
      })
    })

const failed = (
  error: PreconditionFailed | StoreBusy | StoreUnavailable,
  refused: (error: PreconditionFailed) => ApiError
): Effect.Effect<never, ApiError> => {
  switch (error._tag) {
    case "PreconditionFailed":
      return Exit.fail(refused(error))
    case "StoreBusy":
      return Exit.fail(Errors.busy(error))
    case "StoreUnavailable":
      return Errors.unavailable(error)
  }
}

const entryRefused = ({ currentVersion }: PreconditionFailed): ApiError => Errors.entryRefused(currentVersion)

type SetRequest = EntryRequest & { readonly payload: typeof SetPayload.Type }

/** Sets an entry and answers it as stored. */
const set: Writing<SetRequest> = {
  check: ({ path, headers, payload }, limits, now) => {
    const precondition = preconditionOf(headers)
    if (Either.isLeft(precondition)) return Either.left(precondition.left)
    const actor = Operations.actor(payload.actor, limits)
    if (Either.isLeft(actor)) return Either.left(actor.left)
    const operation = Operations.set({ ...payload, ...path }, precondition.right, limits, now)
    if (Either.isLeft(operation)) return Either.left(operation.left)
    return Either.right({ operations: [operation.right], actor: actor.right })
  },
  done: ([result]) => {
    if (result?.op !== "set") throw new Error("The store tells no entry of a set")
    return entryReply(result.entry)
  },
  refused: entryRefused
}

type RemoveRequest = EntryRequest & { readonly urlParams: { readonly actor?: string } }

/** Deletes an entry; where there was none, nothing happens. */
const remove: Writing<RemoveRequest> = {
  check: ({ path, headers, urlParams }, limits) => {
    const precondition = preconditionOf(headers)
    if (Either.isLeft(precondition)) return Either.left(precondition.left)
    const actor = Operations.actor(urlParams.actor, limits)
    if (Either.isLeft(actor)) return Either.left(actor.left)
    const operation = Operations.remove(path, precondition.right, limits)
    if (Either.isLeft(operation)) return Either.left(operation.left)
    return Either.right({ operations: [operation.right], actor: actor.right })
  },
  done: ([result]) => Reply.json(resultJson(result!)),
  refused: entryRefused
}

const resultJson = (result: OperationResult): string =>
  result.op === "set" ? `{"version":${result.version}}` : `{"deleted":${result.deleted}}`

type BatchRequest = { readonly payload: typeof BatchPayload.Type }

/** Applies operations atomically, in order. */
const batch: Writing<BatchRequest> = {
  check: ({ payload }, limits, now) => {
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
    return Either.right({ operations, actor: actor.right })
  },
  done: results => Reply.json(`{"ok":true,"results":[${results.map(resultJson).join(",")}]}`),
  refused: Errors.batchRefused
}

/** The handlers of the endpoints that write. */
export const make = (services: Services) => ({
  set: handler(set, services),
  delete: handler(remove, services),
  batch: handler(batch, services)
})
