/** The handlers of the `kv` group. Those of entries and batches are defined here; none of them needs a fiber. */

import { type Context, Effect, Either, Exit, Option } from "effect"
import * as Direct from "../base/Direct.ts"
import { Limits, type LimitsShape } from "../base/Limits.ts"
import { type ApiError, NotFound } from "../Http/ApiError.ts"
import * as Compression from "../Http/Compression.ts"
import * as Endpoints from "../Http/Endpoints.ts"
import { FeedOrigins } from "../Http/Origin.ts"
import * as Reply from "../Http/Reply.ts"
import { KvGroup } from "./Api.ts"
import { ChangeFeed } from "./ChangeFeed.ts"
import * as Backup from "./Endpoints/Backup.ts"
import * as Feed from "./Endpoints/Feed.ts"
import * as IdempotentWriting from "./Endpoints/IdempotentWriting.ts"
import * as Lists from "./Endpoints/Lists.ts"
import * as Operations from "./Endpoints/Operations.ts"
import { etag, type StoredEntry, toJson } from "./Entry.ts"
import { type BatchPayload, maxPage, type RemoveParams, type SetPayload } from "./Requests.ts"
import {
  type Address,
  type IdempotencyConflict,
  type PreconditionFailed,
  Store,
  type StoreBusy,
  type StoreUnavailable
} from "./Store.ts"
import { holds, type Operation, type OperationResult, type Precondition, type Write } from "./Write.ts"

interface Services {
  readonly store: Context.Tag.Service<Store>
  readonly limits: LimitsShape
  readonly commitKeyed: Context.Tag.Service<Store>["commit"]
}

interface WriteRequest {
  readonly headers: { readonly "idempotency-key"?: string }
  readonly incoming: Endpoints.Incoming
}

interface EntryRequest extends WriteRequest {
  readonly path: Address
  readonly headers: Operations.ConditionHeaders & WriteRequest["headers"]
}

const entryReply = (entry: StoredEntry): Reply.Reply => Reply.jsonWithETag(toJson(entry), etag(entry.version))

/** The entry; 304 if the client has this version, 404 if it is absent. */
const answerGet = (
  found: Option.Option<StoredEntry>,
  precondition: Precondition | undefined
): Exit.Exit<Reply.Reply, ApiError> => {
  if (Option.isNone(found)) return Exit.fail(new NotFound({ error: "Not found" }))
  const { version } = found.value
  if (precondition === undefined || holds(precondition, version)) return Exit.succeed(entryReply(found.value))
  return precondition.match !== undefined && !holds({ match: precondition.match }, version)
    ? Exit.fail(Operations.entryRefused(version))
    : Exit.succeed(Reply.empty(304, { etag: etag(version) }))
}

const get =
  ({ limits, store }: Services) =>
  ({ headers, incoming, path }: EntryRequest): Effect.Effect<Reply.Reply, ApiError> =>
    Direct.suspend((): Effect.Effect<Reply.Reply, ApiError> => {
      const address = Operations.address(path, incoming.identity, limits)
      if (Either.isLeft(address)) return Exit.fail(address.left)
      const precondition = Operations.precondition(headers)
      if (Either.isLeft(precondition)) return Exit.fail(precondition.left)
      return Direct.matchEffect(store.get(path.namespace, path.key), {
        onFailure: Operations.unavailable,
        onSuccess: found => answerGet(found, precondition.right)
      })
    })

/** How an endpoint converts a request into a write, and its results into an answer. */
interface Writing<Request> {
  readonly kind: IdempotentWriting.Kind
  /** `now` is in epoch milliseconds. */
  readonly check: (request: Request, limits: LimitsShape, now: number) => Either.Either<Write, ApiError>
  readonly expiries?: (request: Request) => ReadonlyArray<Operations.Expiry>
  readonly done: (results: ReadonlyArray<OperationResult>, more: boolean) => Reply.Reply
  readonly refused: (error: PreconditionFailed) => ApiError
}

