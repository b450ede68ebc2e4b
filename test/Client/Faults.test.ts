/** What servers and proxies may do that the service does not. */
import type { RequestListener } from "node:http"
import { describe, expect, it, vi } from "vitest"
import {
  BadRequest,
  InvalidResponse,
  makeClient,
  PreconditionFailed,
  ResponseTooLarge
} from "../../src/Client/Client.ts"
import { EventParser } from "../../src/Client/EventStream.ts"
import { keys } from "../Harness.ts"
import { Gathered, observing, serving, until, withService } from "./Harness.ts"

/** Answers polls with an empty log, and the event stream with a given function. Long polls stay open. */
const streaming =
  (stream: RequestListener): RequestListener =>
  (request, response) => {
    const { searchParams, pathname } = new URL(request.url!, "http://localhost")
    if (pathname.endsWith("/stream")) return stream(request, response)
    if (searchParams.has("wait")) return
    response.setHeader("content-type", "application/json")
    response.end(JSON.stringify({ changes: [], lastSeq: Number(searchParams.get("after")) }))
  }

const event = (seq: number) => `id: ${seq}\ndata: ${JSON.stringify({ seq, key: "k" })}\n\n`

describe("an event stream", () => {
  it("is read alike wherever it is cut, with either end of line and comments within events", () => {
    const text = ": hello\n\nid: 1\n:\ndata: a\n: b\ndata:c\n\n\nid: 2\n\nevent: reset\nid: 1\ndata: ü\n\n"
    const expected = [
      { type: "message", id: "1", data: "a\nc" },
      { type: "message", id: "2", data: "" },
      { type: "reset", id: "1", data: "ü" }
    ]
    for (const whole of [text, text.replaceAll("\n", "\r\n")]) {
      for (let at = 0; at <= whole.length; at++) {
        const parser = new EventParser(1000)
        expect([at, ...parser.push(whole.slice(0, at)), ...parser.push(whole.slice(at))]).toEqual([at, ...expected])
      }
    }
  })

  it("begins only after the polls have reached the end of the log, however few changes they have", async () => {
    const requests: Array<string> = []
    const stream: RequestListener = (request, response) => {
      const { pathname, searchParams } = new URL(request.url!, "http://localhost")
      const after = Number(searchParams.get("after"))
      requests.push(`${pathname.split("/").at(-1)} ${after}`)
      if (pathname.endsWith("/stream")) {
        response.writeHead(200, { "content-type": "text/event-stream" }).write(": connected\n\n")
        return
      }
      // Three scans, of which the second finds something.
      const headers = { "content-type": "application/json", ...(after < 20 && { "kv-more": "true" }) }
      const changes = after === 10 ? [{ seq: 15, key: "k" }] : []
      response.writeHead(200, headers).end(JSON.stringify({ changes, lastSeq: Math.min(after + 10, 25) }))
    }
    await serving(stream, async baseUrl => {
      const { ending, onStatus, signal, statuses } = observing()
      const client = makeClient({ baseUrl, token: "t", transports: ["serverSentEvents"] })
      const gathered = new Gathered(client.follow({ after: 0, namespace: "n", signal, onStatus }))
      await until(() => statuses.length === 1)
      expect(gathered.seqs).toEqual([15])
      expect(requests).toEqual(["changes 0", "changes 10", "changes 20", "stream 25"])
      ending.abort()
      await gathered.done
    })
  })

  it("ends at once, and with it its connection, on a runtime whose `fetch` loses the signal after the headers", async () => {
    let isClosed = false
    const stream = streaming((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write(event(1))
      response.once("close", () => (isClosed = true))
    })
    await serving(stream, async baseUrl => {
      const { ending, signal } = observing()
      const client = makeClient({
        baseUrl,
        token: "t",
        transports: ["serverSentEvents"],
        fetch: (url, options) => fetch(url, { ...options, signal: null })
      })
      const gathered = new Gathered(client.follow({ after: 0, signal }))
      await until(() => gathered.seqs.length === 1)
      ending.abort()
      await gathered.done
      await until(() => isClosed)
    })
  })

  it("delivers a reset after the changes that came with it", async () => {
    const text = `${event(1)}${event(2)}${event(3)}event: reset\nid: 2\ndata: {"lastSeq":2}\n\n`
    const stream = streaming((_, response) =>
      response.writeHead(200, { "content-type": "text/event-stream" }).write(text)
    )
    await serving(stream, async baseUrl => {
      const client = makeClient({ baseUrl, token: "t", transports: ["serverSentEvents"] })
      const gathered = new Gathered(client.follow({ after: 0 }))
      await gathered.done
      expect(gathered.seqs).toEqual([1, 2, 3])
      expect(gathered.events.at(-1)).toEqual({ type: "reset", lastSeq: 2, epoch: "" })
    })
  })

  it("ends a follower where an event is over the limit", async () => {
    for (const line of ["data: x", `data: ${"x".repeat(10)}\n`]) {
      const stream = streaming((_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" })
        const write = () => {
          while (!response.destroyed && response.write(line.repeat(10_000)));
          response.once("drain", write)
        }
        write()
      })
      await serving(stream, async baseUrl => {
        const options = { baseUrl, token: "t", maxResponseBytes: 1_000_000 }
        const client = makeClient({ ...options, transports: ["serverSentEvents"] })
        const gathered = new Gathered(client.follow({ after: 0 }))
        await gathered.done
        expect(gathered.ended?.error).toBeInstanceOf(ResponseTooLarge)
      })
    }
  })

  it("is given up where an id is no position", async () => {
    const stream = streaming((_, response) =>
      response.writeHead(200, { "content-type": "text/event-stream" }).write(`id: x\n\n${event(1)}`)
    )
    await serving(stream, async baseUrl => {
      const { ending, onStatus, signal, statuses } = observing()
      const client = makeClient({ baseUrl, token: "t", transports: ["serverSentEvents"] })
      const gathered = new Gathered(client.follow({ after: 0, signal, onStatus }))
      await until(() => statuses.some(({ type }) => type === "disconnected"))
      ending.abort()
      await gathered.done
      expect(gathered.events).toEqual([])
    })
  })

  it.each([
    [200, "text/html", "<p>Sign in</p>\n\n"],
    [404, "text/html", "<p>Not found</p>"],
    [405, "application/json", '{"error":"Method not allowed"}'],
    [502, "text/html", "<p>Bad gateway</p>"]
  ])("is passed over where something on the way answers %s %s", async (status, type, body) => {
    const stream = streaming((_, response) => response.writeHead(status, { "content-type": type }).end(body))
    await serving(stream, async baseUrl => {
      const { ending, onStatus, signal, statuses } = observing()
      const client = makeClient({ baseUrl, token: "t", transports: ["serverSentEvents", "longPolling"] })
      const gathered = new Gathered(client.follow({ after: 0, signal, onStatus }))
      await until(() => statuses.length > 0 || gathered.ended !== undefined)
      ending.abort()
      await gathered.done
      expect(statuses).toEqual([{ type: "connected", transport: "longPolling" }])
    })
  })
})

