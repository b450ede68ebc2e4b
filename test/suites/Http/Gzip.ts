import { gunzipSync } from "node:zlib"
import { expect } from "@effect/vitest"
import { at, type Check, call, head, listAt, numbered, put, segment, setAll, space, wire } from "./Fixture.ts"

const long = "é".repeat(20)

const gzip = { "accept-encoding": "gzip" }

/** Answers in gzip. */
export const compression = (check: Check) => {
  check("lists, pages and documents come in gzip to those who take it, and are the same", function* () {
    const namespace = space()
    yield* setAll(namespace, numbered(1500), long)
    const keys = numbered(50).map(key => ({ namespace, key }))
    const requests: ReadonlyArray<readonly [method: string, target: string, json?: unknown]> = [
      ["GET", `${listAt(namespace)}?limit=100`],
      ["GET", listAt(namespace)],
      ["GET", `/api/v1/changes?namespace=${segment(namespace)}&wait=1`],
      ["POST", "/api/v1/kv/read", { keys }],
      ["GET", "/api/v1/openapi.json"]
    ]
    for (const [method, target, json] of requests) {
      const extras = json === undefined ? {} : { json }
      const plain = yield* call(method, target, extras)
      const packed = yield* call(method, target, { ...extras, headers: gzip })
      expect([target, plain.headers["content-encoding"], packed.headers["content-encoding"]]).toEqual([
        target,
        undefined,
        "gzip"
      ])
      expect([plain.headers.vary, packed.headers.vary]).toEqual(["Accept-Encoding", "Accept-Encoding"])
      expect(packed.text).toBe(plain.text)
      expect(packed.bytes.length).toBeLessThan(plain.bytes.length / 3)
      expect(gunzipSync(packed.bytes).toString()).toBe(plain.text)
      if (method !== "GET") continue
      const asked = yield* call("HEAD", target, { headers: gzip })
      for (const name of ["content-encoding", "content-length", "content-type", "vary"]) {
        expect([target, name, asked.headers[name]]).toEqual([target, name, packed.headers[name]])
      }
      const preferring = yield* call("GET", target, { headers: { "accept-encoding": "identity, gzip;q=0.5" } })
      expect([preferring.headers["content-encoding"], preferring.text]).toEqual([undefined, plain.text])
    }
  })

  check("small answers, entries and errors are never compressed", function* () {
    const namespace = space()
    yield* put(namespace, "k", "x".repeat(5000))
    for (const target of [
      at(namespace, "k"),
      at(namespace, "absent"),
      `${listAt(namespace)}?prefix=none`,
      `${listAt(namespace)}?cursor=${"x".repeat(3000)}`
    ]) {
      const answer = yield* call("GET", target, { headers: gzip })
      expect([target, answer.headers["content-encoding"]]).toEqual([target, undefined])
    }
  })

  check("event streams are never compressed", function* () {
    const namespace = space()
    yield* put(namespace, "k", "x".repeat(5000))
    const stream = `/api/v1/changes/stream?namespace=${segment(namespace)}`
    for (const target of [stream, `${stream}&initial=1`]) {
      const connection = yield* wire
      yield* connection.send(head(`GET ${target}`, "Accept-Encoding: gzip"))
      const { headers } = (yield* connection.head)!
      expect([headers["content-type"], headers["content-encoding"]]).toEqual(["text/event-stream", undefined])
      yield* connection.cut
    }
  })
}
