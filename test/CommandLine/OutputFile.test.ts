import { readdirSync, readlinkSync } from "node:fs"
import { join } from "node:path"
import { assert, describe } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { openHandle } from "../../src/CommandLine/Transfer/OutputFile.ts"
import * as Fifo from "../faults/Fifo.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"

const isOpen = (file: string): boolean =>
  readdirSync("/proc/self/fd").some(descriptor => {
    try {
      return readlinkSync(`/proc/self/fd/${descriptor}`) === file
    } catch {
      return false
    }
  })

describe("openHandle", () => {
  test.scopedLive("a file is closed after the end of the scope", function* () {
    const file = join(yield* temporaryDirectory, "file")
    yield* Effect.scoped(Effect.map(openHandle(file, "wx"), () => assert.isTrue(isOpen(file))))
    yield* Effect.repeat(Effect.sleep("1 millis"), { until: () => !isOpen(file) })
  })

  test.scopedLive("a disk that does not answer delays neither an interruption nor the end of the scope", function* () {
    const [fifo] = (yield* Fifo.make(1)).paths
    const opening = yield* Effect.fork(Effect.scoped(openHandle(fifo!, "r")))
    yield* Effect.yieldNow()
    assert.isTrue(Exit.isInterrupted(yield* Fiber.interrupt(opening)))
  })
})
