/**
 * Metrics of the store's group commit.
 */
import { Metric, MetricBoundaries, MetricLabel } from "effect"
import * as MetricTags from "../MetricTags.ts"

/** A group of writes that was committed, or was not. */
export interface CommittedGroup {
  readonly writes: number
  /** From the moment that the group was closed to the answer of the disk. */
  readonly millis: number
  readonly outcome: "ok" | "failed"
}

const groups = Metric.counter("store_commits_total", {
  description: "Groups of writes handed to the store, by outcome.",
  incremental: true
})

const byOutcome = {
  ok: Metric.taggedWithLabels(groups, [MetricLabel.make("outcome", "ok")]),
  failed: Metric.taggedWithLabels(groups, [MetricLabel.make("outcome", "failed")])
}

const sizes = Metric.histogram(
  "store_commit_writes",
  MetricBoundaries.fromIterable([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]),
  "Writes that shared a transaction."
)

const durations = Metric.histogram(
  "store_commit_duration_ms",
  MetricBoundaries.fromIterable([0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2000]),
  "Milliseconds from closing a group of writes to its being durable."
)

/** Counts the groups of an instance. */
export const observer =
  (tags: MetricTags.MetricTags) =>
  ({ writes, millis, outcome }: CommittedGroup): void => {
    byOutcome[outcome].unsafeUpdate(1, tags)
    sizes.unsafeUpdate(writes, tags)
    durations.unsafeUpdate(millis, tags)
  }

/** Registers every series with the value 0. */
export const register = (tags: MetricTags.MetricTags): void =>
  MetricTags.register([byOutcome.ok, byOutcome.failed, sizes, durations], tags)
