import { describe, expect, it } from "vitest"
import {
  BadRequest,
  ConnectionFailed,
  Forbidden,
  InvalidResponse,
  isClientError,
  makeClient,
  PayloadTooLarge,
  PreconditionFailed,
  ServiceUnavailable,
  TokenUnavailable,
  Unauthorized
} from "../../src/Client/Client.ts"
import { keys } from "../Harness.ts"
import { failure, ManualClock, serving, until, withService } from "./Harness.ts"

const collect = async <A>(items: AsyncIterable<A>): Promise<ReadonlyArray<A>> => {
  const all: Array<A> = []
  for await (const item of items) all.push(item)
  return all
}

/** A server that answers every request alike. */
const answering = (
  status: number,
  headers: Record<string, string>,
  body: string,
  use: (baseUrl: string) => Promise<void>
): Promise<void> => serving((_, response) => response.writeHead(status, headers).end(body), use)

describe("requests", () => {
  it("set, read and delete entries, whatever their names hold", () =>
    withService(async ({ client }) => {
      const namespace = "tenant:a/b c%/ü!'()*"
      for (const key of ["a/b", "100%", "%2F", "?#&+", "../up", "😀", "a;b", "...", "k".repeat(1024)]) {
        expect(await client.get(namespace, key)).toBeUndefined()
        const entry = await client.set(namespace, key, { key, __proto__: null }, { actor: "anna", ttlMs: 60_000 })
        expect(entry).toMatchObject({ namespace, key, value: { key }, version: 1, updatedBy: "anna" })
        expect(entry.expiresAt).toBeGreaterThan(entry.updatedAt)
        expect(await client.get(namespace, key)).toEqual(entry)
        expect(await client.delete(namespace, key, { actor: "anna" })).toBe(true)
        expect(await client.delete(namespace, key)).toBe(false)
      }
    }))

  it("refuse values that JSON does not have, and send nothing", () =>
    withService(async ({ client }) => {
      const cycle: { self?: unknown } = {}
      cycle.self = cycle
      for (const value of [10n, { list: [10n] }, cycle]) {
        const batched = client.batch([{ op: "set", namespace: "n", key: "k", value }])
        for (const call of [client.set("n", "k", value), batched]) {
          const error = await failure(call)
          expect(error).toBeInstanceOf(BadRequest)
          expect(String(error)).toContain("The value cannot be written as JSON: ")
        }
      }
      expect(await client.get("n", "k")).toBeUndefined()
    }))

  it("refuse names that a URL cannot hold, and send nothing", () =>
    withService(async ({ client, proxy }) => {
      for (const name of ["", ".", "..", "\ud800"]) {
        for (const call of [client.get, client.delete]) {
          expect(await failure(call("n", name))).toBeInstanceOf(BadRequest)
        }
        expect(await failure(client.set(name, "k", 1))).toBeInstanceOf(BadRequest)
        expect(await failure(client.list(name)[Symbol.asyncIterator]().next())).toBeInstanceOf(BadRequest)
      }
      expect(proxy.requests).toEqual([])
    }))

  it("go ahead where the version is as expected; else the error has the one that is there", () =>
    withService(async ({ client }) => {
      expect((await client.set("n", "k", 1, { ifVersion: 0 })).version).toBe(1)
      expect((await client.set("n", "k", 2, { ifVersion: 1 })).version).toBe(2)
      const refusals = [
        [() => client.set("n", "k", 3, { ifVersion: 0 }), 2, undefined],
        [() => client.set("n", "k", 3, { ifVersion: 1 }), 2, undefined],
        [() => client.delete("n", "k", { ifVersion: 1 }), 2, undefined],
        [() => client.delete("n", "k", { ifVersion: 0 }), 2, undefined],
        [() => client.get("n", "k", { ifVersion: 1 }), 2, undefined],
        [() => client.set("n", "absent", 3, { ifVersion: 7 }), 0, undefined],
        [() => client.delete("n", "absent", { ifVersion: 7 }), 0, undefined],
        [() => client.batch([{ op: "set", namespace: "n", key: "k", value: 3, ifVersion: 1 }]), 2, 0],
        [() => client.batch([{ op: "delete", namespace: "n", key: "absent", ifVersion: 9 }]), 0, 0]
      ] as const
      for (const [call, currentVersion, operation] of refusals) {
        const error = await failure(call())
        expect(error).toBeInstanceOf(PreconditionFailed)
        expect(error).toMatchObject({ _tag: "PreconditionFailed", status: 412, currentVersion, operation })
      }
      expect(await client.get("n", "k", { ifVersion: 2 })).toMatchObject({ value: 2 })
      expect(await client.delete("n", "k", { ifVersion: 2 })).toBe(true)
    }))

  it("apply batches as a whole", () =>
    withService(async ({ client }) => {
      const operations = [
        { op: "set", namespace: "n", key: "a", value: 1, ttlMs: 60_000 },
        { op: "set", namespace: "n", key: "a", value: null, ifVersion: 1 },
        { op: "delete", namespace: "n", key: "b" }
      ] as const
      expect(await client.batch(operations, { actor: "anna" })).toEqual([
        { version: 1 },
        { version: 2 },
        { deleted: false }
      ])
      const error = await failure(client.batch([operations[0], { ...operations[1], ifVersion: 9 }]))
      expect(error).toMatchObject({ _tag: "PreconditionFailed", operation: 1, currentVersion: 2 })
      expect(await client.get("n", "a")).toMatchObject({ value: null, version: 2, updatedBy: "anna" })
      expect(await client.batch([])).toEqual([])
    }))

  it("list a namespace page by page, and read a page only when it is asked for", () =>
    withService(async ({ client, proxy }) => {
      const names = Array.from({ length: 25 }, (_, index) => `k/${String(index).padStart(2, "0")}`)
      await client.batch([...names, "other"].map(key => ({ op: "set", namespace: "a/b", key, value: key })))
      const before = proxy.requests.length
      const pages: Array<ReadonlyArray<string>> = []
      for await (const { items, lastSeq } of client.list("a/b", { prefix: "k/", limit: 10 })) {
        pages.push(items.map(({ key }) => key))
        expect(lastSeq).toBe(26)
        expect(proxy.requests.length - before).toBe(pages.length)
      }
      expect(pages.map(page => page.length)).toEqual([10, 10, 5])
      expect(pages.flat()).toEqual(names)
      for await (const _ of client.list("a/b", { limit: 1 })) break
      expect(proxy.requests.length - before).toBe(4)
      for await (const { items } of client.list("absent")) expect(items).toEqual([])
    }))

  it("list between bounds, backward, without values, and with the number of entries on the first page", () =>
    withService(async ({ client }) => {
      const names = ["a", "b/1", "b/2", "b/3", "b/4", "c&=+ /%"]
      await client.batch(names.map(key => ({ op: "set", namespace: "a/b", key, value: key })))
      const bounds = { start: "b/2", end: "c&=+ /%", reverse: true, limit: 2, count: true }
      const pages = await collect(client.list("a/b", bounds))
      expect(pages.map(({ items }) => items.map(({ value }) => value))).toEqual([["b/4", "b/3"], ["b/2"]])
      expect(pages.map(({ count }) => count)).toEqual([3, undefined])
      const keysOf = await collect(client.listKeys("a/b", { prefix: "b/", limit: 3 }))
      expect(keysOf.map(({ items }) => items.map(({ key }) => key))).toEqual([["b/1", "b/2", "b/3"], ["b/4"]])
      for (const { items } of keysOf) for (const item of items) expect(item).not.toHaveProperty("value")
    }))

  it("read several entries at once", () =>
    withService(async ({ client }) => {
      const a = await client.set("a/b", "k", [1])
      const b = await client.set("n", "😀", null)
      const read = await client.getMany([b, { namespace: "n", key: "absent" }, a])
      expect(read).toEqual({ items: [b, undefined, a], lastSeq: 2, epoch: expect.stringMatching(/./) })
      expect(await failure(client.getMany([{ namespace: "n", key: "" }]))).toBeInstanceOf(BadRequest)
      const { value: _, ...rest } = a
      expect(await client.getManyKeys([{ namespace: "n", key: "absent" }, a])).toEqual({
        ...read,
        items: [undefined, rest]
      })
    }))

  it("delete the entries of a prefix", () =>
    withService(async ({ client }) => {
      await client.batch(["a", "b/1", "b/2", "b/3"].map(key => ({ op: "set", namespace: "a/b", key, value: 1 })))
      const first = await client.deletePrefix("a/b", "b/", { actor: "anna", limit: 2 })
      expect(first).toEqual({ deleted: true, count: 2, more: true })
      expect(await client.deletePrefix("a/b", "b/")).toEqual({ deleted: true, count: 1, more: false })
      expect(await client.deletePrefix("a/b", "")).toEqual({ deleted: true, count: 1, more: false })
      expect(await client.deletePrefix("a/b", "")).toEqual({ deleted: false, count: 0, more: false })
    }))

  it("list tenants with the numbers of their namespaces and entries, and the namespaces of one or of none", () =>
    withService(async ({ client }) => {
      for (const namespace of ["tenant:a", "tenant:a/1", "tenant:a/1", "tenant:a-b/1", "c"]) {
        await client.set(namespace, `${Math.random()}`, 1)
      }
      const pages = await collect(client.tenants({ limit: 2 }))
      expect(pages.map(({ tenants }) => tenants)).toEqual([
        [
          { tenant: "", namespaces: 1, entries: 1 },
          { tenant: "a", namespaces: 2, entries: 3 }
        ],
        [{ tenant: "a-b", namespaces: 1, entries: 1 }]
      ])
      expect(pages.map(({ lastSeq }) => lastSeq)).toEqual([5, 5])
      const [ofPrefix] = await collect(client.tenants({ prefix: "a-" }))
      expect(ofPrefix?.tenants).toEqual([{ tenant: "a-b", namespaces: 1, entries: 1 }])
      const [ofTenant] = await collect(client.namespaces({ tenant: "a" }))
      expect(ofTenant?.namespaces).toEqual([
        { namespace: "tenant:a", count: 1 },
        { namespace: "tenant:a/1", count: 2 }
      ])
      const [ofNone] = await collect(client.namespaces({ withoutTenant: true }))
      expect(ofNone?.namespaces).toEqual([{ namespace: "c", count: 1 }])
    }))

  it("fail with an error for each status, which names the request", () =>
    withService(async ({ client, connect }) => {
      const errors = [
        [() => connect({ token: "wrong" }).get("n", "k"), Unauthorized, 401],
        [() => connect({ token: keys.read }).set("n", "k", 1), Forbidden, 403],
        [() => client.set("n", "k".repeat(1025), 1), BadRequest, 400],
        [() => client.set("n", "k", "v".repeat(1024 * 1024 + 1)), PayloadTooLarge, 413],
        [() => client.set("n", "k", 1, { ttlMs: -1 }), BadRequest, 400],
        [() => client.set("n", "k", undefined), BadRequest, 400]
      ] as const
      for (const [call, Class, status] of errors) {
        const error = await failure(call())
        expect(error).toBeInstanceOf(Class)
        expect(error).toMatchObject({ status, requestId: expect.stringMatching(/\S/), name: Class.name })
        expect(isClientError(error)).toBe(true)
      }
      const misplaced = connect({ prefix: "/elsewhere" })
      for (const call of [() => misplaced.set("n", "k", 1), () => misplaced.get("n", "k")]) {
        const message = "Not found: the service has no such route"
        expect(await failure(call())).toMatchObject({ _tag: "NotFound", status: 404, message })
      }
      const page = connect({ prefix: "/elsewhere" }).list("n")[Symbol.asyncIterator]()
      expect(await failure(page.next())).toMatchObject({ _tag: "NotFound" })
    }))

  it("say when to try again", async () => {
    const body = JSON.stringify({ error: "Store unavailable" })
    await answering(503, { "retry-after": "7", "x-request-id": "r-1" }, body, async baseUrl => {
      const error = await failure(makeClient({ baseUrl, token: "t" }).get("n", "k"))
      expect(error).toBeInstanceOf(ServiceUnavailable)
      expect(error).toMatchObject({ message: "Store unavailable", retryAfterMs: 7000, requestId: "r-1" })
    })
    const later = new Date(Date.now() + 60_000).toUTCString()
    await answering(503, { "retry-after": later }, body, async baseUrl => {
      const { retryAfterMs } = (await failure(makeClient({ baseUrl, token: "t" }).get("n", "k"))) as ServiceUnavailable
      expect(retryAfterMs).toBeGreaterThan(50_000)
    })
  })

  it("distinguish answers of other servers from those of the service", async () => {
    for (const [status, body] of [
      [502, "<h1>Bad gateway</h1>"],
      [404, "<h1>Not here</h1>"],
      [404, ""],
      [404, '{"message":"Route GET:/ not found","error":"Not found","statusCode":404}'],
      [418, JSON.stringify({ error: "a teapot" })],
      [200, "<h1>Sign in</h1>"],
      [200, "null"],
      [200, "{}"]
    ] as const) {
      await answering(status, {}, body, async baseUrl => {
        const error = await failure(makeClient({ baseUrl, token: "t" }).get("n", "k"))
        expect(error).toBeInstanceOf(InvalidResponse)
        expect(error).toMatchObject({ status })
        if (status === 404) expect(String(error)).toContain("baseUrl or prefix may be wrong")
      })
    }
  })

  it("ask for the token at each try", () =>
    withService(async ({ connect }) => {
      const tokens = ["wrong", keys.write]
      const client = connect({ token: async () => tokens.shift()! })
      expect(await failure(client.get("n", "k"))).toBeInstanceOf(Unauthorized)
      expect(await client.get("n", "k")).toBeUndefined()
      const cause = new Error("the session is over")
      const error = await failure(connect({ token: () => Promise.reject(cause) }).get("n", "k"))
      expect(error).toBeInstanceOf(TokenUnavailable)
      expect(error).toMatchObject({ cause })
    }))

  it("end with the signal, while they wait for the token too", () =>
    withService(async ({ connect, proxy }) => {
      const reason = new Error("enough")
      for (const token of [keys.write, () => new Promise<string>(() => {})]) {
        const ending = new AbortController()
        const call = failure(connect({ token }).get("n", "k", { signal: ending.signal }))
        ending.abort(reason)
        expect(await call).toBe(reason)
        expect(await failure(connect({ token }).get("n", "k", { signal: ending.signal }))).toBe(reason)
      }
      await until(() => proxy.connections === 0)
    }))

  it("end after the time limit, and when the connection fails", () =>
    withService(async ({ connect, proxy }) => {
      const clock = new ManualClock()
      const silent = connect({ clock, timeoutMs: 5000, token: () => new Promise<string>(() => {}) })
      const call = failure(silent.get("n", "k"))
      clock.advance(5000)
      const error = await call
      expect(error).toBeInstanceOf(ConnectionFailed)
      expect(error).toMatchObject({ isTimeout: true })
      expect(clock.timers).toBe(0)
      proxy.isDown = true
      expect(await failure(connect().get("n", "k"))).toMatchObject({ _tag: "ConnectionFailed", isTimeout: false })
    }))
})
