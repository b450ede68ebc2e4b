/**
 * Metrics of the records of writes with idempotency keys, for every backend.
 */
import { Metric } from "effect"
import * as MetricTags from "../base/MetricTags.ts"
import type { Comparison } from "../Kv/IdempotencyShares.ts"

const bytes = Metric.gauge("kv_idempotency_bytes", {
  description: "Bytes of the records of writes with an Idempotency-Key, at the last comparison of the tenants."
})

const forgotten = Metric.counter("kv_idempotency_keys_forgotten_total", {
  description: "Idempotency-Keys that were removed within 24 hours, because their tenant had more than its share.",
  incremental: true
})

/** Registers the series of an instance with the value 0. Returns the observer of comparisons of the tenants. */
export const make = (tags: MetricTags.MetricTags): ((comparison: Comparison) => void) => {
  MetricTags.register([bytes, forgotten], tags)
  return comparison => {
    bytes.unsafeUpdate(comparison.bytes, tags)
    forgotten.unsafeUpdate(comparison.forgotten, tags)
  }
}
