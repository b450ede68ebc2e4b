/** The memory of idle clients. */
import { Console, Effect, type Scope } from "effect"
import type { BenchFailed } from "../BenchFailed.ts"
import { key, ws } from "../Contender.ts"
import * as Followers from "../load/Followers.ts"
import * as Memory from "../Memory.ts"
import type { Plan } from "../Plan.ts"
import { type Running, start } from "../Server.ts"
import { scratch } from "../Stores.ts"
import * as Clients from "./Clients.ts"
import { launch } from "./Gateway.ts"
import * as Platform from "./Platform.ts"

/** KiB per client. */
export interface Idle {
  readonly clients: number
  readonly connected: number
  /** With a session that the client follows. */
  readonly following: number
  /** A WebSocket of `ws` alone. */
  readonly peer: number
}

const each = <R extends Running>(
  server: Effect.Effect<R, BenchFailed, Plan | Scope.Scope>,
  connect: (server: R, count: number) => Effect.Effect<unknown, BenchFailed, Scope.Scope>,
  count: number
) =>
  Effect.gen(function* () {
    const running = yield* server
    // The first connections have one-time costs: modules, and code that is compiled for the processor.
    yield* Effect.scoped(connect(running, Math.ceil(count / 2)))
    const before = yield* Memory.settledBytes(running.pid)
    yield* connect(running, count)
    return ((yield* Memory.settledBytes(running.pid)) - before) / count / 1024
  }).pipe(Effect.scoped)

/** Measures the given number of clients, each kind on its own server. */
export const run = (count: number) =>
  Effect.gen(function* () {
    yield* Console.error(`memory of ${count} idle clients …`)
    const platform = yield* Platform.make
    const gateway = Effect.flatMap(scratch, directory =>
      launch({ AGENT_PLATFORM_URL: platform.url }, "one", { directory, nodeArgs: Memory.nodeArgs })
    )
    const clientsOf =
      (withSessions: boolean) =>
      ({ url }: { readonly url: string }, count: number) =>
        Clients.make({ url, count, withSessions })
    const result: Idle = {
      clients: count,
      connected: yield* each(gateway, clientsOf(false), count),
      following: yield* each(gateway, clientsOf(true), count),
      peer: yield* each(
        Effect.flatMap(scratch, directory => start(ws, { directory, nodeArgs: Memory.nodeArgs })),
        ({ port }, count) => Followers.make({ port, path: "/", key, count }),
        count
      )
    }
    return result
  }).pipe(Effect.scoped)
