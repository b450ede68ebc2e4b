/** Directories for servers, and stores that are filled over HTTP. */
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Console, Effect, type Scope } from "effect"
import type { BenchFailed } from "./BenchFailed.ts"
import { type Contender, causeway, etcd, webdis } from "./Contender.ts"
import { Plan } from "./Plan.ts"
import * as Requests from "./Requests.ts"
import { post, type Running, start } from "./Server.ts"

/** Concurrent requests while a store is filled. */
const concurrency = 4

/** A directory that is removed with the scope. */
export const scratch: Effect.Effect<string, never, Plan | Scope.Scope> = Effect.flatMap(Plan, ({ directory }) =>
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(directory, "store-"))),
    made => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
  )
)

interface Filling {
  readonly path: string
  readonly size: number
  readonly body: (entries: ReadonlyArray<number>) => string
}

const byBatch: Filling = { path: "/api/v1/batch", size: 1000, body: Requests.batchOf }
const byTransaction: Filling = { path: "/v3/kv/txn", size: 100, body: Requests.etcd.batch }
const byCommand: Filling = { path: "/", size: 10, body: Requests.webdis.fill }

const fillingOf = (name: string): Filling =>
  name === etcd.name ? byTransaction : name === webdis.name ? byCommand : byBatch

/** Sets the given number of entries, each once. */
export const fill = (running: Running, entries: number): Effect.Effect<void, BenchFailed> => {
  const { body, path, size } = fillingOf(running.name)
  return Effect.forEach(
    Array.from({ length: Math.ceil(entries / size) }).keys(),
    index => {
      const from = index * size
      const numbers = Array.from({ length: Math.min(size, entries - from) }, (_, at) => from + at)
      return post(running, path, body(numbers))
    },
    { concurrency, discard: true }
  )
}

/** A server on a new store with the given number of entries. */
export const startFilled = (contender: Contender, entries: number) =>
  Effect.gen(function* () {
    const directory = yield* scratch
    const running = yield* start(contender, { directory })
    yield* fill(running, entries)
    return running
  })

/** The service's large store, which is filled once and then reused. */
export const large: Effect.Effect<string, BenchFailed, Plan> = Effect.gen(function* () {
  const { directory, entries } = yield* Plan
  const store = join(directory, `large-${entries}`)
  const mark = join(store, "filled")
  if (existsSync(mark)) return store
  yield* Console.error(`Filling a store with ${entries} entries …`)
  rmSync(store, { recursive: true, force: true })
  mkdirSync(store, { recursive: true })
  yield* Effect.scoped(Effect.flatMap(start(causeway, { directory: store }), running => fill(running, entries)))
  writeFileSync(mark, "")
  return store
})
