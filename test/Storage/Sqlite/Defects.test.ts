import { join } from "node:path"
import { describe, expect } from "@effect/vitest"
import { Cause, Effect, Exit, Logger, Option } from "effect"
import { Store } from "../../../src/Kv/Store.ts"
import type { Write } from "../../../src/Kv/Write.ts"
import { Writer } from "../../../src/Storage/Sqlite/Database/Writer.ts"
import type { Reply } from "../../../src/Storage/Sqlite/Database/WriterPort.ts"
import { type Outcome, writer as plugin } from "../../../src/Storage/Sqlite/Kv/Tables.ts"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import { get, lastSeq, put, set } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"

const write = (key: string): Write => ({ operations: [set("n", key, 1)], actor: "tester" })

/** A write that no caller can make by its type, so that the statements refuse to bind it. */
const broken: Write = { operations: [set("n", "broken", 1)], actor: JSON.parse("{}") }

const tags = (reply: Reply<Outcome>) => (reply._tag === "Done" ? reply.outcomes.map(({ _tag }) => _tag) : reply)

describe("a defect in the writer", () => {
  test.scoped("fails its write alone, and the others of the group are committed", function* () {
    const directory = yield* temporaryDirectory
    yield* Effect.provide(lastSeq, Sqlite.layer({ directory, writer: "inline" }))
    const writer = new Writer(join(directory, "kv.db"), plugin(1_000_000))
    const commit = (...writes: ReadonlyArray<Write>) => writer.handle({ kind: "commit", writes, now: 1000 })
    expect(tags(commit(write("a"), broken, write("b")))).toEqual(["Committed", "Defect", "Committed"])
    expect(tags(commit(broken))).toEqual(["Defect"])
    expect(commit(write("c"))).toMatchObject({ _tag: "Done", lastSeq: 3 })
    writer.handle({ kind: "close" })
  })

  for (const mode of ["inline", "thread"] as const) {
    test.scopedLive(`reaches its caller as a defect, with its stack, written ${mode}`, function* () {
      const directory = yield* temporaryDirectory
      yield* Effect.gen(function* () {
        const store = yield* Store
        const [before, defect, after] = yield* Effect.all(
          [Effect.exit(put("n", "a", 1)), Effect.exit(store.commit(broken)), Effect.exit(put("n", "b", 1))],
          { concurrency: "unbounded" }
        )
        expect(Exit.isSuccess(before) && Exit.isSuccess(after)).toBe(true)
        expect(Exit.isFailure(defect) && Cause.pretty(defect.cause)).toMatch(/RangeError: .*\n\s+at /)
        expect(Exit.isFailure(defect) && Cause.isDie(defect.cause)).toBe(true)
        expect(Option.isNone(yield* get("n", "broken"))).toBe(true)
        yield* put("n", "c", 1)
        expect(yield* lastSeq).toBe(3)
      }).pipe(
        Effect.provide(Sqlite.layer({ directory, writer: mode })),
        Effect.provide(Logger.remove(Logger.defaultLogger))
      )
    })
  }
})
