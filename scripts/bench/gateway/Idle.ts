/** Clients to which nothing happens: what each costs in memory. */
import { fileURLToPath } from "node:url"
import { Console, Effect, type Scope } from "effect"
import type { BenchFailed } from "../BenchFailed.ts"
import { key, ws } from "../Contender.ts"
import * as Watchers from "../load/Watchers.ts"
import type { Plan } from "../Plan.ts"
import { residentBytes } from "../Process.ts"
import { type Running, start } from "../Server.ts"
import { scratch } from "../Stores.ts"
import * as Clients from "./Clients.ts"
import { launch } from "./Gateway.ts"
import * as Platform from "./Platform.ts"

/** KiB of each client. */
export interface Idle {
  readonly clients: number
  readonly connected: number
  /** Of each that has a session and follows it. */
  readonly following: number
  /** Of a WebSocket of `ws` alone. */
  readonly peer: number
}

const collect = fileURLToPath(new URL("../peers/collect.cjs", import.meta.url))

const nodeArgs = ["--expose-gc", "--require", collect]

/** Resident memory after garbage was collected twice, so that what is left is in use. */
const settledBytes = (pid: number) =>
  Effect.gen(function* () {
    for (let time = 0; time < 2; time++) {
      yield* Effect.sleep("1 second")
      yield* Effect.sync(() => process.kill(pid, "SIGUSR2"))
    }
    yield* Effect.sleep("1 second")
    return yield* residentBytes(pid)
  })

const each = <R extends Running>(
  server: Effect.Effect<R, BenchFailed, Plan | Scope.Scope>,
  connect: (server: R, count: number) => Effect.Effect<unknown, BenchFailed, Scope.Scope>,
  count: number
) =>
  Effect.gen(function* () {
    const running = yield* server
    // What the first of them alone bring in is not a client's.
    yield* Effect.scoped(connect(running, 50))
    const before = yield* settledBytes(running.pid)
    yield* connect(running, count)
    return ((yield* settledBytes(running.pid)) - before) / count / 1024
  }).pipe(Effect.scoped)

/** Measures so many clients, each kind on a server of its own. */
export const run = (count: number) =>
  Effect.gen(function* () {
    yield* Console.error(`memory of ${count} idle clients …`)
    const platform = yield* Platform.make
    const gateway = Effect.flatMap(scratch, directory => launch(platform.url, "one", { directory, nodeArgs }))
    const clientsOf =
      (withSessions: boolean) =>
      ({ url }: { readonly url: string }, count: number) =>
        Clients.make({ url, count, withSessions })
    const result: Idle = {
      clients: count,
      connected: yield* each(gateway, clientsOf(false), count),
      following: yield* each(gateway, clientsOf(true), count),
      peer: yield* each(
        Effect.flatMap(scratch, directory => start(ws, { directory, nodeArgs })),
        ({ port }, count) => Watchers.make({ port, path: "/", key, count }),
        count
      )
    }
    return result
  }).pipe(Effect.scoped)
