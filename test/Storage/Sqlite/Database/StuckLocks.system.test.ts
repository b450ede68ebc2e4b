import { realpathSync } from "node:fs"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { StuckLocks } from "../../../../src/Storage/Sqlite/Database/Recovery.ts"
import * as Disk from "../../../faults/Disk.ts"
import * as Owner from "../../../faults/Owner.ts"
import { isSoak } from "../../../Scale.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"

/** More attempts than any recovery needs; each takes a second at most. */
const attempts = 40

const pause = Effect.promise(() => new Promise<void>(resolve => setTimeout(resolve, 250)))

describe.skipIf(!Disk.isPossible)("locks that the operating system fails to give up", () => {
  const recovers = (write: "set" | "setDirectly") => () =>
    Effect.gen(function* () {
      const directory = realpathSync(yield* temporaryDirectory)
      const disk = yield* Disk.make(directory)
      const owner = yield* Owner.start(directory, { env: disk.env })
      expect(owner.opened).toEqual({ ok: "open" })
      // A lock that could not be released stays in SQLite's own table, at whatever point of a write that happens.
      for (const skip of isSoak ? [0, 1, 2, 3, 4, 5, 6, 7, 8] : [2, 3]) {
        yield* owner.ask({ do: "set", key: "before", value: String(skip) })
        yield* disk.set([{ call: "lock", skip, times: 1, outcome: "EIO" }])
        yield* owner.ask({ do: "set", key: "during", value: String(skip) })
        yield* owner.ask({ do: "get", key: "before" })
        yield* disk.heal
        const set = owner.ask({ do: write, key: "after", value: String(skip) })
        let answer = yield* set
        for (let attempt = 1; "error" in answer && attempt < attempts; attempt++) {
          yield* pause
          answer = yield* set
        }
        expect(answer, `with locks that fail after ${skip}`).toHaveProperty("ok")
        expect(yield* owner.ask({ do: "get", key: "after" })).toEqual({ ok: String(skip) })
      }
      yield* owner.end
    })

  it.scopedLive("do not prevent writes once the system works again", recovers("set"))

  // Other answers of the writer in the meantime must not reopen a connection before all of them have been closed.
  it.scopedLive("do not prevent writes while the writer has other work", recovers("setDirectly"))

  test.scopedLive("do not prevent reads", function* () {
    const directory = realpathSync(yield* temporaryDirectory)
    const disk = yield* Disk.make(directory)
    const owner = yield* Owner.start(directory, { env: disk.env, sessions: true })
    const reads = { store: owner.ask({ do: "get", key: "k" }), sessions: owner.ask({ do: "configuration" }) }
    // The second lock is one that a read takes exclusively before it shares it.
    const cases = isSoak
      ? (["store", "sessions"] as const).flatMap(of => [0, 1, 2, 3, 4, 5, 6].map(skip => [of, skip] as const))
      : ([["sessions", 1]] as const)
    for (const [of, skip] of cases) {
      const text = `${of} ${skip}`
      yield* owner.ask({ do: "set", key: "k", value: text })
      yield* owner.ask({ do: "configure", environment: text })
      yield* disk.set([{ call: "lock", skip, times: 1, outcome: "EIO" }])
      let answer = yield* reads[of]
      yield* disk.heal
      // SQLite tries for ten seconds before it says that it cannot read.
      for (let attempt = 1; "error" in answer && attempt < 5; attempt++) {
        yield* pause
        answer = yield* reads[of]
      }
      expect(answer).toEqual({ ok: text })
    }
    yield* owner.end
  })
})

describe("locks that other programs hold in passing", () => {
  it("have no connection closed, be there no write between them", () => {
    let now = 0
    const locks = new StuckLocks(() => now)
    expect(locks.onLocked()).toBe(false)
    now += 3_600_000
    expect(locks.onLocked()).toBe(false)
    now += 100
    expect(locks.onLocked()).toBe(false)
    // This one is held for too long.
    now += 500
    expect(locks.onLocked()).toBe(true)
  })
  it("are not distinguished from a stuck one in a store that is rarely used, if three attempts in a row fail", () => {
    let now = 0
    const locks = new StuckLocks(() => now)
    const locked = () => {
      now += 120_000
      return locks.onLocked()
    }
    expect([locked(), locked(), locked(), locked()]).toEqual([false, false, true, true])
    locks.onWritten()
    expect([locked(), locked()]).toEqual([false, false])
    locks.onWritten()
    expect([locked(), locked()]).toEqual([false, false])
  })
})
