/** Measures groups of servers over one PostgreSQL, with the CPU time that they and the database need. */
import { Console, Effect } from "effect"
import type { BenchFailed } from "../BenchFailed.ts"
import { Plan } from "../Plan.ts"
import type { Group } from "./Contenders.ts"
import type { Database } from "./Database.ts"

/** One measurement. */
export interface Sample {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  /** CPU per request, in microseconds. */
  readonly serverMicros: number
  readonly databaseMicros: number
  /** The share of all processors that the load generator used. */
  readonly generatorShare: number
  readonly failures: number
}

/** The measurements of one group, one a round. */
export interface Series {
  readonly name: string
  readonly samples: ReadonlyArray<Sample>
}

export interface Comparison {
  readonly title: string
  readonly series: ReadonlyArray<Series>
}

const generatorSeconds = Effect.sync(() => {
  const { system, user } = process.cpuUsage()
  return (system + user) / 1e6
})

const sample = (
  group: Group,
  database: Database,
  connections: number,
  seconds: number,
  request: () => string
): Effect.Effect<Sample, BenchFailed> =>
  Effect.gen(function* () {
    const used = Effect.all([group.processorSeconds, database.processorSeconds, generatorSeconds])
    const before = yield* used
    const startedAt = performance.now()
    const { failures, latency, requests, seconds: taken } = yield* group.load(connections, seconds, request)
    const elapsed = (performance.now() - startedAt) / 1000
    const after = yield* used
    const [server, databaseUsed, generator] = [after[0] - before[0], after[1] - before[1], after[2] - before[2]]
    return {
      perSecond: requests / taken,
      p50: latency.quantile(0.5),
      p99: latency.quantile(0.99),
      serverMicros: (server * 1e6) / requests,
      databaseMicros: (databaseUsed * 1e6) / requests,
      generatorShare: generator / elapsed,
      failures
    }
  })

/** Measures groups in rounds, one group at a time; each round starts with another one. */
export const compare = (
  title: string,
  database: Database,
  groups: ReadonlyArray<Group>,
  connections: number,
  requests: () => () => string
): Effect.Effect<Comparison, BenchFailed, Plan> =>
  Effect.gen(function* () {
    const { rounds, seconds, warmUpSeconds } = yield* Plan
    yield* Console.error(`${title} …`)
    const next = groups.map(requests)
    const samples = groups.map((): Array<Sample> => [])
    for (const [index, group] of groups.entries()) yield* group.load(connections, warmUpSeconds, next[index]!)
    for (let round = 0; round < rounds; round++) {
      for (let turn = 0; turn < groups.length; turn++) {
        const index = (round + turn) % groups.length
        samples[index]!.push(yield* sample(groups[index]!, database, connections, seconds, next[index]!))
      }
    }
    return { title, series: groups.map(({ name }, index) => ({ name, samples: samples[index]! })) }
  })

/** The number of writes and commits by the number of connections. */
export interface Growth {
  readonly connections: number
  readonly perSecond: number
  readonly commitsPerSecond: number
  readonly p50: number
  readonly p99: number
}

/** The delay of the server's statistics: they are up to a second late. */
const lateness = "1500 millis"

/** How writes and commits of a group grow with the number of connections. */
export const growth = (
  database: Database,
  group: Group,
  requests: () => () => string
): Effect.Effect<ReadonlyArray<Growth>, BenchFailed, Plan> =>
  Effect.gen(function* () {
    const { seconds } = yield* Plan
    yield* Console.error(`Growth with connections …`)
    const commits = Effect.zipRight(Effect.sleep(lateness), database.commits(group.url))
    return yield* Effect.forEach([4, 16, 64, 256], connections =>
      Effect.gen(function* () {
        const before = yield* commits
        const { latency, requests: done, seconds: taken } = yield* group.load(connections, seconds, requests())
        const after = yield* commits
        return {
          connections,
          perSecond: done / taken,
          commitsPerSecond: (after - before) / taken,
          p50: latency.quantile(0.5),
          p99: latency.quantile(0.99)
        }
      })
    )
  })
