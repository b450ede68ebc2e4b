/** One service process on SQLite that is ended and restarted while clients work: their answers form one history. */
import { copyFileSync, existsSync, rmSync } from "node:fs"
import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect, Random } from "effect"
import { isLong, onlyLong, times } from "../Scale.ts"
import * as Environment from "../service/Environment.ts"
import * as Service from "../service/Service.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { testsOf } from "../Tests.ts"
import { counts } from "./Checker.ts"
import * as ServiceNode from "./ServiceNode.ts"
import * as Workload from "./Workload.ts"

const seed = process.env.HISTORY_SEED ?? "history"

/** Copies the database of a process that was killed, as it was then. */
const copyStore = (from: string, to: string): void => {
  for (const name of ["kv.db", "kv.db-wal", "kv.db-shm"]) {
    rmSync(join(to, name), { force: true })
    // SQLite creates the index of the write-ahead log again.
    if (name !== "kv.db-shm" && existsSync(join(from, name))) copyFileSync(join(from, name), join(to, name))
  }
}

layer(Environment.layer, { excludeTestServices: true })("the service on SQLite", it => {
  const test = testsOf(it)
  test.scoped(
    "keeps its promises to concurrent clients while it is killed, or terminated, and started again",
    function* () {
      const random = Random.make(`${seed} kills`)
      const node = yield* ServiceNode.start("node", { directory: yield* temporaryDirectory })
      const kills = times(2)
      const between = isLong ? 350 : 120
      const history = yield* Workload.run(
        { seed, nodes: [node], key: Service.key, clients: 12, operations: (kills + 2) * between, clockError: 50 },
        ({ done, recorder }) =>
          Effect.gen(function* () {
            for (let kill = 1; kill <= kills; kill++) {
              yield* done(kill * between - (yield* random.nextIntBetween(0, between / 2)))
              recorder.note(`kill ${kill}`)
              yield* node.restart()
              recorder.note(`start ${kill}`)
            }
            yield* done((kills + 1) * between)
            recorder.note("termination")
            assert.deepStrictEqual(yield* node.restart(Effect.void, "SIGTERM"), { code: 0, signal: null, stderr: "" })
          })
      )
      assert.isAbove(counts(history)["write ok"] ?? 0, 0)
    }
  )

  onlyLong(test.scoped)(
    "has another log after a backup was restored, which followers learn from its epoch",
    function* () {
      const directory = yield* temporaryDirectory
      const backup = yield* temporaryDirectory
      const node = yield* ServiceNode.start("node", { directory })
      const rounds = times(1)
      const between = isLong ? 200 : 60
      const history = yield* Workload.run(
        {
          ...{ seed: `${seed} restored`, nodes: [node], key: Service.key, clients: 8, clockError: 50 },
          operations: (2 * rounds + 1) * between
        },
        ({ done, recorder }) =>
          Effect.gen(function* () {
            for (let round = 0; round < rounds; round++) {
              yield* done((2 * round + 1) * between)
              recorder.note("backup")
              yield* node.restart(Effect.sync(() => copyStore(directory, backup)))
              yield* done((2 * round + 2) * between)
              recorder.note("restore")
              yield* node.restart(Effect.sync(() => copyStore(backup, directory)))
            }
          })
      )
      const found = counts(history)
      assert.isAbove(found.reset ?? 0, 0, JSON.stringify(found))
      assert.strictEqual(Workload.epochs(history).size, rounds + 1)
    }
  )
})
