/**
 * What each key-value endpoint that writes does. Plain steps rather than generators: a write costs little more than
 * the checks of what it holds.
 */
import { Clock, type Context, Effect, Either } from "effect"
import type { ApiError } from "../Http/ApiError.ts"
import * as Reply from "../Http/Reply.ts"
import * as Errors from "./Errors.ts"
import { type EntryRequest, entryReply, preconditionOf } from "./Handlers.ts"
import { Limits, type LimitsShape } from "./Limits.ts"
import * as Operations from "./Operations.ts"
import type { BatchPayload, SetPayload } from "./Requests.ts"
import { type PreconditionFailed, Store, type StoreBusy } from "./Store.ts"
import type { Operation, OperationResult } from "./Write.ts"

/** Runs with what every write wants: the store, the limits and the time. */
const writing = (
  use: (store: Context.Tag.Service<Store>, limits: LimitsShape, now: number) => Effect.Effect<Reply.Reply, ApiError>
): Effect.Effect<Reply.Reply, ApiError, Store> =>
  Effect.flatMap(Store, store =>
    Effect.flatMap(Limits, limits => Effect.flatMap(Clock.currentTimeMillis, now => use(store, limits, now)))
  )

const entryFailures = {
  PreconditionFailed: (error: PreconditionFailed) => Effect.fail(Errors.entryRefused(error.currentVersion)),
  StoreBusy: (error: StoreBusy) => Effect.fail(Errors.busy(error)),
  StoreUnavailable: Errors.unavailable
}

/** Sets an entry and answers it as stored. */
export const set = ({ path, headers, payload }: EntryRequest & { readonly payload: typeof SetPayload.Type }) =>
  writing((store, limits, now) => {
    const precondition = preconditionOf(headers)
    if (Either.isLeft(precondition)) return Effect.fail(precondition.left)
    const actor = Operations.actor(payload.actor, limits)
    if (Either.isLeft(actor)) return Effect.fail(actor.left)
    const operation = Operations.set({ ...payload, ...path }, precondition.right, limits, now)
    if (Either.isLeft(operation)) return Effect.fail(operation.left)
    const { expiresAt, key, namespace, value } = operation.right
    return Effect.map(
      Effect.catchTags(store.commit({ operations: [operation.right], actor: actor.right }), entryFailures),
      ({ results: [result], timestamp }) => {
        const version = result?.op === "set" ? result.version : 0
        return entryReply({
          namespace,
          key,
          value,
          version,
          updatedBy: actor.right,
          updatedAt: timestamp,
          expiresAt
        })
      }
    )
  })

/** Deletes an entry; where there was none, nothing happens. */
export const remove = ({
  path,
  headers,
  urlParams
}: EntryRequest & { readonly urlParams: { readonly actor?: string } }) =>
  writing((store, limits) => {
    const precondition = preconditionOf(headers)
    if (Either.isLeft(precondition)) return Effect.fail(precondition.left)
    const actor = Operations.actor(urlParams.actor, limits)
    if (Either.isLeft(actor)) return Effect.fail(actor.left)
    const operation = Operations.remove(path, precondition.right, limits)
    if (Either.isLeft(operation)) return Effect.fail(operation.left)
    return Effect.map(
      Effect.catchTags(store.commit({ operations: [operation.right], actor: actor.right }), entryFailures),
      ({ results: [result] }) => Reply.json(resultJson(result!))
    )
  })

const resultJson = (result: OperationResult): string =>
  result.op === "set" ? `{"version":${result.version}}` : `{"deleted":${result.deleted}}`

const batchFailures = {
  ...entryFailures,
  PreconditionFailed: (error: PreconditionFailed) => Effect.fail(Errors.batchRefused(error))
}

/** Applies operations atomically, in order. */
export const batch = ({ payload }: { readonly payload: typeof BatchPayload.Type }) =>
  writing((store, limits, now) => {
    const count = payload.operations.length
    if (count > limits.batchOperations) {
      return Effect.fail(Errors.tooLarge(`operations has ${count} elements; the limit is ${limits.batchOperations}`))
    }
    const actor = Operations.actor(payload.actor, limits)
    if (Either.isLeft(actor)) return Effect.fail(actor.left)
    const operations: Array<Operation> = []
    for (let index = 0; index < count; index++) {
      const operation = Operations.ofBatch(payload.operations[index]!, index, limits, now)
      if (Either.isLeft(operation)) return Effect.fail(operation.left)
      operations.push(operation.right)
    }
    if (count === 0) return Effect.succeed(Reply.json('{"ok":true,"results":[]}'))
    return Effect.map(
      Effect.catchTags(store.commit({ operations, actor: actor.right }), batchFailures),
      ({ results }) => Reply.json(`{"ok":true,"results":[${results.map(resultJson).join(",")}]}`)
    )
  })
