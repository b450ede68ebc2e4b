/** WebSockets on which nothing happens: what each costs in memory. */
import { fileURLToPath } from "node:url"
import { Console, Effect } from "effect"
import type { Case } from "../Case.ts"
import { type Contender, causeway, key, ws } from "../Contender.ts"
import { none } from "../Findings.ts"
import * as Watchers from "../load/Watchers.ts"
import { Plan } from "../Plan.ts"
import { residentBytes } from "../Process.ts"
import { start } from "../Server.ts"
import { scratch } from "../Stores.ts"

const watchers = 2000

const collect = fileURLToPath(new URL("../peers/collect.cjs", import.meta.url))

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

const perWatcher = (contender: Contender, path: string) =>
  Effect.gen(function* () {
    const nodeArgs = ["--expose-gc", "--require", collect]
    const { pid, port } = yield* start(contender, { directory: yield* scratch, nodeArgs })
    // What the first connection alone brings in is not a watcher's.
    yield* Effect.scoped(Watchers.make({ port, path, key, count: 1 }))
    const before = yield* settledBytes(pid)
    yield* Watchers.make({ port, path, key, count: watchers })
    const after = yield* settledBytes(pid)
    return (after - before) / watchers / 1024
  }).pipe(Effect.scoped)

export const idleWatchers: Case = {
  name: "idle-watchers",
  about: `memory of each of ${watchers} idle WebSockets`,
  run: Effect.gen(function* () {
    const { rounds } = yield* Plan
    yield* Console.error(`memory of ${watchers} idle WebSockets …`)
    const ours: Array<number> = []
    const theirs: Array<number> = []
    for (let round = 0; round < Math.min(rounds, 3); round++) {
      ours.push(yield* perWatcher(causeway, "/api/v1/changes/ws"))
      theirs.push(yield* perWatcher(ws, "/"))
    }
    const about = { name: "idle-watchers", title: `memory of an idle WebSocket, of ${watchers}`, unit: "KiB" } as const
    return {
      ...none,
      quantities: [
        { ...about, contender: causeway.name, values: ours },
        { ...about, contender: ws.name, values: theirs }
      ]
    }
  })
}
