/**
 * Writes whose requests have an `Idempotency-Key`: what names such a request, and what is answered where the key is
 * taken.
 */
import { createHash } from "node:crypto"
import { type Context, Effect, Exit, Metric, MetricLabel } from "effect"
import * as Direct from "../Direct.ts"
import { type ApiError, Conflict, UnprocessableContent } from "../Http/ApiError.ts"
import * as MetricTags from "../MetricTags.ts"
import { tenantOf } from "./Entry.ts"
import type { Expiry, Sender } from "./Operations.ts"
import type { IdempotencyConflict, Store } from "./Store.ts"
import type { IdempotencyKey, Precondition, Write } from "./Write.ts"

const outcomes = Metric.counter("kv_idempotency_keys_total", {
  description: "Writes that were not applied as their Idempotency-Key was known, by outcome.",
  incremental: true
})

const byOutcome = {
  /** The request was answered as the first time. */
  replayed: Metric.taggedWithLabels(outcomes, [MetricLabel.make("outcome", "replayed")]),
  /** The key is that of another request. */
  reused: Metric.taggedWithLabels(outcomes, [MetricLabel.make("outcome", "reused")]),
  /** The first request is in progress. */
  inProgress: Metric.taggedWithLabels(outcomes, [MetricLabel.make("outcome", "in_progress")])
}

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
  /** The expiries that the request states for its operations; that of the write depends on the time. */
  readonly expiries: ReadonlyArray<Expiry>
  readonly sender: Sender
}

/**
 * What a request is remembered by. Each tenant has keys of its own, and so have the credentials without a tenant
 * together. Two requests are the same that ask for the same write, however they are spelled; the actor counts too. A
 * credential without a tenant writes for many: what it writes is in the share of the tenant of the first namespace.
 */
export const keyOf = (header: string, { expiries, kind, sender, write }: Requested): IdempotencyKey => {
  const { actor, operations, removal } = write
  const values: Array<string> = []
  const parts = operations.map((operation, index) => {
    const { key, namespace, op, precondition } = operation
    const { expiresAt, ttlMs } = expiries[index] ?? {}
    if (operation.op === "set") values.push(operation.value)
    const length = operation.op === "set" ? operation.value.length : null
    return [op, namespace, key, precondition?.match, precondition?.noneMatch, ttlMs, expiresAt, length]
  })
  const removed = removal && [removal.namespace, removal.prefix, removal.limit]
  const namespace = operations[0]?.namespace ?? removal?.namespace ?? ""
  return {
    tenant: sender?.tenant ?? tenantOf(namespace),
    id: digestOf([sender?.tenant ?? null, header]),
    digest: digestOf([kind, actor, removed, parts], values)
  }
}

/** Never holds. */
const never: Precondition = { match: [] }

/** A write that is applied in no case, and has its results where it is remembered. */
export const replayOnly = (write: Write, idempotencyKey: IdempotencyKey): Write => ({
  ...write,
  operations: write.operations.map(operation => ({ ...operation, precondition: never })),
  idempotencyKey
})

/** What a client is answered whose key is taken. */
export const conflict = ({ isInProgress }: IdempotencyConflict): ApiError =>
  isInProgress
    ? new Conflict({
        error: "The request with this Idempotency-Key is still in progress",
        headers: { "retry-after": "1" }
      })
    : new UnprocessableContent({ error: "This Idempotency-Key was used for another request" })

/** Commits writes with idempotency keys, and counts those whose keys were known. */
export const counted: Effect.Effect<(store: Context.Tag.Service<Store>) => Context.Tag.Service<Store>["commit"]> =
  Effect.map(MetricTags.current, tags => {
    MetricTags.register(Object.values(byOutcome), tags)
    return store => write =>
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
  })
