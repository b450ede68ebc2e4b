import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { WebSocket } from "ws"
import { keys } from "../../Harness.ts"
import {
  batch,
  bearer,
  bodyOf,
  type ChangesBody,
  type Check,
  call,
  changes,
  end,
  expectError,
  follow,
  head,
  headersOf,
  put,
  Site,
  segment,
  space,
  wire
} from "./Fixture.ts"

const fill = (namespace: string, count: number) =>
  batch(Array.from({ length: count }, (_, index) => ({ op: "set", namespace, key: `k${index}`, value: index })))

const tenantOf = (namespace: string): string => namespace.slice("tenant:".length, namespace.indexOf("/"))

/** Polling the change log. */
export const polling = (check: Check) => {
  check("the limit is 100 unless it is given, and above 1000 it is served as 1000", () =>
    Effect.gen(function* () {
      const namespace = space()
      const start = yield* end
      yield* fill(namespace, 1000)
      yield* fill(namespace, 5)
      for (const [query, count] of [
        ["", 100],
        ["&limit=1", 1],
        ["&limit=1000", 1000],
        ["&limit=1001", 1000],
        ["&limit=9007199254740991", 1000]
      ] as const) {
        const page = yield* changes(`after=${start}${query}`)
        expect([query, page.changes.length, page.lastSeq]).toEqual([query, count, start + count])
        expect(page.changes.map(change => change.seq)).toEqual(
          Array.from({ length: count }, (_, index) => start + 1 + index)
        )
      }
      const all = yield* follow(start)
      expect(all).toHaveLength(1005)
      expect(all.map(change => change.timestamp)).toEqual(all.map(change => change.timestamp).sort((a, b) => a - b))
    })
  )

  check("after is 0 unless it is given", () =>
    Effect.gen(function* () {
      yield* put(space(), "k", 1)
      const { changes: records } = yield* changes("limit=1")
      expect(records.map(record => record.seq)).toEqual([1])
      expect((yield* changes("after=0&limit=1")).changes).toEqual(records)
      expect((yield* call("GET", "/api/v1/changes?after=00&limit=01")).status).toBe(200)
    })
  )

  check("0, negative, fractional and absurd numbers are refused by name", () =>
    Effect.gen(function* () {
      for (const [name, values] of [
        ["limit", ["0", "-1", "1.5", "", "x", "1e3", "0x1", "NaN", "Infinity", "%2B1", "1%20"]],
        ["after", ["-1", "1.5", "", "x", "-0", "1e3", "null"]],
        ["wait", ["-1", "61", "1.5", "", "forever"]]
      ] as const) {
        for (const value of values) {
          const answer = yield* call("GET", `/api/v1/changes?${name}=${value}`)
          expect([name, value, answer.status]).toEqual([name, value, 400])
          expectError(answer, 400, name)
        }
      }
      for (const route of ["stream", "ws"]) {
        for (const query of ["limit=0", "after=-1", "after=x", "tenant=a&tenant=b"]) {
          const answer = yield* call("GET", `/api/v1/changes/${route}?${query}`)
          expectError(answer, 400, query.split("=", 1)[0]!)
        }
      }
    })
  )

  check("very large numbers are accepted", () =>
    Effect.gen(function* () {
      yield* put(space(), "k", 1)
      const last = yield* end
      for (const query of [
        "after=9007199254740993",
        "after=99999999999999999999",
        `after=${last}&limit=${"9".repeat(40)}`
      ]) {
        const answer = yield* call("GET", `/api/v1/changes?${query}`)
        expect([query, answer.status, answer.text]).toEqual([query, 200, `{"changes":[],"lastSeq":${last}}`])
      }
    })
  )

  check("with nothing newer, lastSeq is after", () =>
    Effect.gen(function* () {
      yield* put(space(), "k", 1)
      const last = yield* end
      const answer = yield* call("GET", `/api/v1/changes?after=${last}`)
      expect([answer.text, headersOf(answer)]).toEqual([
        `{"changes":[],"lastSeq":${last}}`,
        { "content-type": "application/json", "kv-epoch": expect.stringMatching(/^[\w.-]{1,64}$/) }
      ])
      expect((yield* changes(`after=${last}&wait=0`)).lastSeq).toBe(last)
    })
  )

  check("an after beyond the end is answered at once with the end", () =>
    Effect.gen(function* () {
      yield* put(space(), "k", 1)
      const last = yield* end
      for (const query of [`after=${last + 1}`, `after=${last + 1000}&wait=60`, "after=9007199254740991&wait=60"]) {
        expect(yield* changes(query)).toEqual({ changes: [], lastSeq: last })
        expect(yield* changes(`${query}&tenant=none`)).toEqual({ changes: [], lastSeq: last })
      }
    })
  )

  check("a tenant sees its own changes, and lastSeq goes past those of others", () =>
    Effect.gen(function* () {
      const [mine, other] = [space(), space()]
      const tenant = tenantOf(mine)
      const start = yield* end
      yield* put(mine, "a", 1)
      yield* put(other, "b", 2)
      yield* put(`tenant:${tenant}`, "c", 3)
      yield* put(`tenant:${tenant}x/y`, "d", 4)
      yield* put(`xtenant:${tenant}/y`, "e", 5)
      yield* put(`tenant:${tenant}/deep/er`, "f", 6)
      yield* put(`Tenant:${tenant}/y`, "g", 7)
      const page = yield* changes(`after=${start}&tenant=${tenant}`)
      expect(page.changes.map(({ key, tenantId }) => [key, tenantId])).toEqual([
        ["a", tenant],
        ["c", tenant],
        ["f", tenant]
      ])
      expect(page.lastSeq).toBe(start + 7)
      const first = yield* changes(`after=${start}&tenant=${tenant}&limit=1`)
      expect([first.changes.length, first.lastSeq]).toEqual([1, start + 1])
      const none = yield* changes(`after=${start}&tenant=${tenant}-none`)
      expect(none).toEqual({ changes: [], lastSeq: start + 7 })
      const all = yield* changes(`after=${start}&tenant=`)
      expect(all.changes.map(change => change.tenantId)).toEqual([
        tenant,
        tenantOf(other),
        tenant,
        `${tenant}x`,
        "",
        tenant,
        ""
      ])
    })
  )

  check("a tenant may have any name", () =>
    Effect.gen(function* () {
      for (const tenant of ["a%b", "a+b", "a&b=c", "é😀", "a b", "x:y", "__proto__"]) {
        const own = tenant + tenantOf(space())
        const start = yield* end
        yield* put(`tenant:${own}/x`, "k", 1)
        const page = yield* changes(`after=${start}&tenant=${encodeURIComponent(own)}`)
        expect(page.changes.map(change => change.tenantId)).toEqual([own])
      }
    })
  )

  check("a follower of a namespace, or of a prefix of its keys, receives only their changes", () =>
    Effect.gen(function* () {
      const { port, url } = yield* Site
      const mine = space()
      const start = yield* end
      const following = (query: string) => `after=${start}&namespace=${segment(mine)}${query}`
      const follow = (query: string) => {
        const target = `ws://127.0.0.1:${port}/api/v1/changes/ws?${following(query)}`
        return Effect.gen(function* () {
          const keysOf: Array<string> = []
          const socket = yield* Effect.acquireRelease(
            Effect.sync(() => new WebSocket(target, { headers: { authorization: bearer(keys.read) } })),
            socket => Effect.sync(() => socket.terminate())
          )
          socket.on("message", data => {
            const { changes } = JSON.parse(String(data)) as ChangesBody
            keysOf.push(...changes.map(change => change.key))
          })
          yield* Effect.async<void, Error>(resume => {
            socket.once("open", () => resume(Effect.void))
            socket.once("error", error => resume(Effect.fail(error)))
          })
          return keysOf
        })
      }
      const [all, part] = [yield* follow(""), yield* follow("&prefix=a%2F")]
      const waiting = yield* Effect.fork(changes(`${following("&prefix=a%2Fz")}&wait=60`))
      const events = yield* Effect.fork(
        Effect.promise(async signal => {
          const headers = { authorization: bearer(keys.read) }
          const answer = await fetch(`${url}/api/v1/changes/stream?${following("&prefix=a")}`, { headers, signal })
          const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
          let text = ""
          while (!text.includes('"key":"a/z"')) text += (await reader.read()).value ?? ""
          await reader.cancel()
          return [...text.matchAll(/"key":"([^"]*)"/g)].map(([, key]) => key)
        })
      )
      const written = ["a/1", "b", "A/2", "a", "a/3", "%2F", "a/z"]
      for (const key of written) {
        yield* put(space(), key, 1)
        yield* put(mine, key, 1)
        yield* put(`${mine}x`, key, 1)
      }
      expect((yield* Fiber.join(waiting)).changes.map(change => change.key)).toEqual(["a/z"])
      expect(yield* Fiber.join(events)).toEqual(["a/1", "a", "a/3", "a/z"])
      for (const [query, selected] of [
        ["", written],
        ["&prefix=", written],
        ["&prefix=a", ["a/1", "a", "a/3", "a/z"]],
        ["&prefix=a%2F", ["a/1", "a/3", "a/z"]],
        ["&prefix=%25", ["%2F"]],
        [`&tenant=${tenantOf(mine)}`, written],
        ["&tenant=other", []],
        ["&prefix=none", []]
      ] as const) {
        const page = yield* changes(following(query))
        expect([query, page.changes.map(change => change.key)]).toEqual([query, selected])
        expect(page.changes.every(change => change.namespace === mine)).toBe(true)
        expect(page.lastSeq).toBe(yield* end)
      }
      while (all.length < written.length || part.length < 3) yield* Effect.promise(() => new Promise(setImmediate))
      expect([all, part]).toEqual([written, ["a/1", "a/3", "a/z"]])
    })
  )

  check("a prefix without a namespace and names that are none are refused", () =>
    Effect.gen(function* () {
      for (const route of ["", "/stream", "/ws"]) {
        for (const [query, named] of [
          ["prefix=a", "namespace"],
          ["prefix=", "namespace"],
          ["namespace=", "namespace is empty"],
          ["namespace=..", "namespace"],
          ["namespace=%00", "namespace"],
          [`namespace=${"n".repeat(513)}`, "512"],
          ["namespace=n&prefix=%00", "prefix"],
          ["namespace=a&namespace=b", "namespace"]
        ] as const) {
          expectError(yield* call("GET", `/api/v1/changes${route}?${query}`), 400, named)
        }
      }
    })
  )

  check("a poll that waits is answered by the next write that concerns it", () =>
    Effect.gen(function* () {
      const [mine, other] = [space(), space()]
      const start = yield* end
      const waiting = yield* Effect.fork(changes(`after=${start}&wait=60`))
      const filtered = yield* Effect.fork(changes(`after=${start}&wait=60&tenant=${tenantOf(mine)}`))
      yield* put(other, "k", 1)
      const first = yield* Fiber.join(waiting)
      expect(first.changes.map(change => change.namespace)).toEqual([other])
      yield* put(mine, "k", 2)
      const second = yield* Fiber.join(filtered)
      expect(second.changes.map(change => [change.namespace, change.seq])).toEqual([[mine, start + 2]])
      expect(second.lastSeq).toBe(start + 2)
    })
  )

  check("many polls wait at once, and one write answers them all", () =>
    Effect.gen(function* () {
      const namespace = space()
      const start = yield* end
      const waiting = yield* Effect.fork(
        Effect.forEach(Array.from({ length: 60 }), () => changes(`after=${start}&wait=60`), {
          concurrency: "unbounded"
        })
      )
      yield* put(namespace, "k", 1)
      const pages = yield* Fiber.join(waiting)
      for (const page of pages) expect(page).toEqual(pages[0])
    })
  )

  check("Server-Sent Events carry the records, and the connection stays open", () =>
    Effect.gen(function* () {
      const { url } = yield* Site
      const namespace = space()
      const start = yield* end
      yield* put(namespace, "a", "x\ny")
      const polled = yield* call("GET", `/api/v1/changes?after=${start}`)
      const [record] = bodyOf<ChangesBody>(polled).changes
      const received = yield* Effect.promise(async signal => {
        const headers = { authorization: bearer(keys.read), "last-event-id": String(start) }
        const answer = await fetch(`${url}/api/v1/changes/stream?after=0`, { headers, signal })
        const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
        let text = ""
        while (!text.includes("data:") || !text.endsWith("\n\n")) text += (await reader.read()).value ?? ""
        await reader.cancel()
        return {
          status: answer.status,
          type: answer.headers.get("content-type"),
          cache: answer.headers.get("cache-control"),
          text
        }
      })
      expect(received).toMatchObject({ status: 200, type: "text/event-stream", cache: "no-store" })
      const event = received.text.slice(received.text.indexOf(`id: ${start + 1}@`))
      expect(event).toBe(`id: ${start + 1}@${polled.headers["kv-epoch"]}\ndata: ${JSON.stringify(record)}\n\n`)
      for (const id of ["x", "-1", "1.5", "1 2", "@e", "1@", "1@a b", `1@${"e".repeat(65)}`]) {
        const answer = yield* call("GET", "/api/v1/changes/stream", { headers: { "last-event-id": id } })
        expectError(answer, 400, "Last-Event-ID")
      }
    })
  )

  check("a WebSocket is sent the records in frames", () =>
    Effect.gen(function* () {
      const { port } = yield* Site
      const namespace = space()
      const start = yield* end
      yield* put(namespace, "k", { a: 1 })
      const polled = yield* call("GET", `/api/v1/changes?after=${start}`)
      const url = `ws://127.0.0.1:${port}/api/v1/changes/ws?after=${start}&tenant=${tenantOf(namespace)}`
      const socket = yield* Effect.acquireRelease(
        Effect.sync(() => new WebSocket(url, { headers: { authorization: bearer(keys.read) } })),
        socket => Effect.sync(() => socket.terminate())
      )
      const frame = yield* Effect.async<string, Error>(resume => {
        socket.once("message", data => resume(Effect.succeed(String(data))))
        socket.once("error", error => resume(Effect.fail(error)))
      })
      expect(frame).toBe(`{"type":"changes",${polled.text.slice(1, -1)},"epoch":"${polled.headers["kv-epoch"]}"}`)
    })
  )

  check("a browser sends the key as a subprotocol of the WebSocket", () =>
    Effect.gen(function* () {
      const { port } = yield* Site
      const start = yield* end
      const encode = (key: string) => Buffer.from(key).toString("base64url")
      for (const key of [keys.read, keys.write]) {
        for (const offered of [
          ["causeway.v1", `bearer.${encode(key)}`],
          [`bearer.${encode(key)}`, "other", "causeway.v1"]
        ]) {
          const url = `ws://127.0.0.1:${port}/api/v1/changes/ws?after=${start}`
          const socket = yield* Effect.acquireRelease(
            Effect.sync(() => new WebSocket(url, offered, { origin: `http://127.0.0.1:${port}` })),
            socket => Effect.sync(() => socket.terminate())
          )
          yield* Effect.async<void, Error>(resume => {
            socket.once("open", () => resume(Effect.void))
            socket.once("error", error => resume(Effect.fail(error)))
          })
          expect(socket.protocol).toBe("causeway.v1")
        }
      }
      const shake = (path: string, ...headers: ReadonlyArray<string>) =>
        Effect.gen(function* () {
          const connection = yield* wire
          const handshake = [
            ...["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"],
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
          ]
          yield* connection.send(
            [`GET ${path} HTTP/1.1`, "Host: localhost", ...handshake, ...headers, "", ""].join("\r\n")
          )
          return yield* connection.answer
        })
      const key = encode(keys.write)
      const authorization = `Authorization: ${bearer(keys.write)}`
      for (const [offered, others] of [
        ["causeway.v1", []],
        [`bearer.${key}`, []],
        [`other, bearer.${key}`, []],
        ["causeway.v1, bearer.", []],
        [`causeway.v1, bearer.${keys.write}`, []],
        [`causeway.v1, bearer.${encode("wrong")}`, []],
        [`causeway.v1, bearer.${key}=`, []],
        [`causeway.v1, bearer.${key}, bearer.${key}`, []],
        [`causeway.v1, bearer.${key}`, [authorization]],
        [`causeway.v1, bearer.${key}`, ["Authorization: Bearer wrong"]],
        [`causeway.v1, bearer.${key}`, ["Authorization:"]],
        [`causeway.v1, bearer.${key}`, [`Sec-WebSocket-Protocol: bearer.${key}`]]
      ] as const) {
        const answer = yield* shake("/api/v1/changes/ws", `Sec-WebSocket-Protocol: ${offered}`, ...others)
        expect([offered, others, answer?.status, answer?.text]).toEqual([
          offered,
          others,
          401,
          '{"error":"Unauthorized"}'
        ])
      }
      for (const [origin, status] of [
        ["http://localhost", 101],
        ["http://localhost:80", 101],
        ["http://evil.example", 403],
        ["http://localhost.evil.example", 403],
        ["null", 403],
        ["", 403]
      ] as const) {
        const offered = `Sec-WebSocket-Protocol: causeway.v1, bearer.${key}`
        const answer = yield* shake("/api/v1/changes/ws", offered, `Origin: ${origin}`)
        expect([origin, answer?.status]).toEqual([origin, status])
        if (status === 101) expect(answer?.headers["sec-websocket-protocol"]).toBe("causeway.v1")
      }
      const plain = { "sec-websocket-protocol": `causeway.v1, bearer.${key}` }
      for (const path of ["/api/v1/changes", "/api/v1/changes/ws"]) {
        expectError(yield* call("GET", path, { key: null, headers: plain }), 401, "Unauthorized")
      }
    })
  )

  check("an invalid WebSocket handshake is 500, and an upgrade of another request changes no answer", () =>
    Effect.gen(function* () {
      expectError(yield* call("GET", "/api/v1/changes/ws"), 500, "WebSocket")
      const upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
      const key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
      for (const [line, headers, status] of [
        ["GET /api/v1/changes/ws", upgrade, 500],
        ["GET /api/v1/changes/ws", [...upgrade, "Sec-WebSocket-Key: short"], 500],
        ["GET /api/v1/changes/ws", [...upgrade.slice(0, 2), "Sec-WebSocket-Version: 7", key], 500],
        ["GET /api/v1/changes/ws?after=x", [...upgrade, key], 400],
        ["GET /api/v1/health", [...upgrade, key], 200],
        ["GET /nowhere", [...upgrade, key], 404],
        ["POST /api/v1/changes/ws", [...upgrade, key, "Content-Length: 0"], 405]
      ] as const) {
        const connection = yield* wire
        yield* connection.send(head(line, ...headers))
        const answer = yield* connection.answer
        expect([line, headers, answer?.status]).toEqual([line, headers, status])
        expect(answer?.headers["content-type"]).toBe("application/json")
      }
      const stranger = yield* wire
      yield* stranger.send(head("GET /api/v1/changes/ws", ...upgrade, key).replace(bearer(keys.write), "Bearer x"))
      expect((yield* stranger.answer)?.text).toBe('{"error":"Unauthorized"}')
    })
  )
}
