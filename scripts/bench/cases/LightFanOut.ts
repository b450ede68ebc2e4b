/** Writes at a constant rate far below the limit, each of which is sent to many WebSockets: how late each one gets it. */
import { connect, type Socket } from "node:net"
import { Effect, type Scope } from "effect"
import { BenchFailed } from "../BenchFailed.ts"
import type { Case } from "../Case.ts"
import { compare, type Entrant, type Work } from "../Compare.ts"
import { causeway, fastifyWs, key } from "../Contender.ts"
import { none } from "../Findings.ts"
import * as Followers from "../load/Followers.ts"
import { Histogram } from "../load/Histogram.ts"
import { Responses } from "../load/Responses.ts"
import { Plan } from "../Plan.ts"
import * as Requests from "../Requests.ts"
import { type Running, start } from "../Server.ts"
import { scratch } from "../Stores.ts"
import { broadcasting, endOfLog, writers, writing } from "./FanOut.ts"

const followers = 200
const writesPerSecond = 50

/** Connections that take turns, so that a late answer delays no write. */
const connections = 10

/** Milliseconds after the last write in which its changes must arrive. */
const drainMillis = 2000

interface Frame {
  readonly changes?: ReadonlyArray<{ readonly value: { readonly sentAt: number } }>
}

/** The writes of a load, and the answers other than 2xx. */
interface Writer {
  readonly send: (index: number) => void
  readonly failures: () => number
}

const writer = (port: number): Effect.Effect<Writer, BenchFailed, Scope.Scope> =>
  Effect.gen(function* () {
    let failures = 0
    const one = Effect.async<Socket, BenchFailed>(resume => {
      const responses = new Responses(status => {
        if (status < 200 || status > 299) failures++
      })
      const socket = connect({ port, host: "127.0.0.1", noDelay: true }, () => resume(Effect.succeed(socket)))
      socket.on("data", bytes => responses.push(bytes))
      socket.on("error", error => resume(new BenchFailed({ reason: `a writer cannot connect: ${error.message}` })))
    })
    const sockets = yield* Effect.forEach(Array.from({ length: connections }), () =>
      Effect.acquireRelease(one, socket => Effect.sync(() => socket.destroy()))
    )
    return {
      send: index => {
        // The time is a part of the value, so that each follower knows it.
        const body = `{"value":{"sentAt":${performance.now()},"item":${Requests.valueOf(index)}}}`
        sockets[index % connections]!.write(Requests.send("PUT", Requests.entryPath(index % Requests.areaSize), body))
      },
      failures: () => failures
    }
  })

const watching = (
  running: Running,
  path: Effect.Effect<string, BenchFailed>,
  onWorst: (millis: number) => void
): Entrant => ({
  name: running.name,
  pid: running.pid,
  prepare: Effect.gen(function* () {
    const latency = new Histogram()
    let done = 0
    yield* Followers.make({
      port: running.port,
      path: yield* path,
      key,
      count: followers,
      onMessage: payload => {
        const { changes = [] }: Frame = JSON.parse(payload)
        for (const { value } of changes) latency.record(performance.now() - value.sentAt)
        done += changes.length
      }
    })
    const { failures, send } = yield* writer(running.port)
    return (seconds: number) =>
      Effect.gen(function* () {
        const wanted = Math.ceil(seconds * writesPerSecond)
        const startedAt = performance.now()
        for (let index = 0; index < wanted; index++) {
          yield* Effect.sleep(Math.max(0, startedAt + (index * 1000) / writesPerSecond - performance.now()))
          send(index)
        }
        const endsAt = performance.now() + drainMillis
        while (done < wanted * followers && performance.now() < endsAt) yield* Effect.sleep(5)
        const taken = (performance.now() - startedAt) / 1000
        const missing = wanted * followers - done
        if (missing > 0) return yield* new BenchFailed({ reason: `${running.name} has not sent ${missing} changes` })
        onWorst(latency.quantile(1))
        const [p50, p99] = [latency.quantile(0.5), latency.quantile(0.99)]
        return { done, seconds: taken, failures: failures(), p50, p99 } satisfies Work
      })
  })
})

/** Writes at the full rate: at 50 a second, a server would run for minutes before its code is compiled for the processor. */
const warmUp = (running: Running, path: Effect.Effect<string, BenchFailed>) =>
  Effect.gen(function* () {
    const { warmUpSeconds } = yield* Plan
    const work = yield* broadcasting(running, path, writers, writing(), () => {}).prepare
    yield* work(warmUpSeconds)
  }).pipe(Effect.scoped)

export const lightFanOut: Case = {
  name: "light-fan-out",
  about: `${writesPerSecond} writes a second to ${followers} WebSockets: how late each one gets them`,
  run: Effect.gen(function* () {
    const service = yield* start(causeway, { directory: yield* scratch })
    const peer = yield* start(fastifyWs, { directory: yield* scratch })
    const paths = [endOfLog(service), Effect.succeed("/api/v1/changes/ws")] as const
    yield* warmUp(service, paths[0])
    yield* warmUp(peer, paths[1])
    const worst: [Array<number>, Array<number>] = [[], []]
    const comparison = yield* compare(
      {
        name: "light-fan-out",
        title: `${writesPerSecond} changes a second to ${followers} WebSockets, from the write to the change`,
        unit: "frames"
      },
      [
        watching(service, paths[0], millis => worst[0].push(millis)),
        watching(peer, paths[1], millis => worst[1].push(millis))
      ]
    )
    const about = { name: "light-fan-out", title: "the latest change of the same load", unit: "ms" } as const
    return {
      ...none,
      comparisons: [comparison],
      // The first one is that of the warm-up.
      quantities: [service, peer].map(({ name }, index) => ({
        ...about,
        contender: name,
        values: worst[index]!.slice(1)
      }))
    }
  })
}
