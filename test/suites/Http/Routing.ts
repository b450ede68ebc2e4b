import { expect } from "@effect/vitest"
import * as Contract from "./Contract.ts"
import {
  at,
  bodyOf,
  type Check,
  call,
  expectError,
  get,
  head,
  headersOf,
  items,
  listAt,
  put,
  space,
  wire
} from "./Fixture.ts"

/** A target for each template. */
const fill = (path: string, namespace: string): string =>
  path.replace(":namespace", encodeURIComponent(namespace)).replace(":key", "k")

/** The methods that node's parser knows and a client may send without further ado. */
const methods = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "LINK", "PURGE"]

const endless = ["/api/v1/changes/stream"]

/** Bodies are not made for HEAD, and headers that depend on them are omitted. */
const unmade = ["/api/v1/backup"]

/** Answers that hold times and counts, whose lengths change from one moment to the next. */
const changing = ["/health", "/metrics", "/api/metrics"]

/** Paths, methods and queries. */
export const routing = (check: Check) => {
  check("HEAD is answered like GET, without the body", function* () {
    const namespace = space()
    yield* put(namespace, "k", { a: 1 })
    const connection = yield* wire
    for (const { method, path } of Contract.routes) {
      if (method !== "GET") continue
      const target = fill(path, namespace)
      const answer = yield* call("HEAD", target)
      if (endless.includes(path)) {
        expect([answer.status, answer.headers["content-type"]]).toEqual([200, "text/event-stream"])
      } else if (unmade.includes(path)) {
        const full = yield* call("GET", target)
        for (const name of ["content-type", "cache-control", "retry-after"]) {
          expect([answer.status, answer.headers[name]]).toEqual([full.status, full.headers[name]])
        }
      } else {
        const full = yield* call("GET", target)
        expect([path, answer.status, headersOf(answer)]).toEqual([path, full.status, headersOf(full)])
        const length = full.headers["content-length"]
        const expected = changing.includes(path) && length !== undefined ? expect.stringMatching(/^[1-9]/) : length
        expect([path, answer.headers["content-length"]]).toEqual([path, expected])
      }
      // No byte of a body stays on the connection, where it would corrupt the next answer.
      yield* connection.send(head(`HEAD ${target}`))
      expect((yield* connection.head)?.status).toBe(answer.status)
    }
    yield* connection.send(head("GET /api/v1/health"))
    expect((yield* connection.answer)?.text).toBe('{"ok":true}')
  })

  check("HEAD keeps preconditions and errors", function* () {
    const namespace = space()
    expect((yield* call("HEAD", at(namespace, "k"))).status).toBe(404)
    yield* put(namespace, "k", 1)
    const same = yield* call("HEAD", at(namespace, "k"), { headers: { "if-none-match": '"1"' } })
    expect([same.status, headersOf(same)]).toEqual([304, { etag: '"1"' }])
    const other = yield* call("HEAD", at(namespace, "k"), { headers: { "if-match": '"2"' } })
    expect([other.status, other.headers.etag]).toEqual([412, '"1"'])
    expect((yield* call("HEAD", at(namespace, "k"), { key: null })).status).toBe(401)
    expect((yield* call("HEAD", `${listAt(namespace)}?limit=0`)).status).toBe(400)
  })

  check("a wrong method is 405 with Allow", function* () {
    const namespace = space()
    for (const path of new Set(Contract.routes.map(({ path }) => path))) {
      const target = fill(path, namespace)
      // A word of one template may be a name in another.
      const taking = Contract.routes.filter(({ pattern }) => pattern.test(target)).map(({ method }) => method)
      const allowed = new Set<string>(taking.flatMap(method => (method === "GET" ? [method, "HEAD"] : [method])))
      for (const method of methods.filter(method => !allowed.has(method))) {
        const answer = yield* call(method, target)
        expect([method, path, answer.status]).toEqual([method, path, 405])
        expect(headersOf(answer)).toEqual({
          allow: [...allowed].sort().join(", "),
          "content-type": "application/json"
        })
        if (method !== "HEAD") expectError(answer, 405, "Method not allowed")
      }
    }
  })

  check("a path that is not exactly a route is 404", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    const entry = at(namespace, "k")
    for (const target of [
      "/",
      "/api/v1",
      "/api/v2/health",
      "/api/v1/health/",
      "/api/v1/Health",
      "//api/v1/health",
      "/api//v1/health",
      "/api/v1/changes/nothing",
      "/api%2fv1/health",
      `/${"x".repeat(8192)}`,
      `/api/v1/${"x/".repeat(4096)}`
    ]) {
      const answer = yield* call("GET", target)
      expect([target, answer.status, answer.text]).toEqual([
        target,
        404,
        '{"error":"Not found: the service has no such route"}'
      ])
    }
    // As by a client that does not encode the names in a path.
    for (const target of [`${entry}/`, `${entry}/more`, "/api/v1/kv/tenant:acme/settings/theme"]) {
      const answer = yield* call("GET", target)
      expect([target, answer.status, answer.text]).toEqual([
        target,
        404,
        '{"error":"Not found: the service has no such route; percent-encode / in names, as %2F"}'
      ])
    }
  })

  check("a target in absolute form is read by its path", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    const connection = yield* wire
    yield* connection.send(head(`GET http://localhost${at(namespace, "k")}`))
    expect(bodyOf((yield* connection.answer)!)).toMatchObject({ key: "k" })
    yield* connection.send(head("PATCH http://localhost/api/v1/health"))
    const refused = (yield* connection.answer)!
    expect([refused.status, refused.headers.allow]).toEqual([405, "GET, HEAD"])
  })

  check("letters that need no encoding may be encoded", function* () {
    expect((yield* call("GET", "/api/v1/%68ealth")).text).toBe('{"ok":true}')
    const refused = yield* call("POST", "/api/v1/%68ealth")
    expect([refused.status, refused.headers.allow]).toEqual([405, "GET, HEAD"])
  })

  check("an unknown parameter is ignored, and a repeated or invalid one is refused by name", function* () {
    const namespace = space()
    for (const key of ["a", "b", "c"]) yield* put(namespace, key, 1)
    const list = listAt(namespace)
    for (const query of ["unknown=1", "unknown", "&&", "prefix=", "prefix", "__proto__=x", "Limit=0", "=", "a=b=c"]) {
      expect([query, items(yield* call("GET", `${list}?${query}`)).length]).toEqual([query, 3])
    }
    for (const [target, name] of [
      [`${list}?prefix=a&prefix=b`, "prefix"],
      [`${list}?limit=1&limit=2`, "limit"],
      [`${list}?limit`, "limit"],
      [`${list}?limit=0`, "limit"],
      [`${list}?limit=1e2`, "limit"],
      [`${list}?limit=99999999999999999999`, "limit"],
      [`${list}?cursor=a&cursor=b`, "cursor"],
      [`${at(namespace, "a")}?actor=x&actor=y`, "actor"],
      ["/api/v1/changes?tenant=a&tenant=b", "tenant"],
      ["/api/v1/changes?after=1&after=2", "after"]
    ] as const) {
      const method = target.includes("actor") ? "DELETE" : "GET"
      const answer = yield* call(method, target)
      expect([target, answer.status]).toEqual([target, 400])
      expectError(answer, 400, name)
    }
    expect((yield* get(namespace, "a")).status).toBe(200)
  })
}
