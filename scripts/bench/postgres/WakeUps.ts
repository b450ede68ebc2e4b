/** Measures the delay until a follower on one node has a write of another. */
import { Agent, request } from "node:http"
import { Console, Effect, type Scope } from "effect"
import { WebSocket } from "ws"
import { BenchFailed } from "../BenchFailed.ts"
import { key as credential } from "../Contender.ts"
import type { Running } from "../Server.ts"
import type { Group } from "./Contenders.ts"

/**
 * Milliseconds from the answer of a write until a follower on another node had it; 0 if it had it before the answer.
 */
export interface WakeUps {
  /** Connections that wrote to the same nodes during the measurement. */
  readonly connections: number
  readonly writes: number
  readonly p50: number
  readonly p99: number
  readonly most: number
}

/** Writes of one measurement, and the seconds after which it ends if there were fewer. */
const maxWrites = 200
const maxSeconds = 6

/** Milliseconds between an arrival and the next write, at random, so that no interval of a node is in step with it. */
const longestPause = 20

/** Timeout for a write and for its arrival, in milliseconds. */
const timeout = 10_000

const namespace = "tenant:bench-wake-ups/n"

const failed = (reason: unknown) => new BenchFailed({ reason: `wake-ups: ${String(reason)}` })

/** A follower of the namespace that reports when it had a key. */
class Follower {
  readonly #waiting = new Map<string, (time: number) => void>()

  constructor(readonly socket: WebSocket) {
    socket.on("message", data => {
      const now = performance.now()
      const frame = JSON.parse(String(data)) as { readonly changes?: ReadonlyArray<{ readonly key: string }> }
      for (const { key } of frame.changes ?? []) {
        this.#waiting.get(key)?.(now)
        this.#waiting.delete(key)
      }
    })
  }

  arrivalOf(key: string): Promise<number> {
    return new Promise(resolve => this.#waiting.set(key, resolve))
  }
}

const follow = ({ headers, port }: Running): Effect.Effect<Follower, BenchFailed, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.async<Follower, BenchFailed>(resume => {
      const path = `/api/v1/changes/ws?namespace=${encodeURIComponent(namespace)}&after=0`
      const socket = new WebSocket(`ws://127.0.0.1:${port}${path}`, { headers })
      const follower = new Follower(socket)
      socket.on("error", error => resume(failed(error)))
      socket.on("open", () => resume(Effect.succeed(follower)))
    }),
    ({ socket }) => Effect.sync(() => socket.terminate())
  )

/** Sets a key. Returns when the answer arrived. */
const put = (agent: Agent, port: number, key: string): Promise<number> =>
  new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${credential}`, "content-type": "application/json" }
    const path = `/api/v1/kv/${encodeURIComponent(namespace)}/${key}`
    request({ agent, port, path, headers, method: "PUT", host: "127.0.0.1" }, answer => {
      const now = performance.now()
      answer.resume()
      if (answer.statusCode === 200) answer.on("end", () => resolve(now))
      else reject(new Error(`PUT was answered ${answer.statusCode}`))
    })
      .on("error", reject)
      .end('{"value":1}')
  })

/** The value at a share (0 to 1) of sorted values. */
const quantile = (sorted: ReadonlyArray<number>, share: number): number =>
  sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN

const measurement = (
  { nodes }: Group,
  connections: number,
  label: string
): Effect.Effect<WakeUps, BenchFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const [one, other] = nodes
    if (one === undefined || other === undefined) return yield* failed("there is one node only")
    const follower = yield* follow(other)
    const agent = yield* Effect.acquireRelease(
      // With a time limit of its own the agent heeds the server's, and does not write to a connection that is being
      // closed.
      Effect.sync(() => new Agent({ keepAlive: true, maxSockets: 1, timeout: 60_000 })),
      agent => Effect.sync(() => agent.destroy())
    )
    const write = (key: string) =>
      Effect.tryPromise({
        try: async () => {
          const [arrived, answered] = await Promise.all([follower.arrivalOf(key), put(agent, one.port, key)])
          return Math.max(0, arrived - answered)
        },
        catch: failed
      }).pipe(Effect.timeoutFail({ duration: timeout, onTimeout: () => failed(`${key} did not arrive`) }))
    // The first one finds the follower at the end of the log.
    yield* write(`${label}-first`)
    const endsAt = performance.now() + maxSeconds * 1000
    const times: Array<number> = []
    while (times.length < maxWrites && performance.now() < endsAt) {
      yield* Effect.sleep(Math.random() * longestPause)
      times.push(yield* write(`${label}-${times.length}`))
    }
    const sorted = times.sort((a, b) => a - b)
    return {
      connections,
      writes: sorted.length,
      p50: quantile(sorted, 0.5),
      p99: quantile(sorted, 0.99),
      most: quantile(sorted, 1)
    }
  })

/** Measures a group without other load, and while connections write to all of its nodes. */
export const measure = (
  group: Group,
  connections: number,
  requests: () => () => string
): Effect.Effect<ReadonlyArray<WakeUps>, BenchFailed> =>
  Effect.gen(function* () {
    yield* Console.error("Wake-ups of followers on another node …")
    const idle = yield* Effect.scoped(measurement(group, 0, "idle"))
    const [loaded] = yield* Effect.all(
      [
        Effect.scoped(Effect.delay(measurement(group, connections, "loaded"), "500 millis")),
        group.load(connections, maxSeconds + 1, requests())
      ],
      { concurrency: 2 }
    )
    return [idle, loaded]
  })
