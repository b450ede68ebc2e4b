/**
 * Group commit as the key-value store has it: what a write weighs, and the metrics of its groups.
 */
import { Effect, type Scope } from "effect"
import type { Committed, Write } from "../Kv/Write.ts"
import * as MetricTags from "../MetricTags.ts"
import * as Supervision from "../Supervision.ts"
import * as CommitMetrics from "./CommitMetrics.ts"
import * as GroupCommit from "./GroupCommit.ts"

const metrics = CommitMetrics.make({
  names: { commits: "store_commits_total", writes: "store_commit_writes", duration: "store_commit_duration_ms" },
  target: "the store"
})

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
    return GroupCommit.make({ commit, weigh, observe: metrics(tags), outage: Supervision.outage("writing") })
  })
