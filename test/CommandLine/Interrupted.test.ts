/** Commands that are interrupted while they wait for what cannot be interrupted. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Fifo from "../faults/Fifo.ts"
import { start } from "./Program.ts"

describe("An interrupted command", () => {
  it.scopedLive("ends at the first signal, also while a file that it reads does not answer", () =>
    Effect.gen(function* () {
      const { paths } = yield* Fifo.make(1)
      const path = paths[0]!
      const command = yield* start({ args: ["kv", "set", "namespace", "key", "--file", path] })
      yield* Fifo.isRead(command.pid, path)
      yield* command.signal("SIGINT")
      // The signal itself ends the process, so it has no code.
      assert.deepStrictEqual(yield* command.ended, { code: null, stdout: "", stderr: "" })
    })
  )
})
