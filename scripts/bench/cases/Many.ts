/** Requests for many entries: batches, pages of changes, lists. */
import { Effect } from "effect"
import { type Case, expectCount } from "../Case.ts"
import { compare, underLoad } from "../Compare.ts"
import { causeway, fastify } from "../Contender.ts"
import { none } from "../Findings.ts"
import { smallStore } from "../Plan.ts"
import * as Requests from "../Requests.ts"
import type { Running } from "../Server.ts"
import { startFilled } from "../Stores.ts"
import * as Workloads from "../Workloads.ts"

const measured = (
  workload: Workloads.Workload,
  about: string,
  check: (running: Running) => ReturnType<typeof expectCount> = () => Effect.void
): Case => ({
  name: workload.name,
  about,
  run: Effect.gen(function* () {
    const entrants = yield* Effect.forEach([causeway, fastify], contender =>
      Effect.gen(function* () {
        const running = yield* startFilled(contender, smallStore)
        yield* check(running)
        return underLoad(running, workload.connections, workload.requests())
      })
    )
    return { ...none, comparisons: [yield* compare({ ...workload, unit: "requests" }, entrants)] }
  })
})

const { changesPath, pageSize } = Workloads

export const batch: Case = measured(Workloads.batch, "a batch that sets 100 entries")

export const changes: Case = measured(
  Workloads.changes,
  "a page of 100 changes, for readers that follow the log's end",
  running => expectCount(running, changesPath(smallStore - pageSize), "changes", pageSize)
)

export const changesAnywhere: Case = measured(
  Workloads.changesAnywhere,
  "a page of 100 changes after any seq of the log",
  running => expectCount(running, changesPath(17), "changes", pageSize)
)

export const list: Case = measured(Workloads.list, "a namespace of 1,000 entries, whole", running =>
  expectCount(running, Requests.listPath(0), "items", Requests.areaSize)
)
