/**
 * Group commit as the key-value store has it: what a write weighs, and the metrics of its groups.
 */
import { Effect, Metric, MetricBoundaries, MetricLabel, type Scope } from "effect"
import type { Committed, Write } from "../Kv/Write.ts"
import * as MetricTags from "../MetricTags.ts"
import * as Supervision from "../Supervision.ts"
import * as GroupCommit from "./GroupCommit.ts"

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
const observer =
  (tags: MetricTags.MetricTags) =>
  ({ writes, millis, outcome }: GroupCommit.CommittedGroup): void => {
    byOutcome[outcome].unsafeUpdate(1, tags)
    sizes.unsafeUpdate(writes, tags)
    durations.unsafeUpdate(millis, tags)
  }

/** The operations of a write, and about the bytes of its texts. */
const weigh = ({ operations, removal }: Write): GroupCommit.Weight => {
  if (removal !== undefined) return { operations: removal.limit, bytes: 64 * removal.limit }
  let bytes = 0
  for (const operation of operations) {
    bytes += 64 + operation.namespace.length + operation.key.length
    if (operation.op === "set") bytes += operation.value.length
  }
  return { operations: operations.length, bytes }
}

/** A committer of the writes to a store. It registers its metrics with the value 0. */
export const make = <E>(
  commit: GroupCommit.Options<Write, Committed, E>["commit"]
): Effect.Effect<GroupCommit.GroupCommit<Write, Committed, E>, never, Scope.Scope> =>
  Effect.flatMap(MetricTags.current, tags => {
    MetricTags.register([byOutcome.ok, byOutcome.failed, sizes, durations], tags)
    return GroupCommit.make({ commit, weigh, observe: observer(tags), outage: Supervision.outage("writing") })
  })
