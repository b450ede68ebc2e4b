/** A store with a million entries: start-up time, memory, and throughput compared with a small store. */
import { Console, Effect, Fiber, Schedule } from "effect"
import type { Case } from "../Case.ts"
import { compare, underLoad } from "../Compare.ts"
import { causeway } from "../Contender.ts"
import { none } from "../Findings.ts"
import * as ClosedLoop from "../load/ClosedLoop.ts"
import * as Random from "../load/Random.ts"
import { Plan, smallStore } from "../Plan.ts"
import { residentBytes } from "../Process.ts"
import * as Requests from "../Requests.ts"
import { start } from "../Server.ts"
import { large, scratch, startFilled } from "../Stores.ts"

const shown = (entries: number): string => entries.toLocaleString("en")

const page = 100

type MakeRequest = (entries: number, seed: number) => () => string

const reading: MakeRequest = (entries, seed) => {
  const random = Random.make(seed)
  return () => Requests.get(Requests.entryPath(random(entries)))
}

const writing: MakeRequest = (entries, seed) => {
  const random = Random.make(seed)
  return () => {
    const entry = random(entries)
    return Requests.send("PUT", Requests.entryPath(entry), `{"value":${Requests.valueOf(entry)}}`)
  }
}

const listing: MakeRequest = (entries, seed) => {
  const random = Random.make(seed)
  return () => Requests.get(Requests.listPath(random(entries)))
}

const following: MakeRequest = (entries, seed) => {
  const random = Random.make(seed)
  return () => Requests.get(`/api/v1/changes?after=${random(entries - page)}&limit=${page}`)
}

/** Mostly reads, with some lists and writes. */
const mixed: MakeRequest = (entries, seed) => {
  const random = Random.make(seed)
  const [read, write, follow, list] = [reading, writing, following, listing].map((make, index) =>
    make(entries, seed + index)
  )
  return () => {
    const choice = random(100)
    if (choice < 70) return read!()
    if (choice < 90) return write!()
    return choice < 98 ? follow!() : list!()
  }
}

const MiB = 1024 * 1024

export const startUp: Case = {
  name: "start",
  about: "from the start of the process to the first answer, on a large store",
  run: Effect.gen(function* () {
    const { entries, rounds } = yield* Plan
    const directory = yield* large
    yield* Console.error("start on a large store …")
    const values: Array<number> = []
    for (let round = 0; round < rounds; round++) {
      const path = Requests.entryPath(entries - 1)
      values.push(
        yield* Effect.scoped(Effect.map(start(causeway, { directory, path }), ({ startMillis }) => startMillis))
      )
    }
    const title = `start to first answer, ${shown(entries)} entries`
    return { ...none, quantities: [{ name: "start", title, contender: causeway.name, unit: "ms", values }] }
  })
}

const idleBytes = Effect.gen(function* () {
  const { pid } = yield* start(causeway, { directory: yield* scratch })
  yield* Effect.sleep("5 seconds")
  return (yield* residentBytes(pid)) / MiB
}).pipe(Effect.scoped)

/** The peak resident memory during a load, by sampling. */
const loadedBytes = Effect.gen(function* () {
  const { entries, rounds, seconds, warmUpSeconds } = yield* Plan
  const { pid, port } = yield* start(causeway, { directory: yield* large })
  let most = 0
  const look = Effect.map(residentBytes(pid), bytes => {
    most = Math.max(most, bytes)
  })
  const watching = yield* Effect.forkScoped(Effect.repeat(look, Schedule.spaced("100 millis")))
  yield* ClosedLoop.run({
    port,
    connections: 64,
    seconds: warmUpSeconds + rounds * seconds,
    request: mixed(entries, 20)
  })
  yield* Fiber.interrupt(watching)
  return most / MiB
}).pipe(Effect.scoped)

export const memory: Case = {
  name: "memory",
  about: "resident memory, idle and with a large store under load",
  run: Effect.gen(function* () {
    const { entries } = yield* Plan
    yield* Console.error("resident memory …")
    const idle = [yield* idleBytes]
    const loaded = [yield* loadedBytes]
    const ours = { contender: causeway.name, unit: "MiB" } as const
    return {
      ...none,
      quantities: [
        { ...ours, name: "memory-idle", title: "resident memory, idle, empty store", values: idle },
        {
          ...ours,
          name: "memory-loaded",
          title: `resident memory at most, ${shown(entries)} entries, 64 connections`,
          values: loaded
        }
      ]
    }
  })
}

const kinds = [
  { name: "get", title: "GET, 64 connections", connections: 64, make: reading },
  { name: "list", title: "list of 1,000 entries, 16 connections", connections: 16, make: listing },
  {
    name: "changes",
    title: "page of 100 changes anywhere in the log, 64 connections",
    connections: 64,
    make: following
  },
  { name: "put", title: "PUT, durable, 64 connections", connections: 64, make: writing }
] as const

export const growth: Case = {
  name: "growth",
  about: `GET, list, changes and PUT on ${shown(smallStore)} entries and on a large store`,
  run: Effect.gen(function* () {
    const { entries } = yield* Plan
    const small = yield* startFilled(causeway, smallStore)
    const big = yield* start(causeway, { directory: yield* large })
    const comparisons = yield* Effect.forEach(kinds, ({ connections, make, name, title }, index) =>
      compare({ name: `growth-${name}`, title: `${title}: growth`, unit: "requests" }, [
        underLoad(small, connections, make(smallStore, 30 + index), `${shown(smallStore)} entries`),
        underLoad(big, connections, make(entries, 40 + index), `${shown(entries)} entries`)
      ])
    )
    return { ...none, comparisons }
  })
}
