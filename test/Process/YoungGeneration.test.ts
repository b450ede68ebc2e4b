import { fileURLToPath } from "node:url"
import { Worker } from "node:worker_threads"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { limit } from "../../src/Process/YoungGeneration.ts"

const file = fileURLToPath(new URL("../../src/Process/YoungGeneration.ts", import.meta.url))

/** In a thread, since each has its young generation: tells its size at first, held under load, and released. */
const program = `
const { getHeapSpaceStatistics } = require("node:v8")
const { parentPort, workerData } = require("node:worker_threads")
const { hold, release } = require("tsx/cjs/api").require(workerData, workerData)
const size = () => getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space").space_size
const survive = async () => {
  const kept = []
  const sizes = []
  for (let turn = 0; turn < 200; turn++) {
    for (let index = 0; index < 20_000; index++) kept.push({ index })
    await new Promise(setImmediate)
    sizes.push(size())
  }
  // During a collection it may hold more.
  return sizes.slice(100).sort((a, b) => a - b)[50] + 0 * kept.length
}
const run = async () => {
  hold()
  const first = size()
  const held = await survive()
  release()
  const released = await survive()
  parentPort.postMessage([first, held, released])
}
run()
`

const sizes = Effect.async<ReadonlyArray<number>>(resume => {
  const worker = new Worker(program, {
    eval: true,
    workerData: file,
    execArgv: [],
    resourceLimits: { maxYoungGenerationSizeMb: 192 }
  })
  worker.once("message", (sizes: ReadonlyArray<number>) => resume(Effect.succeed(sizes)))
  worker.once("error", error => resume(Effect.die(error)))
})

describe("YoungGeneration", () => {
  it.live("keeps its size while it is held, and then grows with what survives, up to a limit", () =>
    Effect.gen(function* () {
      const [first, held, released] = yield* sizes
      // V8 commits its two halves one after the other.
      assert.isAtMost(held!, 3 * first!)
      // How far it grows depends on the version of V8: Node 26 stops earlier than Node 24.
      assert.isAbove(released!, held!)
      // It grows once more where objects survive several collections in one turn of the event loop.
      assert.isAtMost(released!, 2 * limit)
    })
  )
})
