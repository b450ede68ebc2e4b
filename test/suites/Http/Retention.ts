import { expect } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { type Check, call, changes, end, expectError, put, remove, Site, space } from "./Fixture.ts"

/** Trims until everything up to `seq` is gone: a record has to be older than now. */
const trimAll = (seq: number) =>
  Effect.gen(function* () {
    const { log } = yield* Site
    const trimmed = Effect.match(log.read({ after: 0, limit: 1, tenant: "" }), {
      onFailure: error => (error._tag === "HistoryTrimmed" ? error.trimmedSeq : 0),
      onSuccess: () => 0
    })
    yield* Effect.repeat(Effect.zipRight(log.trim(Duration.zero), trimmed), { until: reached => reached === seq })
  })

/** Retention as followers see it. It trims the log, so that it needs a separate service. */
export const retention = (check: Check) => {
  check("a reader before the kept history gets an error to list again", function* () {
    const namespace = space()
    for (const value of [1, 2, 3]) yield* put(namespace, "k", value)
    yield* remove(namespace, "k")
    yield* put(namespace, "other", 1)
    const last = yield* end
    yield* trimAll(last - 1)
    for (const after of [0, 1, last - 2]) {
      for (const query of ["", "&wait=60", "&tenant=x", "&limit=1"]) {
        const answer = yield* call("GET", `/api/v1/changes?after=${after}${query}`)
        expectError(answer, 410, String(last - 1), "list again", "Kv-Last-Seq")
        expect(answer.headers["kv-trimmed-seq"]).toBe(String(last - 1))
      }
      expectError(yield* call("GET", `/api/v1/changes/stream?after=${after}`), 410, "list again")
    }
    const page = yield* changes(`after=${last - 1}`)
    expect(page.changes.map(change => [change.seq, change.key])).toEqual([[last, "other"]])
    expect(yield* changes(`after=${last}`)).toEqual({ changes: [], lastSeq: last })
    // The tombstone went with its record.
    expect((yield* put(namespace, "k", 1)).headers.etag).toBe('"1"')
  })
}
