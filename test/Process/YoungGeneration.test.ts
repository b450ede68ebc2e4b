import { fileURLToPath } from "node:url"
import { Worker } from "node:worker_threads"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"

const file = fileURLToPath(new URL("../../src/Process/YoungGeneration.ts", import.meta.url))

/** In a thread, as its young generation is its own: tells how large that is at first, held, and released. */
const program = `
const { getHeapSpaceStatistics } = require("node:v8")
const { parentPort, workerData } = require("node:worker_threads")
const { hold, release } = require("tsx/cjs/api").require(workerData, workerData)
const sizeAfter = count => {
  const kept = []
  for (let index = 0; index < count; index++) kept.push({ index })
  return getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space").space_size + 0 * kept.length
}
hold()
const first = sizeAfter(0)
const held = sizeAfter(400_000)
release()
parentPort.postMessage([first, held, sizeAfter(400_000)])
`

const sizes = Effect.async<ReadonlyArray<number>>(resume => {
  const worker = new Worker(program, { eval: true, workerData: file, execArgv: [] })
  worker.once("message", (sizes: ReadonlyArray<number>) => resume(Effect.succeed(sizes)))
  worker.once("error", error => resume(Effect.die(error)))
})

describe.skipIf(!process.versions.v8.startsWith("11."))("YoungGeneration", () => {
  it.live("keeps its size while it is held, and then grows with what survives", () =>
    Effect.gen(function* () {
      const [first, held, released] = yield* sizes
      assert.strictEqual(held, first)
      assert.isAbove(released!, first!)
    })
  )
})
