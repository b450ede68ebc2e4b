/** Requests of web pages of other origins, over both transports. */
import { describe, expect, it } from "@effect/vitest"
import { ConfigProvider, Effect, Logger } from "effect"
import * as Cors from "../../src/Http/Cors.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import { keys, platformFor, stockFor, type Transport } from "../Harness.ts"
import { test } from "../Tests.ts"
import { edgeFor } from "./Edge/EdgeTransport.ts"
import { connect } from "./Server/Fixture.ts"

const page = "https://app.example.com"
const stranger = "https://elsewhere.example.com"

const quiet = Logger.remove(Logger.defaultLogger)

const exposed =
  "ETag, Link, Kv-Last-Seq, Kv-Epoch, Kv-Trimmed-Seq, Kv-More, Kv-Count, Repr-Digest, Retry-After, Stream-Next-Offset, Stream-Up-To-Date, Stream-Cursor, Stream-Closed, x-request-id"

/** The headers by which a browser decides, without those of this server alone. */
const corsOf = ({ headers }: Response): Record<string, string> =>
  Object.fromEntries([...headers].filter(([name]) => name.startsWith("access-control-") || name === "vary"))

/** The headers of every answer to a page of an allowed origin. */
const readable = {
  "access-control-allow-origin": page,
  "access-control-allow-credentials": "true",
  "access-control-expose-headers": exposed,
  vary: "Origin"
}

const serving = (transport: Transport) =>
  Effect.map(Effect.provide(transport.serve(Memory.layer), quiet), ({ port, url }) => ({
    port,
    send: (method: string, path: string, headers: Record<string, string> = {}, body?: string) =>
      Effect.promise(async signal => {
        const response = await fetch(`${url}/api/v1${path}`, {
          method,
          headers: { authorization: `Bearer ${keys.write}`, ...headers },
          signal,
          ...(body !== undefined && { body })
        })
        if (response.headers.get("content-type")?.startsWith("text/event-stream")) await response.body?.cancel()
        else await response.text()
        return response
      }),
    preflight: (origin: string, path: string, method: string) =>
      Effect.promise(() =>
        fetch(`${url}/api/v1${path}`, {
          method: "OPTIONS",
          headers: {
            origin,
            "access-control-request-method": method,
            "access-control-request-headers": "authorization,content-type,if-match"
          }
        })
      )
  }))

