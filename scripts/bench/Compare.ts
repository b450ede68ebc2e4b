import { Console, Effect, type Scope } from "effect"
import type { BenchFailed } from "./BenchFailed.ts"
import type { Comparison, Sample } from "./Findings.ts"
import * as ClosedLoop from "./load/ClosedLoop.ts"
import { Plan } from "./Plan.ts"
import { treeSeconds } from "./Process.ts"
import type { Running } from "./Server.ts"

/** The work of one contender in a round, with latencies if they were measured. */
export interface Work {
  readonly done: number
  readonly seconds: number
  readonly failures: number
  readonly p50?: number
  readonly p99?: number
}

/** A contender in a comparison. */
export interface Entrant {
  readonly name: string
  readonly pid: number
  /** Connects the clients of a round, until the scope closes. Only the work that it returns is measured. */
  readonly prepare: Effect.Effect<(seconds: number) => Effect.Effect<Work, BenchFailed>, BenchFailed, Scope.Scope>
}

/** A closed loop of requests as work. */
export const underLoad = (
  running: Running,
  connections: number,
  request: () => string,
  name = running.name
): Entrant => ({
  name,
  pid: running.pid,
  prepare: Effect.succeed(seconds =>
    Effect.map(ClosedLoop.run({ port: running.port, connections, seconds, request }), outcome => ({
      done: outcome.requests,
      seconds: outcome.seconds,
      failures: outcome.failures,
      p50: outcome.latency.quantile(0.5),
      p99: outcome.latency.quantile(0.99)
    }))
  )
})

const generatorSeconds = Effect.sync(() => {
  const { system, user } = process.cpuUsage()
  return (system + user) / 1e6
})

const sample = ({ pid, prepare }: Entrant, seconds: number): Effect.Effect<Sample, BenchFailed> =>
  Effect.gen(function* () {
    const work = yield* prepare
    const serverBefore = yield* treeSeconds(pid)
    const generatorBefore = yield* generatorSeconds
    const startedAt = performance.now()
    const { done, seconds: taken, ...rest } = yield* work(seconds)
    const elapsed = (performance.now() - startedAt) / 1000
    const server = (yield* treeSeconds(pid)) - serverBefore
    const generator = (yield* generatorSeconds) - generatorBefore
    return {
      ...rest,
      perSecond: done / taken,
      cpuMicros: (server * 1e6) / done,
      serverShare: server / elapsed,
      generatorShare: generator / elapsed
    }
  }).pipe(Effect.scoped)

/**
 * Measures contenders in rounds, one at a time. Each round begins with another contender, so that other load on the
 * machine affects all of them alike.
 */
export const compare = (
  about: Pick<Comparison, "name" | "title" | "unit">,
  entrants: ReadonlyArray<Entrant>
): Effect.Effect<Comparison, BenchFailed, Plan> =>
  Effect.gen(function* () {
    const { rounds, seconds, warmUpSeconds } = yield* Plan
    yield* Console.error(`${about.title} …`)
    const samples = entrants.map((): Array<Sample> => [])
    for (const entrant of entrants) yield* sample(entrant, warmUpSeconds)
    for (let round = 0; round < rounds; round++) {
      for (let turn = 0; turn < entrants.length; turn++) {
        const index = (round + turn) % entrants.length
        samples[index]!.push(yield* sample(entrants[index]!, seconds))
      }
    }
    return { ...about, series: entrants.map(({ name }, index) => ({ contender: name, samples: samples[index]! })) }
  })
