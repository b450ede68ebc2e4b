import { expect } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { connect, create, jsonOf, live, outcome, request } from "./Fixture.ts"

live("creates an instance once for one idempotency key", function* ({ platformUrl, state }) {
  const [first, again] = yield* Effect.all(
    [0, 1].map(() => create(platformUrl, { "idempotency-key": "a" })),
    {
      concurrency: 2
    }
  )
  const other = yield* create(platformUrl, { "idempotency-key": "b" })
  const without = [yield* create(platformUrl), yield* create(platformUrl)]
  expect(again).toBe(first)
  expect(new Set([first, other, ...without]).size).toBe(4)
  const { created, instances, recent, requests } = yield* state
  expect(created).toBe(4)
  expect(instances.map(({ id }) => id)).toEqual([first, other, ...without])
  expect(requests.create).toBe(5)
  expect(recent.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["a", "a", "b", undefined, undefined])
})

live("knows what an instance was created with, its secrets by name only", function* ({ platformUrl, state }) {
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
  const body = {
    agentType: "coder",
    deployment: { image: "a" },
    secrets: { TOKEN: "hidden" },
    environment: { LANG: "C" }
  }
  const reply = yield* request(`${platformUrl}/api/v1/instances`, { body, headers: { traceparent } })
  expect(reply.status).toBe(201)
  const seen = yield* state
  expect(seen.instances).toMatchObject([
    { agentType: "coder", deployment: { image: "a" }, environment: { LANG: "C" }, secretNames: ["TOKEN"] }
  ])
  expect(seen.recent).toMatchObject([{ operation: "create", traceparent }])
  expect(JSON.stringify(seen)).not.toContain("hidden")
})

live("names what is wrong with a request", { limits: { bodyBytes: 100 } }, function* ({ platformUrl, state }) {
  const url = `${platformUrl}/api/v1/instances`
  const refused = (body: unknown) =>
    Effect.map(outcome(url, { body }), ([status, answer]) => [status, JSON.stringify(answer)])
  expect(yield* refused({ agentType: "" })).toEqual([400, expect.stringContaining("agentType")])
  expect(yield* refused({ agentType: "a", secrets: { x: 1 } })).toEqual([400, expect.stringContaining("secrets")])
  expect(yield* refused("{")).toEqual([400, expect.stringContaining("error")])
  expect(yield* refused({ agentType: "a".repeat(100) })).toEqual([413, expect.stringContaining("116 bytes")])
  expect((yield* outcome(`${platformUrl}/nowhere`))[0]).toBe(404)
  expect((yield* outcome(url, { method: "PUT" }))[0]).toBe(404)
  expect((yield* state).unknownRequests).toBe(2)
  expect((yield* state).created).toBe(0)
})

live("has room for so many instances", { limits: { instances: 1 } }, function* ({ platformUrl }) {
  const id = yield* create(platformUrl)
  const full = yield* request(`${platformUrl}/api/v1/instances`, { body: { agentType: "echo" } })
  expect([full.status, full.headers["retry-after"]]).toEqual([429, "1"])
  const url = `${platformUrl}/api/v1/instances/${id}`
  expect((yield* request(url, { method: "DELETE" })).status).toBe(204)
  expect((yield* request(url, { method: "DELETE" })).status).toBe(404)
  expect((yield* request(`${url}/files`)).status).toBe(404)
  yield* create(platformUrl)
})

live("asks for its bearer but at /health", { platformKey: Redacted.make("key") }, function* ({ platformUrl }) {
  const authorized = { authorization: "Bearer key" }
  expect((yield* request(`${platformUrl}/health`)).status).toBe(200)
  for (const authorization of ["Bearer wrong", "Basic key", ""]) {
    const url = `${platformUrl}/api/v1/instances`
    expect((yield* request(url, { body: { agentType: "a" }, headers: { authorization } })).status).toBe(401)
  }
  const id = yield* create(platformUrl, authorized)
  expect((yield* Effect.flip(Effect.asVoid(connect(platformUrl, id)))).code).toBe("401")
  yield* connect(platformUrl, id, "", authorized)
})

live("refuses a connection that is no WebSocket or has no instance", function* ({ platformUrl }) {
  const id = yield* create(platformUrl)
  expect((yield* request(`${platformUrl}/api/v1/instances/${id}/connect`)).status).toBe(426)
  expect((yield* Effect.flip(Effect.asVoid(connect(platformUrl, "nobody")))).code).toBe("404")
})

live("lists, reads and remembers files as turns change them", function* ({ platformUrl }) {
  const id = yield* create(platformUrl)
  const url = `${platformUrl}/api/v1/instances/${id}/files`
  const client = yield* connect(platformUrl, id)
  const paths = (query: string) =>
    Effect.map(request(`${url}${query}`), reply => {
      const { entries } = jsonOf(reply) as { entries: ReadonlyArray<{ path: string; type: string }> }
      return entries.map(({ path, type }) => `${type} ${path}`)
    })
  expect(yield* paths("")).toEqual(["file README.md", "directory assets", "directory src"])
  expect(yield* paths("?path=src&depth=1")).toEqual(["file src/main.ts"])

  const [created] = (yield* client.turn("/write a/b.txt one", "t1")).filter(({ path }) => path === "a/b.txt")
  const [modified] = (yield* client.turn("/write a/b.txt two", "t2")).filter(({ path }) => path === "a/b.txt")
  expect([created, modified]).toMatchObject([
    { type: "file.created", iteration: 1, size: 3 },
    { type: "file.modified", iteration: 2, size: 3 }
  ])
  const file = `${url}/${encodeURIComponent("a/b.txt")}`
  expect(yield* paths("?path=&depth=2")).toContain("file a/b.txt")
  expect((yield* outcome(file))[1]).toMatchObject({ content: "two", encoding: "utf-8", hash: modified!.hash })
  expect((yield* outcome(`${file}/history`))[1]).toMatchObject({
    path: "a/b.txt",
    iterations: [
      { iteration: 1, size: 3, hash: created!.hash },
      { iteration: 2, size: 3, hash: modified!.hash }
    ]
  })
  expect((yield* outcome(`${file}/at/1`))[1]).toMatchObject({ content: "one", iteration: 1 })

  expect((yield* client.turn("/rename a/b.txt c.txt", "t3")).some(({ type }) => type === "file.renamed")).toBe(true)
  expect((yield* request(file)).status).toBe(404)
  expect((yield* outcome(`${url}/c.txt`))[1]).toMatchObject({ content: "two", iteration: 1 })
  expect((yield* client.turn("/delete c.txt", "t4")).some(({ type }) => type === "file.deleted")).toBe(true)
  expect((yield* request(`${url}/c.txt`)).status).toBe(404)
  expect((yield* request(`${url}/c.txt/at/1`)).status).toBe(200)

  expect((yield* outcome(`${url}/${encodeURIComponent("assets/pixel.gif")}`))[1]).toMatchObject({
    encoding: "base64",
    content: expect.stringMatching(/^R0lGOD/)
  })
  for (const [path, status] of [
    ["?depth=0", 400],
    ["?path=nowhere", 404],
    ["/none", 404],
    ["/none/history", 404],
    ["/README.md/at/9", 404],
    ["/README.md/at/x", 400]
  ] as const) {
    expect([path, (yield* request(`${url}${path}`)).status]).toEqual([path, status])
  }
})