/** Commits the write of a request with an idempotency key. */
const writeOnce = <Request extends WriteRequest>(
  { check, done, expiries, kind, refused }: Writing<Request>,
  { commitKeyed, limits, store }: Services,
  request: Request,
  header: string
): Effect.Effect<Reply.Reply, ApiError> => {
  const write = check(request, limits, store.now())
  // The write may have been applied while its times were still valid.
  const timeless = Either.isRight(write) ? write : check(request, limits, 0)
  if (Either.isLeft(timeless)) return Exit.fail(timeless.left)
  const requested = {
    kind,
    write: timeless.right,
    expiries: expiries?.(request) ?? [],
    sender: request.incoming.identity
  }
  const idempotencyKey = IdempotentWriting.keyOf(header, requested)
  const given = Either.isRight(write)
    ? { ...write.right, idempotencyKey }
    : IdempotentWriting.replayOnly(timeless.right, idempotencyKey)
  return Direct.matchEffect(commitKeyed(given), {
    onFailure: (error): Effect.Effect<never, ApiError> =>
      error._tag === "PreconditionFailed" && Either.isLeft(write) ? Exit.fail(write.left) : failed(error, refused),
    onSuccess: ({ more = false, results }) => Exit.succeed(done(results, more))
  })
}

/**
 * The handler of an endpoint that writes. A write without operations is committed only if it has an idempotency key.
 */
const writing =
  <Request extends WriteRequest>(endpoint: Writing<Request>, services: Services) =>
  (request: Request): Effect.Effect<Reply.Reply, ApiError> =>
    Direct.suspend(() => {
      const { check, done, refused } = endpoint
      const { limits, store } = services
      const header = request.headers["idempotency-key"]
      if (header !== undefined) return writeOnce(endpoint, services, request, header)
      const write = check(request, limits, store.now())
      if (Either.isLeft(write)) return Exit.fail(write.left)
      const { operations, prefixDelete } = write.right
      if (operations.length === 0 && prefixDelete === undefined) return Exit.succeed(done([], false))
      return Direct.matchEffect(store.commit(write.right), {
        onFailure: (error): Effect.Effect<never, ApiError> => failed(error, refused),
        onSuccess: ({ more = false, results }) => Exit.succeed(done(results, more))
      })
    })

const failed = (
  error: PreconditionFailed | IdempotencyConflict | StoreBusy | StoreUnavailable,
  refused: (error: PreconditionFailed) => ApiError
): Effect.Effect<never, ApiError> => {
  switch (error._tag) {
    case "PreconditionFailed":
      return Exit.fail(refused(error))
    case "IdempotencyConflict":
      return Exit.fail(IdempotentWriting.conflict(error))
    case "StoreBusy":
      return Exit.fail(Operations.retryLater("Too many requests are waiting for the store", error))
    case "StoreUnavailable":
      return Operations.unavailable(error)
  }
}

const single = (
  actor: Operations.Checked<string>,
  operation: Operations.Checked<Operation>
): Operations.Checked<Write> =>
  Either.zipWith(actor, operation, (actor, operation) => ({ operations: [operation], actor }))

const set: Writing<EntryRequest & { readonly payload: typeof SetPayload.Type }> = {
  kind: "set",
  expiries: ({ payload }) => [payload],
  check: ({ headers, incoming: { identity }, path, payload }, limits, now) =>
    Either.flatMap(Operations.precondition(headers), precondition =>
      single(
        Operations.actor(payload.actor, identity, limits),
        Operations.set({ ...payload, ...path }, precondition, identity, limits, now)
      )
    ),
  done: ([result]) => {
    if (result?.op !== "set") throw new Error("The store returns no entry for a set")
    return entryReply(result.entry)
  },
  refused: ({ currentVersion }) => Operations.entryRefused(currentVersion)
}

