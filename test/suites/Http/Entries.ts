import { expect } from "@effect/vitest"
import { Clock } from "effect"
import {
  at,
  batch,
  bodyOf,
  type Check,
  call,
  changesOf,
  type EntryBody,
  end,
  get,
  headersOf,
  put,
  remove,
  space
} from "./Fixture.ts"

/** Sets, reads and deletes of one entry, and the exact answers. */
export const entries = (check: Check) => {
  check("a PUT answers the entry as stored, with its version in ETag", function* () {
    const namespace = space()
    const before = yield* Clock.currentTimeMillis
    const answer = yield* put(namespace, "theme", { dark: true })
    const after = yield* Clock.currentTimeMillis
    const { updatedAt } = bodyOf<EntryBody>(answer)
    expect(updatedAt).toBeGreaterThanOrEqual(before - 1000)
    expect(updatedAt).toBeLessThanOrEqual(after + 1000)
    expect(answer.status).toBe(200)
    expect(answer.text).toBe(
      `{"namespace":"${namespace}","key":"theme","value":{"dark":true},"version":1,"updatedBy":"api",` +
        `"updatedAt":${updatedAt},"expiresAt":null}`
    )
    expect(headersOf(answer)).toEqual({ "content-type": "application/json", etag: '"1"' })
    const read = yield* get(namespace, "theme")
    expect([read.status, read.text, headersOf(read)]).toEqual([200, answer.text, headersOf(answer)])
  })

  check("a PUT of an existing entry replaces it and takes the next version", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1, { json: { value: 1, actor: "ann", ttlMs: 60_000 } })
    const second = yield* put(namespace, "k", 2, { json: { value: [2], actor: "bob" } })
    expect(bodyOf(second)).toMatchObject({ value: [2], version: 2, updatedBy: "bob", expiresAt: null })
    expect(second.headers.etag).toBe('"2"')
    const third = yield* put(namespace, "k", 3)
    expect(bodyOf(third)).toMatchObject({ value: 3, version: 3, updatedBy: "api" })
    expect((yield* get(namespace, "k")).text).toBe(third.text)
  })

  check("without an actor, or with an empty one, the writer is api", function* () {
    const namespace = space()
    const start = yield* end
    yield* put(namespace, "a", 1)
    yield* put(namespace, "b", 1, { json: { value: 1, actor: "" } })
    yield* batch([{ op: "set", namespace, key: "c", value: 1 }])
    yield* remove(namespace, "a")
    yield* call("DELETE", `${at(namespace, "b")}?actor=`)
    const actors = (yield* changesOf(namespace, start)).map(change => change.actor)
    expect(actors).toEqual(["api", "api", "api", "api", "api"])
  })

  check("an absent entry is 404", function* () {
    const answer = yield* get(space(), "nothing")
    expect([answer.status, answer.text]).toEqual([404, '{"error":"Not found"}'])
    expect(headersOf(answer)).toEqual({ "content-type": "application/json" })
  })

  check("a DELETE says whether there was an entry, and the version continues after it", function* () {
    const namespace = space()
    const start = yield* end
    const nothing = yield* remove(namespace, "k")
    expect([nothing.status, nothing.text, headersOf(nothing)]).toEqual([
      200,
      '{"deleted":false}',
      { "content-type": "application/json" }
    ])
    yield* put(namespace, "k", "first")
    const gone = yield* call("DELETE", `${at(namespace, "k")}?actor=carol%20%26%20co`)
    expect([gone.status, gone.text]).toEqual([200, '{"deleted":true}'])
    expect((yield* get(namespace, "k")).status).toBe(404)
    expect((yield* remove(namespace, "k")).text).toBe('{"deleted":false}')
    const again = yield* put(namespace, "k", "second")
    expect(again.headers.etag).toBe('"3"')
    const records = yield* changesOf(namespace, start)
    expect(records.map(({ op, value, version, actor }) => [op, value, version, actor])).toEqual([
      ["set", "first", 1, "api"],
      ["delete", null, 2, "carol & co"],
      ["set", "second", 3, "api"]
    ])
  })

  check("a change record has exactly its fields, and a page exactly its own", function* () {
    const namespace = space()
    const start = yield* end
    yield* put(namespace, "k", { a: [1] }, { json: { value: { a: [1] }, actor: "dora" } })
    yield* remove(namespace, "k")
    const answer = yield* call("GET", `/api/v1/changes?after=${start}`)
    const [set, deleted] = bodyOf<{ readonly changes: ReadonlyArray<{ readonly timestamp: number }> }>(answer).changes
    const tenant = namespace.slice("tenant:".length, namespace.indexOf("/"))
    expect(answer.text).toBe(
      `{"changes":[{"seq":${start + 1},"op":"set","namespace":"${namespace}","key":"k","value":{"a":[1]},"version":1,` +
        `"actor":"dora","timestamp":${set!.timestamp},"tenantId":"${tenant}"},` +
        `{"seq":${start + 2},"op":"delete","namespace":"${namespace}","key":"k","value":null,"version":2,` +
        `"actor":"api","timestamp":${deleted!.timestamp},"tenantId":"${tenant}"}],"lastSeq":${start + 2}}`
    )
    expect(headersOf(answer)).toEqual({ "content-type": "application/json", "kv-epoch": expect.any(String) })
  })

  check("the answers of health, readiness and the cluster routes are exact", function* () {
    const exact = { "content-type": "application/json" }
    for (const [target, text] of [
      ["/api/v1/health", '{"ok":true}'],
      ["/api/v1/ready", '{"ok":true}'],
      ["/api/v1/ready?strict=1", '{"ok":true}'],
      ["/api/v1/cluster/status", '{"ok":true,"mode":"store"}'],
      ["/api/v1/cluster/leader", '{"leader":null,"address":null,"mode":"store"}']
    ] as const) {
      const answer = yield* call("GET", target)
      expect([answer.status, answer.text, headersOf(answer)]).toEqual([200, text, exact])
    }
    const bodies = ['{"nodeId":"n1","address":"10.0.0.1:1"}', "", "{", "[]", "\ufeff", "x".repeat(100_000)]
    for (const route of ["join", "remove"]) {
      for (const body of bodies) {
        for (const type of ["application/json", "text/plain", "multipart/form-data"]) {
          const headers = { "content-type": type }
          const answer = yield* call("POST", `/api/v1/cluster/${route}`, { body, headers })
          expect([answer.status, headersOf(answer)]).toEqual([410, exact])
          expect(answer.text).toContain("managed by the backing store")
        }
      }
    }
  })

  check("the description of the api is served as JSON", function* () {
    const answer = yield* call("GET", "/api/v1/openapi.json")
    expect([answer.status, headersOf(answer)]).toEqual([
      200,
      { "content-type": "application/json", vary: "Accept-Encoding" }
    ])
    const document = bodyOf<{ readonly openapi: string; readonly paths: Record<string, unknown> }>(answer)
    expect(document.openapi).toBe("3.0.3")
    expect(Object.keys(document.paths)).toContain("/api/v1/kv/{namespace}/{key}")
  })
}
