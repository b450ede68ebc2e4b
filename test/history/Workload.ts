/**
 * Clients that concurrently write, read, list and follow, against the nodes of a running service, at random by a seed.
 * Requests and answers are recorded, and checked by `Checker`.
 */

import { closeSync, mkdtempSync, openSync, writeSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Data, Duration, Effect, Fiber, Random, type Scope } from "effect"
import { check, counts } from "./Checker.ts"
import { agent, Client, type Gone, type Node, type Session, type Unexpected } from "./Client.ts"
import { Follower, type Options as FollowerOptions } from "./Followers.ts"
import * as H from "./History.ts"
import type { Violation } from "./Operations.ts"
import { Recorder } from "./Recorder.ts"
import { type Versions, Worker } from "./Worker.ts"

export interface Options {
  readonly seed: string
  readonly nodes: ReadonlyArray<Node>
  readonly key: string
  readonly clients: number
  /** How many operations are done, by all clients together. */
  readonly operations: number
  /** By how many milliseconds the clocks of this process, the nodes and the database may differ. */
  readonly clockError: number
  readonly timeout?: Duration.DurationInput
}

export interface Running {
  readonly recorder: Recorder
  /** Waits until so many operations have ended. */
  readonly done: (operations: number) => Effect.Effect<void>
  /** Waits until all clients have done their part and all followers are at the end of the log. */
  readonly finished: Effect.Effect<void, Unexpected | Gone>
}

const followers: ReadonlyArray<FollowerOptions> = [
  { name: "socket", by: "socket", maxMessages: 200 },
  { name: "events", by: "events", maxMessages: 400 },
  { name: "restless socket", by: "socket", maxMessages: 5 },
  { name: "restless events", by: "events", maxMessages: 40 },
  { name: "socket of a", by: "socket", tenant: "a", maxMessages: 30 },
  { name: "events of b", by: "events", tenant: "b", maxMessages: 30 }
]

/** How long followers may take to read the last records. */
const catchUp = Duration.seconds(150)

/** The last `seq` that the whole log has, and the last of each tenant. */
class Ends {
  seq = 0
  private readonly tenants = new Map<string, number>()

  take({ changes, lastSeq }: H.PollResult): void {
    for (const { seq, tenantId } of changes) this.tenants.set(tenantId, seq)
    this.seq = lastSeq
  }

  /** Whether a follower has what is for it, and nothing beyond. */
  isReachedBy({ options: { tenant }, seq }: Follower): boolean {
    return tenant === undefined ? seq === this.seq : seq <= this.seq && seq >= (this.tenants.get(tenant) ?? 0)
  }
}

/** Reads the log until all followers have reached its end, and records the end of the history there. */
const close = (session: Session, nodes: ReadonlyArray<Node>, all: ReadonlyArray<Follower>) =>
  Effect.gen(function* () {
    const client = new Client(session, "last")
    const ends = new Ends()
    for (const one of all) one.stay()
    let turn = 0
    const read = Effect.gen(function* () {
      const node = nodes[turn++ % nodes.length]!
      const action = { follower: "last", after: ends.seq, limit: 1000, wait: 0 }
      const page = yield* client.poll(node, action)
      if (page !== undefined) ends.take(page)
      return page !== undefined && page.changes.length < action.limit && all.every(one => ends.isReachedBy(one))
    })
    yield* Effect.sleep("10 millis").pipe(
      Effect.zipRight(read),
      Effect.repeat({ until: isReached => isReached }),
      Effect.timeoutOption(catchUp)
    )
    session.recorder.end()
  })

/** Starts the clients and followers; the scope ends them. */
export const start = (options: Options): Effect.Effect<Running, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { clockError, key, nodes, operations, timeout = "10 seconds", seed } = options
    const waiting = new Set<{ readonly count: number; readonly resume: () => void }>()
    const recorder = new Recorder(seed, clockError, () => {
      for (const waiter of waiting) if (recorder.ended >= waiter.count) waiter.resume()
    })
    const session = { recorder, key, agent: yield* agent, timeout: Duration.decode(timeout) }
    const versions: Versions = new Map()
    const all = followers.map(one => new Follower(session, one))
    const following = yield* Effect.forkScoped(
      Effect.forEach(all, one => one.follow(nodes, Random.make(`${seed} ${one.options.name}`)), {
        concurrency: "unbounded",
        discard: true
      })
    )
    const working = yield* Effect.forkScoped(
      Effect.forEach(
        Array.from({ length: options.clients }, (_, index) => `client${index}`),
        name => {
          const worker = new Worker(session, name, nodes, Random.make(`${seed} ${name}`), versions)
          return Effect.whileLoop({ while: () => recorder.ended < operations, body: () => worker.step, step: () => {} })
        },
        { concurrency: "unbounded", discard: true }
      )
    )
    return {
      recorder,
      done: count =>
        Effect.async<void>(resume => {
          if (recorder.ended >= count) return resume(Effect.void)
          const waiter = {
            count,
            resume: () => {
              waiting.delete(waiter)
              resume(Effect.void)
            }
          }
          waiting.add(waiter)
          return Effect.sync(() => waiting.delete(waiter))
        }),
      finished: Fiber.join(working).pipe(
        Effect.zipRight(close(session, nodes, all)),
        Effect.zipLeft(Fiber.interrupt(following))
      )
    }
  })

export class Violated extends Data.TaggedError("Violated")<{ readonly message: string }> {}

const messages = (violations: ReadonlyArray<Violation>): string =>
  violations
    .slice(0, 20)
    .map(({ message, rule }) => `  ${rule}: ${message}`)
    .join("\n")

/** Writes the history to a separate file, which is kept, and returns its path. */
const keep = (history: H.History): string => {
  const file = join(mkdtempSync(join(process.env.TEST_ARTIFACTS ?? tmpdir(), "causeway-history-")), "history.ndjson")
  const descriptor = openSync(file, "w")
  for (const line of H.lines(history)) writeSync(descriptor, `${line}\n`)
  closeSync(descriptor)
  return file
}

/** Fails if the history shows a violation; then the history is kept in a file. */
export const verify = (history: H.History): Effect.Effect<void, Violated> =>
  Effect.suspend(() => {
    const violations = check(history)
    const what = `${JSON.stringify(counts(history))}, seed ${JSON.stringify(history.header.seed)}`
    if (violations.length === 0) return Effect.logInfo(`No violation in ${what}`)
    return new Violated({
      message: `${violations.length} violations in ${what}, kept in ${keep(history)}:\n${messages(violations)}`
    })
  })

export const epochs = ({ events }: H.History): ReadonlySet<string> =>
  new Set(events.flatMap(event => (event.type === "ok" && "epoch" in event.result ? [event.result.epoch ?? ""] : [])))

/** Runs the workload while something happens to the nodes, and checks the history. */
export const run = <E, R>(
  options: Options,
  disturb: (running: Running) => Effect.Effect<void, E, R>
): Effect.Effect<H.History, E | Unexpected | Gone | Violated, R> =>
  Effect.scoped(
    Effect.gen(function* () {
      yield* Effect.logInfo(`Seed ${JSON.stringify(options.seed)}: ${options.operations} operations`)
      const running = yield* start(options)
      yield* Effect.all([running.finished, disturb(running)], { concurrency: "unbounded", discard: true })
      yield* verify(running.recorder)
      return running.recorder
    })
  )
