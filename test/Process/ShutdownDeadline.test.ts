import { execFileSync } from "node:child_process"
import { open } from "node:fs/promises"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber } from "effect"
import * as ShutdownDeadline from "../../src/Process/ShutdownDeadline.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

const limit = { limit: Duration.hours(1), isJson: true }

describe("The end of the process", () => {
  it.scopedLive("waits for a call on a file that does not return, since process.exit would, without an end", () =>
    Effect.gen(function* () {
      const fifo = join(yield* temporaryDirectory, "fifo")
      execFileSync("mkfifo", [fifo])
      // To open one end waits for the other.
      const reading = open(fifo, "r")
      const settling = yield* Effect.fork(ShutdownDeadline.settled(limit))
      for (let turns = 0; turns < 10; turns++) yield* Effect.promise(() => new Promise(setImmediate))
      assert.strictEqual((yield* Fiber.poll(settling))._tag, "None")
      const writing = yield* Effect.promise(() => open(fifo, "w"))
      yield* Effect.promise(() => writing.close())
      yield* Effect.promise(async () => (await reading).close())
      yield* Fiber.join(settling)
    })
  )
})
