/**
 * Metrics of groups of writes: their number, their size, and their duration.
 */
import { Metric, MetricBoundaries, MetricLabel } from "effect"
import * as MetricTags from "../../base/MetricTags.ts"
import type { CommittedGroup } from "./GroupCommit.ts"

/** One kind of groups. */
export interface Options {
  /** The names of the metrics. */
  readonly names: { readonly [Name in "commits" | "writes" | "duration"]: string }
  /** The destination of the groups, for descriptions. */
  readonly target: string
}

/**
 * The metrics of one kind of groups. The function that is returned registers the series of an instance with the value 0,
 * and returns the observer of its groups.
 */
export const make = ({ names, target }: Options) => {
  const groups = Metric.counter(names.commits, {
    description: `Groups of writes handed to ${target}, by outcome.`,
    incremental: true
  })
  const byOutcome = {
    ok: Metric.taggedWithLabels(groups, [MetricLabel.make("outcome", "ok")]),
    failed: Metric.taggedWithLabels(groups, [MetricLabel.make("outcome", "failed")])
  }
  const sizes = Metric.histogram(
    names.writes,
    MetricBoundaries.fromIterable([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]),
    "Writes that shared a transaction."
  )
  const durations = Metric.histogram(
    names.duration,
    MetricBoundaries.fromIterable([0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2000]),
    "Milliseconds from the start of a commit of a group of writes until it is durable."
  )
  return (tags: MetricTags.MetricTags) => {
    MetricTags.register([byOutcome.ok, byOutcome.failed, sizes, durations], tags)
    return ({ millis, outcome, writes }: CommittedGroup): void => {
      byOutcome[outcome].unsafeUpdate(1, tags)
      sizes.unsafeUpdate(writes, tags)
      durations.unsafeUpdate(millis, tags)
    }
  }
}
