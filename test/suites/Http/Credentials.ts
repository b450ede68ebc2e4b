import { expect } from "@effect/vitest"
import { keys } from "../../Harness.ts"
import * as Contract from "./Contract.ts"
import {
  at,
  batch,
  bearer,
  type Check,
  call,
  end,
  expectError,
  follow,
  get,
  headersOf,
  put,
  remove,
  space
} from "./Fixture.ts"

const open = ["/health", "/api/v1/health", "/api/v1/ready", "/api/metrics", "/metrics"]

const writes: ReadonlyArray<string> = [
  "PUT /api/v1/kv/:namespace/:key",
  "DELETE /api/v1/kv/:namespace",
  "DELETE /api/v1/kv/:namespace/:key",
  "POST /api/v1/batch"
]

const challenge = { "content-type": "application/json", "www-authenticate": 'Bearer realm="causeway"' }

/** Who may do what. */
export const credentials = (check: Check) => {
  check("every route but health, readiness and metrics requires a credential", function* () {
    for (const { method, path } of Contract.routes) {
      const target = path.replace(":namespace", "n").replace(":key", "k")
      const answer = yield* call(method, target, { key: null })
      if (open.includes(path)) {
        expect([path, answer.status]).not.toEqual([path, 401])
      } else {
        expect([path, answer.status, answer.text]).toEqual([path, 401, '{"error":"Unauthorized"}'])
        expect(headersOf(answer)).toEqual(challenge)
      }
    }
  })

  check("only one of the keys as bearer is accepted", function* () {
    const namespace = space()
    const refused = [
      "",
      "Bearer ",
      keys.write,
      `Basic ${Buffer.from(`x:${keys.write}`).toString("base64")}`,
      `Bearer ${keys.write}x`,
      `Bearer ${keys.write}, Bearer ${keys.write}`,
      `Bearer ${"x".repeat(8000)}`,
      "Bearer undefined"
    ]
    for (const authorization of refused) {
      for (const method of ["GET", "DELETE"]) {
        const answer = yield* call(method, at(namespace, "k"), { key: null, headers: { authorization } })
        expect([authorization, answer.status]).toEqual([authorization, 401])
      }
    }
    for (const authorization of [`bEaReR ${keys.write}`, `Bearer   ${keys.read}  `]) {
      expect((yield* call("GET", at(namespace, "k"), { key: null, headers: { authorization } })).status).toBe(404)
    }
  })

  check("a credential is accepted in the header only", function* () {
    for (const headers of [{ "x-api-key": keys.write }, { cookie: `authorization=${bearer(keys.write)}` }]) {
      expect((yield* call("GET", "/api/v1/changes", { key: null, headers })).status).toBe(401)
    }
    for (const query of [`access_token=${keys.write}`, `token=${keys.write}`, `key=${keys.write}`]) {
      expect((yield* call("GET", `/api/v1/changes?${query}`, { key: null })).status).toBe(401)
    }
  })

  check("the credential that only reads, reads everything and writes nothing", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    const start = yield* end
    for (const { method, path } of Contract.routes) {
      const target = path.replace(":namespace", encodeURIComponent(namespace)).replace(":key", "k")
      if (path === "/api/v1/backup") {
        // A copy of everything takes the credential that writes.
        for (const asked of ["GET", "HEAD"]) {
          expect([asked, (yield* call(asked, target, { key: keys.read })).status]).toEqual([asked, 403])
        }
      } else if (method === "GET") {
        const answer = yield* call("HEAD", target, { key: keys.read })
        expect([path, [401, 403].includes(answer.status)]).toEqual([path, false])
      } else if (writes.includes(`${method} ${path}`)) {
        const answer = yield* call(method, target, { key: keys.read, json: { value: 2, operations: [] } })
        expect([path, answer.status, answer.text]).toEqual([path, 403, '{"error":"Forbidden"}'])
        expect(headersOf(answer)).toEqual({ "content-type": "application/json" })
      } else if (path.endsWith("/kv/read")) {
        expect((yield* call(method, target, { key: keys.read, json: { keys: [] } })).status).toBe(200)
      } else {
        expect([path, (yield* call(method, target, { key: keys.read })).status]).toEqual([path, 410])
      }
    }
    const operation = { op: "set", namespace, key: "k", value: 2 }
    expectError(yield* batch([operation], { key: keys.read }), 403, "Forbidden")
    expectError(yield* remove(namespace, "k", { key: keys.read }), 403, "Forbidden")
    expect((yield* get(namespace, "k", { key: keys.read })).headers.etag).toBe('"1"')
    expect(yield* follow(start)).toEqual([])
  })

  check("the credential is checked before anything else of the request", function* () {
    const namespace = space()
    const bad: ReadonlyArray<Parameters<typeof call>> = [
      ["PUT", at(namespace, "k"), { body: "{" }],
      ["PUT", at(namespace, "k"), { body: "" }],
      ["PUT", at(namespace, "k"), { body: "x", headers: { "content-type": "text/plain" } }],
      ["PUT", at(namespace, "k"), { body: "x", headers: { "content-encoding": "gzip" } }],
      ["PUT", at(namespace, "k"), { json: { value: 1 }, headers: { "if-match": "garbage" } }],
      ["PUT", at(namespace, "k"), { body: Buffer.alloc(17 * 1024 * 1024, " ") }],
      ["PUT", at(namespace, "x".repeat(2000)), { json: { value: 1 } }],
      ["POST", "/api/v1/batch", { body: "null" }],
      ["DELETE", `${at(namespace, "k")}?actor=a&actor=b`, {}]
    ]
    for (const [method, target, extras] of bad) {
      expectError(yield* call(method, target, { ...extras, key: null }), 401, "Unauthorized")
      expectError(yield* call(method, target, { ...extras, key: "wrong" }), 401, "Unauthorized")
      expectError(yield* call(method, target, { ...extras, key: keys.read }), 403, "Forbidden")
    }
    for (const target of ["/api/v1/changes?limit=0", `/api/v1/kv/n?limit=0`, "/api/v1/changes/ws"]) {
      expectError(yield* call("GET", target, { key: null }), 401, "Unauthorized")
    }
  })
}