describe.each([
  ["the edge", edgeFor],
  ["the platform's server", stockFor],
  ["the platform on the service's own server", platformFor]
] as const)("on %s", (_, transportFor) => {
  test.scopedLive("a page of an allowed origin reads answers, errors and streams alike", function* () {
    const { send } = yield* serving(transportFor([page, "https://other.example.com"]))
    const json = { origin: page, "content-type": "application/json" }
    const answers = [
      [yield* send("PUT", "/kv/n/k", json, '{"value":1}'), 200],
      [yield* send("GET", "/kv/n/k", { origin: page }), 200],
      [yield* send("GET", "/kv/n/k", { origin: page, "if-none-match": '"1"' }), 304],
      [yield* send("HEAD", "/kv/n/k", { origin: page }), 200],
      [yield* send("GET", "/kv/n?limit=1", { origin: page }), 200],
      [yield* send("GET", "/kv/n/absent", { origin: page }), 404],
      [yield* send("PUT", "/kv/n/k", { ...json, "if-match": '"9"' }, '{"value":1}'), 412],
      [yield* send("PUT", "/kv/n/k", json, "{"), 400],
      [yield* send("GET", "/kv/n/%zz", { origin: page }), 400],
      [yield* send("GET", "/nowhere", { origin: page }), 404],
      [yield* send("POST", "/kv/n/k", { origin: page }), 405],
      [yield* send("GET", "/kv/n/k", { origin: page, authorization: "Bearer wrong" }), 401],
      [yield* send("DELETE", "/kv/n/k", { origin: page, authorization: `Bearer ${keys.read}` }), 403],
      [yield* send("GET", "/changes", { origin: page }), 200],
      [yield* send("GET", "/changes/stream", { origin: page }), 200],
      [yield* send("GET", "/changes/ws", { origin: page }), 500]
    ] as const
    for (const [answer, status] of answers) expect([answer.status, corsOf(answer)]).toEqual([status, readable])
    expect(answers[0][0].headers.get("etag")).toBe('"1"')
    const document = yield* send("GET", "/openapi.json", { origin: page })
    expect(corsOf(document)).toEqual({ ...readable, vary: "Origin, Accept-Encoding" })
  })

  test.scopedLive("a preflight is answered without a credential", function* () {
    const { preflight } = yield* serving(transportFor([page]))
    for (const path of ["/kv/n/k", "/batch", "/changes/stream", "/nowhere"]) {
      const answer = yield* preflight(page, path, "PUT")
      expect([answer.status, corsOf(answer)]).toEqual([
        204,
        {
          ...readable,
          "access-control-allow-methods": "GET, HEAD, PUT, POST, DELETE",
          "access-control-allow-headers": expect.stringMatching(/authorization.*content-type.*if-match/),
          "access-control-max-age": "7200"
        }
      ])
    }
  })

  test.scopedLive("a page of any other origin reads nothing", function* () {
    const { preflight, send } = yield* serving(transportFor([page]))
    for (const origin of [stranger, `${page}.evil.example`, "http://app.example.com", "null"]) {
      expect(corsOf(yield* send("GET", "/kv/n/k", { origin }))).toEqual({ vary: "Origin" })
      const answer = yield* preflight(origin, "/kv/n/k", "PUT")
      expect([answer.status, corsOf(answer)]).toEqual([405, { vary: "Origin" }])
    }
  })

  test.scopedLive("* lets every page read, without its cookies", function* () {
    const { preflight, send } = yield* serving(transportFor("*"))
    for (const origin of [page, stranger, "null"]) {
      const answer = yield* send("GET", "/kv/n/k", { origin })
      const open = { "access-control-allow-origin": "*", "access-control-expose-headers": exposed }
      expect([answer.status, corsOf(answer)]).toEqual([404, open])
      const asked = yield* preflight(origin, "/kv/n/k", "DELETE")
      expect([asked.status, asked.headers.get("access-control-allow-origin")]).toEqual([204, "*"])
      expect(asked.headers.has("access-control-allow-credentials")).toBe(false)
    }
  })

  test.scopedLive(
    "a request without an origin, and a service without allowed origins, have no such headers",
    function* () {
      const allowing = yield* serving(transportFor("*"))
      expect(corsOf(yield* allowing.send("GET", "/kv/n/k"))).toEqual({})
      expect((yield* allowing.send("OPTIONS", "/kv/n/k")).status).toBe(405)
      const { preflight, send } = yield* serving(transportFor([]))
      expect((yield* send("GET", "/kv/n/k", { origin: page })).headers.has("access-control-allow-origin")).toBe(false)
      expect((yield* preflight(page, "/kv/n/k", "PUT")).status).toBe(405)
    }
  )
})

describe("the service's own server", () => {
  test.scopedLive("lets an allowed page read the server's own refusals", function* () {
    const { port } = yield* serving(edgeFor([page]))
    const twice = ["Host: a", `Origin: ${page}`, "Authorization: Bearer a", "Authorization: Bearer b"]
    const answer = yield* Effect.promise(async () => {
      const { closed, received, socket } = await connect(port)
      socket.write(["GET /api/v1/kv/n/k HTTP/1.1", ...twice, "Connection: close", "", ""].join("\r\n"))
      await closed
      return received()
    })
    expect(answer).toMatch(/^HTTP\/1\.1 400 /)
    expect(answer).toContain(`access-control-allow-origin: ${page}\r\n`)
  })
})

describe("HTTP_ALLOWED_ORIGINS", () => {
  const read = (text: string) =>
    Effect.withConfigProvider(Cors.config, ConfigProvider.fromMap(new Map([["HTTP_ALLOWED_ORIGINS", text]])))

  test.effect("is a list of origins, or *", function* () {
    expect(yield* read("")).toEqual([])
    expect(yield* read(" * ")).toBe("*")
    expect(yield* read("https://a.example, http://b.example:8080/")).toEqual([
      "https://a.example",
      "http://b.example:8080"
    ])
    for (const wrong of ["*, https://a.example", "https://a.example/app", "a.example", "https://*.example"]) {
      expect(String(yield* Effect.flip(read(wrong)))).toContain("is not * or origins such as")
    }
  })
})

it.each([
  [{ vary: "Origin" }, undefined, "Origin"],
  [{ vary: "Origin" }, "Accept", "Origin, Accept"],
  [{ vary: "Origin" }, "accept-encoding, ORIGIN", "accept-encoding, ORIGIN"],
  [{ vary: "Origin" }, "X-Origin", "Origin, X-Origin"],
  [{ vary: "Origin" }, "*", "*"],
  [{}, "Accept", undefined]
])("with %j, an answer that varies by %j varies by %j", (headers, vary, expected) => {
  expect(Cors.withVary(headers, vary).vary).toBe(expected)
})