/** Deletes an entry, if it is present. */
const remove: Writing<EntryRequest & { readonly urlParams: { readonly actor?: string } }> = {
  kind: "delete",
  check: ({ headers, incoming: { identity }, path, urlParams }, limits) =>
    Either.flatMap(Operations.precondition(headers), precondition =>
      single(
        Operations.actor(urlParams.actor, identity, limits),
        Operations.remove(path, precondition, identity, limits)
      )
    ),
  done: ([result]) => Reply.json(resultJson(result!)),
  refused: ({ currentVersion }) => Operations.entryRefused(currentVersion)
}

const resultJson = (result: OperationResult): string =>
  result.op === "set" ? `{"version":${result.version}}` : `{"deleted":${result.deleted}}`

/** Deletes the first entries of a prefix. */
const removePrefix: Writing<
  WriteRequest & {
    readonly path: { readonly namespace: string }
    readonly urlParams: typeof RemoveParams.Type
  }
> = {
  kind: "removePrefix",
  check: ({ incoming: { identity }, path: { namespace }, urlParams }, limits) =>
    Either.gen(function* () {
      const { limit = maxPage, prefix } = urlParams
      yield* Operations.namespace(namespace, identity, limits)
      yield* Operations.text("prefix", prefix)
      const actor = yield* Operations.actor(urlParams.actor, identity, limits)
      return { operations: [], actor, prefixDelete: { namespace, prefix, limit } }
    }),
  done: (results, more) => Reply.json(`{"deleted":${results.length > 0},"count":${results.length},"more":${more}}`),
  refused: ({ currentVersion }) => Operations.entryRefused(currentVersion)
}

/** Applies operations atomically, in order. */
const batch: Writing<WriteRequest & { readonly payload: typeof BatchPayload.Type }> = {
  kind: "batch",
  expiries: ({ payload }) => payload.operations.map(operation => (operation.op === "set" ? operation : {})),
  check: ({ incoming: { identity }, payload }, limits, now) => {
    const count = payload.operations.length
    if (count > limits.batchOperations) {
      return Either.left(
        Operations.tooLarge(`operations has ${count} elements; the limit is ${limits.batchOperations}`)
      )
    }
    const actor = Operations.actor(payload.actor, identity, limits)
    if (Either.isLeft(actor)) return Either.left(actor.left)
    const operations: Array<Operation> = []
    for (let index = 0; index < count; index++) {
      const operation = Operations.ofBatch(payload.operations[index]!, index, identity, limits, now)
      if (Either.isLeft(operation)) return Either.left(operation.left)
      operations.push(operation.right)
    }
    return Either.right({ operations, actor: actor.right })
  },
  done: results => Reply.json(`{"ok":true,"results":[${results.map(resultJson).join(",")}]}`),
  refused: Operations.batchRefused
}

/** A handler whose answers are compressed with gzip for clients that accept it. */
const compressing =
  <Request extends { readonly incoming: Endpoints.Incoming }>(
    handler: (request: Request) => Effect.Effect<Reply.Reply, ApiError>
  ) =>
  (request: Request): Effect.Effect<Reply.Reply, ApiError> =>
    Compression.compressed(handler(request), request.incoming)

/** The handlers of the `kv` group. */
export const endpoints = Endpoints.of(
  KvGroup,
  Effect.gen(function* () {
    const limits = yield* Limits
    const store = yield* Store
    const services = { store, limits, commitKeyed: yield* IdempotentWriting.commit }
    return {
      get: get(services),
      namespaces: compressing(Lists.namespaces(services)),
      tenants: compressing(Lists.tenants(services)),
      list: compressing(Lists.entries(services)),
      read: compressing(Lists.entriesOfKeys(services)),
      set: writing(set, services),
      delete: writing(remove, services),
      removePrefix: writing(removePrefix, services),
      batch: writing(batch, services),
      backup: Backup.make(services),
      ...Feed.make({ store: services.store, feed: yield* ChangeFeed, admits: yield* FeedOrigins, limits })
    }
  })
)
