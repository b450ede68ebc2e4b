/**
 * Metrics of what is remembered of writes with idempotency keys, which every backend has.
 */
import { Metric } from "effect"
import type { Found } from "../Kv/IdempotencyShares.ts"
import * as MetricTags from "../MetricTags.ts"

const bytes = Metric.gauge("kv_idempotency_bytes", {
  description: "Bytes of what is remembered of writes with an Idempotency-Key, when the tenants were last compared."
})

const forgotten = Metric.counter("kv_idempotency_keys_forgotten_total", {
  description:
    "Idempotency-Keys that were forgotten before 24 hours were over, as their tenant had more than its share.",
  incremental: true
})

/** Registers the series of an instance with the value 0. Returns what is told of each comparison of the tenants. */
export const make = (tags: MetricTags.MetricTags): ((found: Found) => void) => {
  MetricTags.register([bytes, forgotten], tags)
  return found => {
    bytes.unsafeUpdate(found.bytes, tags)
    forgotten.unsafeUpdate(found.forgotten, tags)
  }
}