describe("a request", () => {
  it("is not sent on to where an answer redirects it", async () => {
    const paths: Array<string | undefined> = []
    const other: RequestListener = (request, response) => {
      paths.push(request.url)
      response.end('{"key":"k","version":1}')
    }
    await serving(other, target =>
      serving(
        (_, response) => response.writeHead(307, { location: `${target}/stolen` }).end(),
        async baseUrl => {
          const client = makeClient({ baseUrl, token: "t" })
          const error = await client.set("n", "k", "secret").catch(error => error)
          expect(error).toBeInstanceOf(InvalidResponse)
          expect(error).toMatchObject({ status: 307 })
          expect(paths).toEqual([])
        }
      )
    )
  })

  it("may take as long as it likes", () =>
    withService(async ({ connect }) => {
      const timers = vi.spyOn(globalThis, "setTimeout")
      try {
        for (const timeoutMs of [Number.POSITIVE_INFINITY, 1e12]) {
          expect((await connect({ timeoutMs }).set("n", "k", 1)).value).toBe(1)
        }
        expect(timers.mock.calls.filter(([, ms = 0]) => ms >= 2 ** 31)).toEqual([])
      } finally {
        timers.mockRestore()
      }
    }))

  it("takes no more of an answer than its limit, whatever length the answer states", async () => {
    const lying: RequestListener = (request, response) => {
      const body = `{"items":["${"x".repeat(100_000)}"]}`
      const stated = request.url?.includes("stated") === true
      response.writeHead(request.url?.includes("refused") === true ? 503 : 200, {
        "kv-last-seq": "1",
        ...(stated && { "content-length": String(2 ** 40) })
      })
      const write = () => {
        while (!response.destroyed && response.write(body));
        response.once("drain", write)
      }
      write()
    }
    await serving(lying, async baseUrl => {
      const client = makeClient({ baseUrl, token: "t", maxResponseBytes: 1_000_000 })
      for (const key of ["stated", "streamed"]) {
        const error = await client.get("n", key).catch(error => error)
        expect(error).toBeInstanceOf(ResponseTooLarge)
        expect(error).toMatchObject({ limitBytes: 1_000_000, message: expect.stringContaining("1000000 bytes") })
      }
      expect(await client.get("n", "refused").catch(error => error)).toMatchObject({ status: 503 })
      const follower = new Gathered(client.follow({ after: 0 }))
      await follower.done
      expect(follower.ended?.error).toBeInstanceOf(ResponseTooLarge)
    })
  })

  it("trims the token; one that no header can have is refused and not repeated", () =>
    withService(async ({ connect }) => {
      for (const token of [`${keys.write}\n`, () => ` ${keys.write}\r\n`]) {
        expect((await connect({ token }).set("n", "k", 1)).value).toBe(1)
      }
      for (const bad of ["secret\nx-y: z", "secret\u0000", "sécret€"]) {
        for (const token of [bad, () => bad]) {
          const error = await connect({ token })
            .get("n", "k")
            .catch(error => error)
          expect(error).toBeInstanceOf(BadRequest)
          expect(`${error.message} ${error.cause}`).not.toContain("cret")
          const follower = new Gathered(connect({ token }).follow({ after: 0 }))
          await follower.done
          expect(follower.ended?.error).toBeInstanceOf(BadRequest)
        }
      }
    }))

  it("reads lists by a `fetch` whose answers have no address", () =>
    withService(async ({ connect }) => {
      const nameless: typeof fetch = async (...request) => {
        const { body, headers, status } = await fetch(...request)
        return new Response(body, { headers, status })
      }
      const client = connect({ fetch: nameless })
      await client.batch(["a", "b", "c"].map(key => ({ op: "set", namespace: "n", key, value: 1 })))
      const keysOf: Array<string> = []
      for await (const { items } of client.list("n", { limit: 1 })) keysOf.push(...items.map(({ key }) => key))
      expect(keysOf).toEqual(["a", "b", "c"])
    }))

  it("for an entry that is known answers that entry while it has not changed", () =>
    withService(async ({ client, proxy }) => {
      const known = await client.set("n", "k", "v".repeat(100_000))
      const before = proxy.sent
      expect(await client.get("n", "k", { known })).toBe(known)
      expect(proxy.sent - before).toBeLessThan(10_000)
      expect(await client.get("n", "k", { known, ifVersion: 1 })).toBe(known)
      await client.set("n", "k", 2)
      expect(await client.get("n", "k", { known })).toMatchObject({ value: 2, version: 2 })
      const stale = await client.get("n", "k", { known, ifVersion: 1 }).catch(error => error)
      expect(stale).toBeInstanceOf(PreconditionFailed)
      await client.delete("n", "k")
      expect(await client.get("n", "k", { known })).toBeUndefined()
    }))
})
