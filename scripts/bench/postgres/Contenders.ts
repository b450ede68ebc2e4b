/** The servers that share a database, several processes of each kind. */
import { fileURLToPath } from "node:url"
import { Effect, type Scope } from "effect"
import type { BenchFailed } from "../BenchFailed.ts"
import { type Contender, causeway, key } from "../Contender.ts"
import * as ClosedLoop from "../load/ClosedLoop.ts"
import { Histogram } from "../load/Histogram.ts"
import { type Plan, smallStore } from "../Plan.ts"
import { isPinned, processorSeconds } from "../Process.ts"
import * as Requests from "../Requests.ts"
import { type Running, start } from "../Server.ts"
import { scratch } from "../Stores.ts"
import type { Database } from "./Database.ts"

/** A kind of server, and how many processes of it share a database. */
export interface Kind {
  readonly name: string
  readonly processes: number
  readonly isService: boolean
  readonly env: Readonly<Record<string, string>>
}

export const two: Kind = { name: "causeway, 2 nodes", processes: 2, isService: true, env: {} }
export const three: Kind = { ...two, name: "causeway, 3 nodes", processes: 3 }
export const one: Kind = { ...two, name: "causeway, 1 node", processes: 1 }
export const peer: Kind = { name: "fastify + pg, 2 processes", processes: 2, isService: false, env: {} }
export const skippingPeer: Kind = {
  ...peer,
  name: "fastify + pg, 2 processes, a log that may skip",
  env: { PEER_LOG: "sequence" }
}

/** All processes, database and load share all processors. */
const contenderOf = ({ env, isService, name }: Kind, url: string): Contender => ({
  name,
  takesKey: true,
  probe: isService ? "/api/v1/changes?limit=1" : "/ready",
  command: (directory, port) =>
    Effect.map(causeway.command(directory, port), command => {
      const own = isService
        ? command
        : {
            file: process.execPath,
            args: ["--import", "tsx", fileURLToPath(new URL("../peers/fastifyPg.ts", import.meta.url))],
            env: { PATH: command.env.PATH ?? "", NODE_ENV: "production", KV_API_KEY: key, PORT: String(port) }
          }
      const all = { ...own.env, ...env, STORE_URL: url }
      return isPinned ? { file: "taskset", args: ["-c", "0,1", own.file, ...own.args], env: all } : { ...own, env: all }
    })
})

/** Processes over one database. */
export interface Group {
  readonly name: string
  readonly url: string
  readonly nodes: ReadonlyArray<Running>
  readonly processorSeconds: Effect.Effect<number, BenchFailed>
  /** Loads all processes at once, each with its share of the connections. */
  readonly load: (
    connections: number,
    seconds: number,
    request: () => string
  ) => Effect.Effect<ClosedLoop.Outcome, BenchFailed>
}

const merged = (outcomes: ReadonlyArray<ClosedLoop.Outcome>): ClosedLoop.Outcome => {
  const latency = new Histogram()
  for (const outcome of outcomes) latency.add(outcome.latency)
  return {
    requests: outcomes.reduce((sum, { requests }) => sum + requests, 0),
    failures: outcomes.reduce((sum, { failures }) => sum + failures, 0),
    seconds: Math.max(...outcomes.map(({ seconds }) => seconds)),
    latency
  }
}

const put = (entry: number): string =>
  Requests.send("PUT", Requests.entryPath(entry), `{"value":${Requests.valueOf(entry)}}`)

/** Sets each entry once. */
const fill = ({ port }: Running) => {
  let entry = 0
  // The load ends with the time, not with the entries; more of them do no harm.
  const next = () => put(entry++ % smallStore)
  const loop: Effect.Effect<void, BenchFailed> = Effect.flatMap(
    ClosedLoop.run({ port, connections: 32, seconds: 2, request: next }),
    () => (entry < smallStore ? loop : Effect.void)
  )
  return loop
}

/** Starts all processes of a kind over a new database, which is filled, until the scope closes. */
export const launch = (
  kind: Kind,
  database: Database,
  databaseName: string
): Effect.Effect<Group, BenchFailed, Plan | Scope.Scope> =>
  Effect.gen(function* () {
    const url = yield* database.create(databaseName)
    const contender = contenderOf(kind, url)
    const running = yield* Effect.forEach(Array.from({ length: kind.processes }), () =>
      Effect.flatMap(scratch, directory => start(contender, { directory }))
    )
    yield* fill(running[0]!)
    return {
      name: kind.name,
      url,
      nodes: running,
      processorSeconds: Effect.map(
        Effect.forEach(running, ({ pid }) => processorSeconds(pid)),
        all => all.reduce((sum, seconds) => sum + seconds, 0)
      ),
      load: (connections, seconds, request) =>
        Effect.map(
          Effect.forEach(
            running,
            ({ port }, index) => {
              const share = Math.floor((connections + index) / running.length)
              return ClosedLoop.run({ port, connections: share, seconds, request })
            },
            { concurrency: "unbounded" }
          ),
          merged
        )
    }
  })
