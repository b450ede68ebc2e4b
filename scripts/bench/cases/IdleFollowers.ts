/** The memory of idle WebSockets. */
import { Console, Effect } from "effect"
import type { Case } from "../Case.ts"
import { type Contender, causeway, key, ws } from "../Contender.ts"
import { none } from "../Findings.ts"
import * as Followers from "../load/Followers.ts"
import * as Memory from "../Memory.ts"
import { Plan } from "../Plan.ts"
import { start } from "../Server.ts"
import { scratch } from "../Stores.ts"

const followers = 2000

const perFollower = (contender: Contender, path: string) =>
  Effect.gen(function* () {
    const { pid, port } = yield* start(contender, { directory: yield* scratch, nodeArgs: Memory.nodeArgs })
    // As many before, because the first ones have one-time costs: modules, compiled code, and the allocator's memory for
    // a burst of handshakes.
    yield* Followers.make({ port, path, key, count: followers })
    const before = yield* Memory.settledBytes(pid)
    yield* Followers.make({ port, path, key, count: followers })
    const after = yield* Memory.settledBytes(pid)
    return (after - before) / followers / 1024
  }).pipe(Effect.scoped)

export const idleFollowers: Case = {
  name: "idle-followers",
  about: `memory of each of ${followers} idle WebSockets next to as many`,
  run: Effect.gen(function* () {
    const { rounds } = yield* Plan
    yield* Console.error(`memory of ${followers} idle WebSockets …`)
    const ours: Array<number> = []
    const theirs: Array<number> = []
    for (let round = 0; round < Math.min(rounds, 3); round++) {
      ours.push(yield* perFollower(causeway, "/api/v1/changes/ws"))
      theirs.push(yield* perFollower(ws, "/"))
    }
    const about = {
      name: "idle-followers",
      title: `memory of an idle WebSocket, of ${followers} next to as many`,
      unit: "KiB"
    } as const
    return {
      ...none,
      quantities: [
        { ...about, contender: causeway.name, values: ours },
        { ...about, contender: ws.name, values: theirs }
      ]
    }
  })
}
