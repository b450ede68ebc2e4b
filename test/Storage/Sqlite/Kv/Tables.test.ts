import { join } from "node:path"
import { expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, FastCheck as fc } from "effect"
import type { StoredChange } from "../../../../src/Kv/Change.ts"
import type { Operation, OperationResult, Write } from "../../../../src/Kv/Write.ts"
import { open } from "../../../../src/Storage/Sqlite/Database/Opening.ts"
import { Writer } from "../../../../src/Storage/Sqlite/Database/Writer.ts"
import { format } from "../../../../src/Storage/Sqlite/Kv/Schema.ts"
import { writer as plugin } from "../../../../src/Storage/Sqlite/Kv/Tables.ts"
import { times } from "../../../Scale.ts"
import { Model } from "../../../suites/Model.ts"
import { del, set } from "../../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"

const start = 1_000_000

/** Few keys, so that writes repeat them, and expiries before, at and after the times of the writes. */
const operation: fc.Arbitrary<Operation> = fc
  .record({
    key: fc.constantFrom("a", "b", "c"),
    value: fc.nat(9),
    isDelete: fc.boolean(),
    expiresAt: fc.option(fc.integer({ min: start, max: start + 60 })),
    mustBeAbsent: fc.boolean()
  })
  .map(({ key, value, isDelete, expiresAt, mustBeAbsent }) => {
    const precondition = mustBeAbsent && value === 0 ? { noneMatch: "any" as const } : undefined
    return isDelete
      ? del("n", key, precondition)
      : set("n", key, value, { expiresAt, ...(precondition === undefined ? {} : { precondition }) })
  })

/** Groups with fewer and more records than one statement inserts. */
const groups = fc.array(
  fc.array(
    fc.record<Write>({
      operations: fc.array(operation, { minLength: 1, maxLength: 24 }),
      actor: fc.constant("tester")
    }),
    { minLength: 1, maxLength: 4 }
  ),
  { minLength: 1, maxLength: 4 }
)

it.scopedLive("groups of writes leave the entries and records that the model has, however they repeat keys", () =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    yield* open(directory, format)
    const file = join(directory, "kv.db")
    const writer = yield* Effect.acquireRelease(
      Effect.sync(() => new Writer(file, plugin(1_000_000))),
      writer => Effect.sync(() => writer.handle({ kind: "close" }))
    )
    const db = yield* Effect.acquireRelease(
      Effect.sync(() => new Database(file)),
      db => Effect.sync(() => db.close())
    )
    const records = db.prepare<[], StoredChange>(
      "SELECT seq, op, namespace, key, value, version, actor, timestamp FROM changes ORDER BY seq"
    )
    const planned = (result: OperationResult) =>
      result.op === "set" ? { op: "set", version: result.entry.version } : result
    const entries = db.prepare<[], object>(
      'SELECT namespace, key, value, version, updated_by AS "updatedBy", updated_at AS "updatedAt", expires_at AS "expiresAt" FROM entries ORDER BY key'
    )
    fc.assert(
      fc.property(groups, groups => {
        db.exec("DELETE FROM entries; DELETE FROM tombstones; DELETE FROM changes")
        const model = new Model(start)
        for (const writes of groups) {
          model.now += 20
          const reply = writer.handle({ kind: "commit", writes, now: model.now })
          const expected = writes.map(({ operations, actor }) => {
            const verdict = model.write(operations, actor)
            return "results" in verdict
              ? {
                  _tag: "Committed",
                  committed: { results: verdict.results.map(planned), timestamp: model.now, lastSeq: model.end }
                }
              : { _tag: "Refused", ...verdict }
          })
          expect(reply).toMatchObject({ _tag: "Done", outcomes: expected, lastSeq: model.end })
        }
        expect(records.all()).toEqual(model.log)
        const present = ["a", "b", "c"].flatMap(key => model.get("n", key) ?? [])
        // Expired entries stay until they are deleted.
        const isVisible = (entry: { readonly expiresAt?: number | null }) =>
          (entry.expiresAt ?? null) === null || entry.expiresAt! > model.now
        expect(entries.all().filter(isVisible)).toEqual(present)
      }),
      { numRuns: times(150) }
    )
  })
)
