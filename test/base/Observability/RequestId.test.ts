import { assert, describe, it } from "@effect/vitest"
import { Effect, FastCheck as fc, LogLevel, Random } from "effect"
import { requestIdAnnotation, requestIdOf, requestIds } from "../../../src/Http/HeaderFields.ts"
import { keys, stock } from "../../Harness.ts"
import { edge } from "../../Http/Edge/EdgeTransport.ts"
import * as Outage from "../../suites/Http/Outage.ts"
import { test } from "../../Tests.ts"
import { logged } from "./Recording.ts"

describe("a request's id", () => {
  it("is the client's if it is fit for headers and logs", () => {
    for (const id of [
      "a",
      "7b0c1d2e-11aa-4bcd-8e9f-0123456789ab",
      "Root=1-67891233-abcdef012345678912345678",
      "a/b:c"
    ]) {
      assert.strictEqual(requestIdOf(id), id)
    }
    for (const id of [undefined, "", " ", "a b", "a,b", 'a"', "a\nb", "é", "-a", "<script>", "x".repeat(129)]) {
      assert.isUndefined(requestIdOf(id), String(id))
    }
    assert.isUndefined(requestIdOf(["a", "b"]))
    fc.assert(
      fc.property(fc.fullUnicodeString(), text => {
        const id = requestIdOf(text)
        assert.isTrue(id === undefined || (id === text && /^[!-~]{1,128}$/.test(id)))
      })
    )
  })

  test.effect("is unique within a process and across processes", function* () {
    const generator = (seed: string) => Effect.withRandom(requestIds, Random.make(seed))
    const [one, other] = [yield* generator("one"), yield* generator("other")]
    const ids = new Set([one(), one(), one(), other(), other()])
    assert.strictEqual(ids.size, 5)
    for (const id of ids) assert.strictEqual(requestIdOf(id), id)
  })
})

describe("the edge", () => {
  test.scopedLive("logs each answer at level debug, under the request's id", function* () {
    const messages = (level: LogLevel.LogLevel) =>
      Effect.gen(function* () {
        const { layer, lines } = logged(level)
        yield* Effect.gen(function* () {
          const { url } = yield* edge.serve(Outage.busy)
          const headers = { "x-request-id": "one" }
          yield* Effect.promise(() => fetch(`${url}/nowhere?x=1`, { headers }))
          yield* Effect.promise(() => fetch(`${url}/api/v1/changes?after=7&token=secret`, { headers }))
        }).pipe(Effect.provide(layer))
        return lines()
          .filter(({ message }) => message === "Answered a request")
          .map(({ annotations: { [requestIdAnnotation]: id, target } }) => [id, target])
      })
    // A client may have put a secret into an unknown parameter.
    assert.deepStrictEqual(
      yield* messages(LogLevel.Debug),
      ["/nowhere?x=…", "/api/v1/changes?after=7&token=…"].map(target => ["one", target])
    )
    assert.deepStrictEqual(yield* messages(LogLevel.Info), [])
  })
})

for (const transport of [edge, stock]) {
  describe(`${transport.name}: the header x-request-id`, () => {
    test.scopedLive("is in every answer, and is new if there was none or an invalid one", function* () {
      const { layer } = logged(LogLevel.Info)
      const { url } = yield* Effect.provide(transport.serve(Outage.busy), layer)
      const send = (path: string, id?: string, init: RequestInit = {}) =>
        Effect.promise(async () => {
          const response = await fetch(url + path, {
            ...init,
            headers: { authorization: `Bearer ${keys.write}`, ...(id === undefined ? {} : { "x-request-id": id }) }
          })
          await response.arrayBuffer()
          return [response.status, response.headers.get("x-request-id")] as const
        })
      const paths = {
        "/api/v1/health": 200,
        "/api/v1/kv/n/k": 404,
        "/nowhere": 404,
        "/api/v1/kv/%zz": 400,
        "/api/v1/changes/stream": 200,
        "/api/v1/changes?after=x": 400
      }
      for (const [path, status] of Object.entries(paths)) {
        // A stream does not end; its head is all that is asked for.
        const init = path.endsWith("stream") ? { method: "HEAD" } : {}
        assert.deepStrictEqual(yield* send(path, "from-client-1", init), [status, "from-client-1"], path)
        const [, made] = yield* send(path, undefined, init)
        assert.match(made ?? "", /^[0-9a-f]{16}-\d+$/, path)
      }
      assert.deepStrictEqual(yield* send("/api/v1/health", "a, b").pipe(Effect.map(([status]) => status)), 200)
      const [, replaced] = yield* send("/api/v1/health", "a b")
      assert.match(replaced ?? "", /^[0-9a-f]{16}-\d+$/)
    })

    test.scopedLive("is on the log lines of the request, and on no others", function* () {
      const { layer, lines } = logged(LogLevel.Info)
      yield* Effect.gen(function* () {
        const { url } = yield* transport.serve(Outage.broken)
        const send = (id: string) =>
          Effect.promise(() =>
            fetch(`${url}/api/v1/kv/n/k`, { headers: { authorization: `Bearer ${keys.read}`, "x-request-id": id } })
          )
        const answers = yield* Effect.all(["one", "two", "three"].map(send), { concurrency: "unbounded" })
        assert.deepStrictEqual(
          answers.map(({ status }) => status),
          [500, 500, 500]
        )
      }).pipe(Effect.provide(layer))
      const defects = lines().filter(({ message }) => message.includes("Defect"))
      assert.sameMembers(
        defects.map(({ annotations }) => annotations[requestIdAnnotation]),
        ["one", "two", "three"]
      )
    })
  })
}
