import { symlinkSync } from "node:fs"
import { join } from "node:path"
import { setImmediate as nextTurn } from "node:timers/promises"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Fiber, FastCheck as fc, Option } from "effect"
import { decode } from "../../../../src/Kv/Entry.ts"
import { Store } from "../../../../src/Kv/Store.ts"
import { Reader, SharedSnapshot } from "../../../../src/Storage/Sqlite/Database/Reader.ts"
import { Queries } from "../../../../src/Storage/Sqlite/Kv/Queries.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import { times } from "../../../Scale.ts"
import { set } from "../../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"
import { temporaryLayer } from "../../SqliteFixture.ts"

class Recorder {
  held = 0
  taken = 0
  hold(): void {
    this.held++
    this.taken++
  }
  release(): void {
    this.held--
  }
}

const steps = fc.array(fc.constantFrom("read", "read", "read", "write", "answer", "turn"), { maxLength: 40 })

describe("a snapshot for a turn", () => {
  it.live("exists from the second read on, and never during a write or after the turn", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(steps, async program => {
          const holder = new Recorder()
          const turn = new SharedSnapshot(holder, false)
          let isWriting = false
          let reads = 0
          for (const step of program) {
            if (step === "read") {
              turn.enter()
              if (!isWriting) reads++
              expect(holder.held).toBe(!isWriting && reads > 1 ? 1 : 0)
            } else if (step === "turn") {
              await nextTurn()
              reads = 0
              expect(holder.held).toBe(0)
            } else {
              isWriting = step === "write"
              turn.writing(isWriting)
              if (isWriting) expect(holder.held).toBe(0)
            }
          }
          await nextTurn()
          expect(holder.held).toBe(0)
        }),
        { numRuns: times(200) }
      )
    )
  )

  it.scopedLive("is shared by all reads of the turn, and released after it", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      yield* Effect.gen(function* () {
        const store = yield* Store
        yield* store.commit({ operations: [set("n", "k", 1)], actor: "tester" })
        const file = join(directory, "kv.db")
        const other = new Database(file)
        const value = () => Option.getOrThrow(Effect.runSync(store.get("n", "k"))).value
        yield* Effect.promise(() => nextTurn())
        const first = value()
        const second = value()
        // Only the writer may do this. It shows which snapshot a read comes from.
        other.exec("UPDATE entries SET value = 'changed'")
        expect([first, second, value()]).toEqual(["1", "1", "1"])
        yield* Effect.promise(() => nextTurn())
        expect(value()).toBe("changed")
        expect(value()).toBe("changed")
        yield* Effect.promise(() => nextTurn())
        expect(other.pragma("wal_checkpoint(TRUNCATE)")).toMatchObject([{ busy: 0 }])
        other.close()
      }).pipe(Effect.provide(Sqlite.layer({ directory, writer: "inline" })))
    })
  )
})

type Step = { readonly do: "commit" | "get" | "list" | "turn"; readonly key: number }

const program = fc.array(
  fc.record<Step>({ do: fc.constantFrom("commit", "get", "get", "get", "list", "turn"), key: fc.nat(2) }),
  { minLength: 1, maxLength: 40 }
)

/** Each version that a read finds is at least the one acknowledged or read before it, and was written. */
const isLinearizable = (steps: ReadonlyArray<Step>, store: typeof Store.Service, namespace: string) =>
  Effect.gen(function* () {
    const known = [0, 0, 0]
    const sent = [0, 0, 0]
    const learn = (key: number, version: number): void => {
      expect(version).toBeGreaterThanOrEqual(known[key]!)
      expect(version).toBeLessThanOrEqual(sent[key]!)
      known[key] = version
    }
    const commits: Array<Fiber.Fiber<void, unknown>> = []
    for (const step of steps) {
      if (step.do === "turn") yield* Effect.promise(() => nextTurn())
      else if (step.do === "commit") {
        sent[step.key]!++
        const write = { operations: [set(namespace, String(step.key), 1)], actor: "tester" }
        const acknowledged = Effect.map(store.commit(write), ({ results: [result] }) => {
          if (result?.op !== "set") throw new Error("a set came to something else")
          // From now on every reader must see it. An earlier write may become visible later.
          known[step.key] = Math.max(known[step.key]!, result.entry.version)
        })
        commits.push(yield* Effect.fork(acknowledged))
        // The write is on its way, or done, before the next read of this turn.
        yield* Effect.yieldNow()
      } else if (step.do === "get") {
        const found = yield* store.get(namespace, String(step.key))
        learn(step.key, Option.match(found, { onNone: () => 0, onSome: entry => entry.version }))
      } else {
        const page = yield* store.list({ namespace, prefix: "", after: "", limit: 10 })
        for (const entry of page.entries.map(decode)) learn(Number(entry.key), entry.version)
      }
    }
    yield* Fiber.joinAll(commits)
    for (const key of [0, 1, 2]) {
      const found = yield* store.get(namespace, String(key))
      expect(Option.match(found, { onNone: () => 0, onSome: entry => entry.version })).toBe(sent[key])
    }
  })

describe.each(["inline", "thread"] as const)("reads among commits that are made %s", writer => {
  it.scopedLive("see all earlier acknowledged writes, and never less than an earlier read", () =>
    Effect.gen(function* () {
      const store = yield* Store
      let run = 0
      yield* Effect.promise(() =>
        fc.assert(
          fc.asyncProperty(program, steps => Effect.runPromise(isLinearizable(steps, store, `run-${run++}`))),
          { numRuns: times(100) }
        )
      )
    }).pipe(Effect.provide(temporaryLayer(writer)))
  )
})

describe("a reader", () => {
  test.scoped("fails with StoreUnavailable if the system cannot identify the file that it opens", function* () {
    const file = join(yield* temporaryDirectory, "kv.db")
    symlinkSync(file, file)
    const reader = new Reader(
      { file, debug: undefined },
      connection => new Queries(connection),
      1,
      yield* Effect.clock,
      () => Effect.void,
      { onSuspended: () => {}, onReplaced: () => {}, onLocked: () => {} }
    )
    reader.resume()
    const failure = expect.objectContaining({ _tag: "StoreUnavailable", reason: expect.stringContaining("ELOOP") })
    expect(yield* Effect.flip(reader.read(queries => queries.lastSeq()))).toEqual(failure)
    expect(yield* Effect.flip(reader.history)).toEqual(failure)
    expect(yield* Effect.flip(reader.snapshots.take(""))).toEqual(failure)
  })
})
