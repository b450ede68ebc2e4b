import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Layer, Scope } from "effect"
import * as Memory from "../../src/Gateway/SessionEvents/Memory.ts"
import { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import * as Sqlite from "../../src/Storage/Sqlite/SessionEvents.ts"
import { emptiedNode } from "../postgres/Databases.ts"
import { reasonToSkip } from "../postgres/Server.ts"
import { isLong } from "../Scale.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"
import { sessionEventsSuite } from "./SessionEventsSuite.ts"

sessionEventsSuite("Events in memory", Memory.layer)

for (const writer of isLong ? (["inline", "thread"] as const) : (["inline"] as const)) {
  sessionEventsSuite(`Events in SQLite, written ${writer}`, retention =>
    Layer.unwrapScoped(Effect.map(temporaryDirectory, directory => Sqlite.layer({ directory, writer, retention })))
  )
}

describe.skipIf(reasonToSkip !== undefined)(`PostgreSQL ${reasonToSkip ?? ""}`, () => {
  if (reasonToSkip === undefined) {
    sessionEventsSuite("Events in PostgreSQL", retention => emptiedNode({ retention }))
  } else it("passes the suite of event logs", () => undefined)
})

describe("A database of events", () => {
  test.scoped("survives the process that wrote it", function* () {
    const directory = yield* temporaryDirectory
    const layer = Sqlite.layer({ directory, writer: "inline" })
    yield* Effect.gen(function* () {
      const events = yield* SessionEvents
      yield* events.open("t/s", "e1")
      yield* events.append({
        session: "t/s",
        epoch: "e1",
        after: 0,
        timestamp: 1,
        texts: ["1", "2"],
        recoveryState: "b"
      })
    }).pipe(Effect.provide(layer))
    yield* Effect.gen(function* () {
      const events = yield* SessionEvents
      expect(yield* events.unfinished).toEqual([{ session: "t/s", recoveryState: "b" }])
      expect(yield* events.open("t/s", "e2")).toMatchObject({
        epoch: "e1",
        headSeq: 2,
        trimmedSeq: 0,
        recoveryState: "b"
      })
    }).pipe(Effect.provide(layer))
  })

  for (const writer of ["inline", "thread"] as const) {
    // By the test's clock, which does not advance: on a busy machine the thread may take longer to start than writes may
    // wait.
    test.scoped(`finishes waiting writes before it closes, written ${writer}`, function* () {
      const directory = yield* temporaryDirectory
      const scope = yield* Scope.make()
      const events = yield* Scope.extend(Sqlite.make({ directory, writer }), scope)
      // The thread is only started by these, and several groups of them wait for it.
      const opened = yield* Effect.forEach(
        Array.from({ length: 1500 }, (_, index) => `t/${index}`),
        session => Effect.fork(Effect.exit(events.open(session, "e")))
      )
      yield* Effect.yieldNow()
      yield* Scope.close(scope, Exit.void)
      expect((yield* Fiber.join(Fiber.all(opened))).filter(Exit.isFailure)).toEqual([])
    })
  }

  test.scoped("belongs to one process at a time", function* () {
    const directory = yield* temporaryDirectory
    yield* Sqlite.make({ directory, writer: "inline" })
    const refused = yield* Effect.flip(Sqlite.make({ directory, writer: "inline" }))
    expect(refused.message).toContain("sessions.lock is locked")
  })

  test.scoped("refuses another file and leaves it unchanged", function* () {
    const directory = yield* temporaryDirectory
    const file = join(directory, "sessions.db")
    const text = "these are the notes of a user, long enough to be taken for a header. ".repeat(4)
    writeFileSync(file, text)
    const refused = yield* Effect.flip(Effect.scoped(Sqlite.make({ directory, writer: "inline" })))
    expect(refused.message).toBe(`${file} is not a SQLite database`)
    expect(readFileSync(file, "utf8")).toBe(text)
  })
})
