/** Requests for many entries: batches, pages of changes, lists. */
import { Effect } from "effect"
import { type Case, expectCount } from "../Case.ts"
import { compare, underLoad } from "../Compare.ts"
import { causeway, fastify } from "../Contender.ts"
import { none } from "../Findings.ts"
import * as Random from "../load/Random.ts"
import { smallStore } from "../Plan.ts"
import * as Requests from "../Requests.ts"
import type { Running } from "../Server.ts"
import { startFilled } from "../Stores.ts"

const measured = (
  about: { readonly name: string; readonly title: string },
  connections: number,
  requestOf: () => () => string,
  check: (running: Running) => ReturnType<typeof expectCount> = () => Effect.void
) =>
  Effect.gen(function* () {
    const entrants = yield* Effect.forEach([causeway, fastify], contender =>
      Effect.gen(function* () {
        const running = yield* startFilled(contender, smallStore)
        yield* check(running)
        return underLoad(running, connections, requestOf())
      })
    )
    return { ...none, comparisons: [yield* compare({ ...about, unit: "requests" }, entrants)] }
  })

const size = 100

export const batch: Case = {
  name: "batch",
  about: "a batch that sets 100 entries",
  run: measured({ name: "batch", title: "batch of 100, 16 connections" }, 16, () => {
    const random = Random.make(3)
    return () => {
      const entries = Array.from({ length: size }, () => random(smallStore))
      return Requests.send("POST", "/api/v1/batch", Requests.batchOf(entries))
    }
  })
}

const changesPath = (after: number): string => `/api/v1/changes?after=${after}&limit=${size}`

export const changes: Case = {
  name: "changes",
  about: "a page of 100 changes, for readers that follow the log's end",
  run: measured(
    { name: "changes", title: "page of 100 changes near the log's end, 64 connections" },
    64,
    () => {
      const random = Random.make(4)
      // Readers that keep up are at different positions near the end.
      return () => Requests.get(changesPath(smallStore - size * (1 + random(32))))
    },
    running => expectCount(running, changesPath(smallStore - size), "changes", size)
  )
}

export const changesAnywhere: Case = {
  name: "changes-anywhere",
  about: "a page of 100 changes after any seq of the log",
  run: measured(
    { name: "changes-anywhere", title: "page of 100 changes anywhere in the log, 64 connections" },
    64,
    () => {
      const random = Random.make(5)
      return () => Requests.get(changesPath(random(smallStore - size)))
    },
    running => expectCount(running, changesPath(17), "changes", size)
  )
}

export const list: Case = {
  name: "list",
  about: "a namespace of 1,000 entries, whole",
  run: measured(
    { name: "list", title: "list of 1,000 entries, 16 connections" },
    16,
    () => {
      const random = Random.make(6)
      return () => Requests.get(Requests.listPath(random(smallStore)))
    },
    running => expectCount(running, Requests.listPath(0), "items", Requests.areaSize)
  )
}
