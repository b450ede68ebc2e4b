import { open } from "node:fs/promises"
import { assert, describe } from "@effect/vitest"
import { Duration, Effect, Fiber } from "effect"
import * as ShutdownDeadline from "../../../src/base/Process/ShutdownDeadline.ts"
import * as Fifo from "../../faults/Fifo.ts"
import { test } from "../../Tests.ts"

const limit = { limit: Duration.hours(1), isJson: true }

describe("The end of the process", () => {
  test.scopedLive(
    "waits for a call on a file that does not return, since process.exit would, without an end",
    function* () {
      const { answer, paths } = yield* Fifo.make(1)
      const reading = open(paths[0]!)
      const settling = yield* Effect.fork(ShutdownDeadline.settled(limit))
      for (let turns = 0; turns < 10; turns++) yield* Effect.promise(() => new Promise(setImmediate))
      assert.strictEqual((yield* Fiber.poll(settling))._tag, "None")
      yield* answer
      yield* Fiber.join(settling)
      yield* Effect.promise(async () => (await reading).close())
    }
  )
})
