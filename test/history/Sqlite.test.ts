/** One service process on SQLite, killed and started again while clients work: what they were told is one history. */
import { assert, layer } from "@effect/vitest"
import { Effect, Random } from "effect"
import * as Environment from "../service/Environment.ts"
import * as Service from "../service/Service.ts"
import { counts } from "./Checker.ts"
import * as ServiceNode from "./ServiceNode.ts"
import * as Workload from "./Workload.ts"

const soak = Number(process.env.SOAK ?? 1)
const seed = process.env.HISTORY_SEED ?? "history"

layer(Environment.layer, { excludeTestServices: true })("the service on SQLite", it => {
  it.scoped(
    "keeps its promises to concurrent clients while it is killed and started again",
    () =>
      Effect.gen(function* () {
        const random = Random.make(`${seed} kills`)
        const node = yield* ServiceNode.start("node", { directory: yield* Environment.temporaryDirectory })
        const kills = 2 * soak
        const between = 700
        const history = yield* Workload.run(
          { seed, nodes: [node], key: Service.key, clients: 12, operations: (kills + 1) * between, clockError: 50 },
          ({ done, recorder }) =>
            Effect.gen(function* () {
              for (let kill = 1; kill <= kills; kill++) {
                yield* done(kill * between - (yield* random.nextIntBetween(0, between / 2)))
                recorder.note(`kill ${kill}`)
                yield* node.restart
                recorder.note(`start ${kill}`)
              }
            })
        )
        assert.isAbove(counts(history)["write ok"] ?? 0, 0)
      }),
    120_000 * soak
  )
})
