/** Reads and durable writes of single entries. */
import { Effect } from "effect"
import { type Case, present } from "../Case.ts"
import { compare, underLoad } from "../Compare.ts"
import { type Contender, causeway, etcd, fastify, raw, webdis } from "../Contender.ts"
import { none } from "../Findings.ts"
import * as Random from "../load/Random.ts"
import { smallStore } from "../Plan.ts"
import * as Requests from "../Requests.ts"
import { start } from "../Server.ts"
import { scratch, startFilled } from "../Stores.ts"
import * as Workloads from "../Workloads.ts"

const peers: ReadonlyMap<Contender, Record<"get" | "set", (entry: number) => string>> = new Map<
  Contender,
  Record<"get" | "set", (entry: number) => string>
>([
  [etcd, Requests.etcd],
  [webdis, Requests.webdis]
])

const requestsOf = (workload: Workloads.Workload, method: "get" | "set", seed: number) => (contender: Contender) => {
  const peer = peers.get(contender)
  if (peer === undefined) return workload.requests()
  const random = Random.make(seed)
  return () => peer[method](random(smallStore))
}

const started = (contender: Contender) =>
  contender === raw
    ? Effect.flatMap(scratch, directory => start(contender, { directory }))
    : startFilled(contender, smallStore)

const measured = (
  about: Workloads.Workload,
  contenders: ReadonlyArray<Contender>,
  requestOf: (contender: Contender) => () => string
) =>
  Effect.gen(function* () {
    const { present: some, remarks } = yield* present(contenders)
    const entrants = yield* Effect.forEach(some, contender =>
      Effect.map(started(contender), running => underLoad(running, about.connections, requestOf(contender)))
    )
    const comparison = yield* compare({ ...about, unit: "requests" }, entrants)
    return { ...none, comparisons: [comparison], remarks }
  })

export const get: Case = {
  name: "get",
  about: "GET of one entry",
  run: measured(Workloads.get, [causeway, raw, fastify, webdis, etcd], requestsOf(Workloads.get, "get", 1))
}

export const getHot: Case = {
  name: "get-hot",
  about: "GET of one of 100 entries",
  run: measured(Workloads.getHot, [causeway, raw], () => Workloads.getHot.requests())
}

export const put: Case = {
  name: "put",
  about: "PUT of one entry, on disk before it is answered",
  run: measured(Workloads.put, [causeway, fastify, webdis, etcd], requestsOf(Workloads.put, "set", 2))
}
