/**
 * Writes whose requests have an `Idempotency-Key`: the identity of such a request, and the answer if the key is in use.
 */
import { createHash } from "node:crypto"
import { type Context, Effect, Exit, Metric, MetricLabel } from "effect"
import * as Direct from "../../base/Direct.ts"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import { type ApiError, Conflict, ServiceUnavailable, UnprocessableContent } from "../../Http/ApiError.ts"
import { tenantOf } from "../Entry.ts"
import { type IdempotencyConflict, Store } from "../Store.ts"
import type { IdempotencyKey, Precondition, Write } from "../Write.ts"
import type { Expiry, Sender } from "./Operations.ts"

const outcomes = Metric.counter("kv_idempotency_keys_total", {
  description: "Writes that were not applied because their Idempotency-Key was known, by outcome.",
  incremental: true
})

const counted = (outcome: string) => Metric.taggedWithLabels(outcomes, [MetricLabel.make("outcome", outcome)])

/** The request got the first answer, its key belongs to another one, or the first one is in progress. */
const byOutcome = { replayed: counted("replayed"), reused: counted("reused"), inProgress: counted("in_progress") }

const digestOf = (header: unknown, texts: ReadonlyArray<string> = []): string => {
  const hash = createHash("sha256").update(JSON.stringify(header))
  for (const text of texts) hash.update(text)
  return hash.digest("base64url")
}

/** The kinds of requests that write. */
export type Kind = "set" | "delete" | "removePrefix" | "batch"

/** A write that a request asks for. */
export interface Requested {
  readonly kind: Kind
  readonly write: Write
  /** The expiries that the request states for its operations. Those of the write depend on the time. */
  readonly expiries: ReadonlyArray<Expiry>
  readonly sender: Sender
}

/**
 * The identity of a request. Each tenant has its own keys; all credentials without a tenant share theirs. Two requests
 * are the same if they ask for the same write, however they are spelled; the actor counts, too. A credential without a
 * tenant writes for many tenants: its writes are in the share of the first namespace's tenant.
 */
export const keyOf = (header: string, { expiries, kind, sender, write }: Requested): IdempotencyKey => {
  const { actor, operations, prefixDelete } = write
  const values: Array<string> = []
  const parts = operations.map((operation, index) => {
    const { key, namespace, op, precondition } = operation
    const { expiresAt, ttlMs } = expiries[index] ?? {}
    if (operation.op === "set") values.push(operation.value)
    const length = operation.op === "set" ? operation.value.length : null
    return [op, namespace, key, precondition?.match, precondition?.noneMatch, ttlMs, expiresAt, length]
  })
  const removed = prefixDelete && [prefixDelete.namespace, prefixDelete.prefix, prefixDelete.limit]
  const namespace = operations[0]?.namespace ?? prefixDelete?.namespace ?? ""
  return {
    tenant: sender?.tenant ?? tenantOf(namespace),
    id: digestOf([sender?.tenant ?? null, header]),
    digest: digestOf([kind, actor, removed, parts], values)
  }
}

/** Never satisfied. */
const never: Precondition = { match: [] }

/** A write that is never applied, and returns the stored result if there is one. */
export const replayOnly = (write: Write, idempotencyKey: IdempotencyKey): Write => ({
  ...write,
  operations: write.operations.map(operation => ({ ...operation, precondition: never })),
  idempotencyKey
})

/** The answer to a client whose key is in use. */
export const conflict = ({ isInProgress }: IdempotencyConflict): ApiError =>
  isInProgress
    ? new Conflict({
        error: "The request with this Idempotency-Key is still in progress",
        headers: ServiceUnavailable.retryAfter()
      })
    : new UnprocessableContent({ error: "This Idempotency-Key was used for another request" })

/** Commits writes with idempotency keys, and counts those whose keys were known. */
export const commit: Effect.Effect<Context.Tag.Service<Store>["commit"], never, Store> = Effect.map(
  Effect.all([Store, MetricTags.current]),
  ([store, tags]) => {
    MetricTags.register(Object.values(byOutcome), tags)
    return write =>
      Direct.matchEffect(store.commit(write), {
        onFailure: error => {
          if (error._tag === "IdempotencyConflict") {
            byOutcome[error.isInProgress ? "inProgress" : "reused"].unsafeUpdate(1, tags)
          }
          return Exit.fail(error)
        },
        onSuccess: committed => {
          if (committed.isReplay === true) byOutcome.replayed.unsafeUpdate(1, tags)
          return Exit.succeed(committed)
        }
      })
  }
)
