/** Pages, polls and streams of events: their headers, and how they end. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { Event } from "../../../src/Gateway/Protocol.ts"
import { pass } from "../../../src/Simulator/Testing/Time.ts"
import { given } from "../../Given.ts"
import { live, makeStarted, timed } from "../Socket/Fixture.ts"
import { claims, sign, withSecret } from "../Socket/Tenants.ts"
import { ask, controlsOf, create, eventsUntil, open, outcome, post } from "./Fixture.ts"

const secured = given(it.scoped, (options: { readonly connections?: number } = {}) =>
  makeStarted({ authentication: withSecret, socket: options })
)

const as = (tenant: string, seconds = 3600) =>
  Effect.map(sign({ ...claims, tenant, exp: seconds }), token => ({ authorization: `Bearer ${token}` }))

const isLive = (text: string) => controlsOf(text).some(({ upToDate }) => upToDate === true)

describe("Pages of events", () => {
  live("have the headers of the protocol, and are not sent again while they are the same", function* ({ base }) {
    const { id } = yield* create(base)
    const url = `${base}/${id}/events`
    const empty = yield* ask(url)
    expect([empty.status, empty.text, empty.headers.get("stream-up-to-date")]).toEqual([200, "[]", "true"])
    const tail = empty.headers.get("stream-next-offset")!
    const head = yield* ask(url, { method: "HEAD" })
    expect([head.status, head.text, head.headers.get("stream-next-offset")]).toEqual([200, "", tail])
    expect(head.headers.get("content-type")).toBe("application/json")
    expect(head.headers.get("cache-control")).toBe("no-store")
    yield* post(`${base}/${id}/start`)
    yield* post(`${base}/${id}/stop`)
    const page = yield* ask(`${url}?offset=${tail}`)
    expect(page.events.map(({ seq }) => seq)).toEqual(page.events.map((_, index) => index + 1))
    const etag = page.headers.get("etag")!
    const same = yield* ask(`${url}?offset=${tail}`, { headers: { "if-none-match": etag } })
    expect([same.status, same.text]).toEqual([304, ""])
    expect(same.headers.get("stream-next-offset")).toBe(page.headers.get("stream-next-offset"))
    // A proxy that compresses makes tags weak, and a cache may have several.
    const several = { "if-none-match": `"other", W/${etag}` }
    expect((yield* ask(`${url}?offset=${tail}`, { headers: several })).status).toBe(304)
    const conversation = `${base}/${id}/conversation`
    const weak = { "if-none-match": `W/${(yield* ask(conversation)).headers.get("etag")}` }
    expect((yield* ask(conversation, { headers: weak })).status).toBe(304)
    const other = yield* ask(`${url}?offset=-1`, { headers: { "if-none-match": '"other"' } })
    expect([other.status, other.headers.get("etag")]).toEqual([200, etag])
    const now = yield* ask(`${url}?offset=now`)
    expect([now.text, now.headers.get("etag"), now.headers.get("cache-control")]).toEqual(["[]", null, "no-store"])
    expect((yield* ask(`${url}?live=sse`)).status).toBe(400)
    expect(outcome(yield* ask(`${url}?offset=-1&live=never`))).toEqual({
      status: 400,
      error: "Invalid request: live: must be long-poll or sse"
    })
  })
})

describe("Polls", () => {
  timed("wait for 25 seconds, and say where they are", function* ({ base }) {
    const { id } = yield* create(base)
    const url = `${base}/${id}/events?offset=now&live=long-poll`
    const polled = yield* Effect.fork(ask(url))
    yield* pass("24 seconds", "6 seconds")
    expect(yield* Fiber.poll(polled)).toMatchObject({ _tag: "None" })
    yield* pass("2 seconds", "2 seconds")
    const { headers, status, text } = yield* Fiber.join(polled)
    expect([status, text, headers.get("stream-up-to-date")]).toEqual([204, "", "true"])
    expect(headers.get("stream-next-offset")).toMatch(/^0{16}_/)
    const cursor = headers.get("stream-cursor")!
    const next = yield* Effect.fork(ask(`${url}&cursor=${cursor}`))
    yield* pass("1 second", "1 second")
    yield* post(`${base}/${id}/start`)
    const answered = yield* Fiber.join(next)
    expect([answered.status, answered.events[0]?.seq]).toEqual([200, 1])
    expect(Number(answered.headers.get("stream-cursor"))).toBeGreaterThan(Number(cursor))
  })

  secured("end at the expiry of the token, and the next one is refused", function* ({ base }) {
    const headers = yield* as("acme", 10)
    const { id } = yield* create(base, {}, headers)
    const url = `${base}/${id}/events?offset=now&live=long-poll`
    const polled = yield* Effect.fork(ask(url, { headers }))
    yield* pass("11 seconds", "1 second")
    expect((yield* Fiber.join(polled)).status).toBe(204)
    const refused = yield* ask(url, { headers })
    expect(outcome(refused)).toEqual({ status: 401, error: "The token has expired" })
    expect(refused.headers.get("www-authenticate")).toBe("Bearer")
  })

  timed("end as the service drains", function* ({ base, draining }) {
    const { id } = yield* create(base)
    const polled = yield* Effect.fork(ask(`${base}/${id}/events?offset=now&live=long-poll`))
    yield* pass("1 second", "1 second")
    yield* draining.begin
    expect((yield* Fiber.join(polled)).status).toBe(204)
  })
})

describe("Streams", () => {
  timed("begin with a control event, are kept alive, and end whole after about a minute", function* ({ base }) {
    const { id } = yield* create(base)
    const stream = yield* open(`${base}/${id}/events?offset=-1&live=sse`)
    expect([stream.status, stream.headers["content-type"], stream.headers["cache-control"]]).toEqual([
      200,
      "text/event-stream",
      "no-store"
    ])
    yield* stream.until(isLive)
    yield* pass("18 seconds", "1 second")
    yield* stream.until(text => text.endsWith(": ping\n\n"))
    yield* pass("50 seconds", "1 second")
    expect(yield* stream.isWhole).toBe(true)
    const controls = controlsOf(stream.text())
    expect(controls).toHaveLength(2)
    expect(controls[1]).toMatchObject({ streamNextOffset: controls[0]!.streamNextOffset, upToDate: true })
    expect(controls[1]).not.toHaveProperty("streamClosed")
  })

  secured("end whole at the expiry of the token", function* ({ base }) {
    const headers = yield* as("acme", 20)
    const { id } = yield* create(base, {}, headers)
    const stream = yield* open(`${base}/${id}/events?offset=-1&live=sse`, headers)
    yield* stream.until(isLive)
    yield* pass("21 seconds", "1 second")
    expect(yield* stream.isWhole).toBe(true)
    expect((yield* ask(`${base}/${id}`, { headers })).status).toBe(401)
  })

  timed("end whole as the service drains", function* ({ base, draining }) {
    const { id } = yield* create(base)
    const stream = yield* open(`${base}/${id}/events?offset=-1&live=sse`)
    yield* stream.until(isLive)
    yield* draining.begin
    yield* pass("4 seconds", "1 second")
    expect(yield* stream.isWhole).toBe(true)
    expect(outcome(yield* ask(`${base}/${id}/events?offset=-1&live=sse`))).toEqual({
      status: 503,
      error: "The service is shutting down"
    })
  })

  timed(
    "of a client that reads nothing end after 30 seconds, whole, and bound its memory",
    { socket: { unsentBytes: 64 * 1024 } },
    function* ({ base, socket: _ }) {
      const { id } = yield* create(base)
      const stream = yield* open(`${base}/${id}/events?offset=-1&live=sse`)
      yield* stream.until(isLive)
      stream.pause()
      const ends = new Set<string>()
      let events: ReadonlyArray<Event> = []
      // Several MiB, so that the buffers of the system are full.
      for (const turn of [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) {
        yield* post(`${base}/${id}/messages`, { content: "a long message ".repeat(25_000) })
        events = yield* eventsUntil(base, id, event => {
          if (event.type === "turn_completed") ends.add(event.turnId)
          return ends.size === turn
        })
      }
      yield* pass("34 seconds", "1 second")
      stream.resume()
      expect(yield* stream.isWhole).toBe(true)
      const received = [...stream.text().matchAll(/"seq":(\d+),/g)].map(([, seq]) => Number(seq))
      expect(received.length).toBeLessThan(events.length)
      expect(received).toEqual(received.map((_, index) => index + 1))
      const last = controlsOf(stream.text()).at(-1)!
      expect(last.streamNextOffset).toMatch(new RegExp(`^${String(received.length).padStart(16, "0")}_`))
      expect(last.upToDate).toBeUndefined()
    }
  )

  timed("of a session that is deleted say so, also when it is deleted before they begin", function* ({ base }) {
    const { id } = yield* create(base)
    const url = `${base}/${id}/events`
    const stream = yield* open(`${url}?offset=-1&live=sse`)
    yield* stream.until(isLive)
    const offset = String(controlsOf(stream.text())[0]!.streamNextOffset)
    yield* ask(`${base}/${id}`, { method: "DELETE" })
    expect(yield* stream.isWhole).toBe(true)
    expect(controlsOf(stream.text()).at(-1)).toMatchObject({ streamClosed: true, upToDate: true })
    const again = yield* open(`${url}?offset=${offset}&live=sse`)
    expect(yield* again.isWhole).toBe(true)
    expect(controlsOf(again.text())).toEqual([{ streamNextOffset: offset, upToDate: true, streamClosed: true }])
    const page = yield* ask(`${url}?offset=${offset}`)
    expect([page.status, page.text, page.headers.get("stream-closed")]).toEqual([200, "[]", "true"])
    const poll = yield* ask(`${url}?offset=${offset}&live=long-poll`)
    expect([poll.status, poll.headers.get("stream-closed")]).toEqual([204, "true"])
    // After a while, and for others, it is unknown.
    expect((yield* ask(url)).status).toBe(404)
    yield* pass("32 seconds", "1 second")
    expect((yield* ask(`${url}?offset=${offset}`)).status).toBe(404)
  })
})

describe("What tenants share", () => {
  secured(
    "the connections: a full pool is 503, and the newest of the largest tenant gives way",
    { connections: 2 },
    function* ({ base }) {
      const [acme, evil] = [yield* as("acme"), yield* as("evil")]
      const [mine, theirs] = [yield* create(base, {}, acme), yield* create(base, {}, evil)]
      const streamOf = (id: string) => `${base}/${id}/events?offset=-1&live=sse`
      const first = yield* open(streamOf(theirs.id), evil)
      yield* first.until(isLive)
      const second = yield* open(streamOf(theirs.id), evil)
      yield* second.until(isLive)
      const refused = yield* ask(streamOf(theirs.id), { headers: evil })
      expect(outcome(refused)).toEqual({ status: 503, error: "There are 2 connections; the limit is 2" })
      expect(refused.headers.get("retry-after")).toBe("1")
      expect((yield* ask(`${base}/${theirs.id}/events?offset=now&live=long-poll`, { headers: evil })).status).toBe(503)
      const stream = yield* open(streamOf(mine.id), acme)
      yield* stream.until(isLive)
      expect(yield* second.isWhole).toBe(true)
      const poll = yield* ask(`${base}/${mine.id}/events?offset=now&live=long-poll`, { headers: acme })
      expect(poll.status).toBe(503)
    }
  )

  secured("nothing of their sessions", function* ({ base }) {
    const [acme, evil] = [yield* as("acme"), yield* as("evil")]
    const id = `${Math.trunc(0).toString(16).padStart(12, "0")}${"a".repeat(24)}`
    const mine = yield* post(base, { id, agentType: "echo", title: "mine" }, acme)
    expect(mine.status).toBe(201)
    const url = `${base}/${id}`
    const [get, remove, send] = yield* Effect.all([
      ask(url, { headers: evil }),
      ask(url, { method: "DELETE", headers: evil }),
      post(`${url}/messages`, { content: "hello" }, evil)
    ])
    expect([get.status, remove.status, send.status]).toEqual([404, 404, 404])
    for (const query of ["", "?offset=now&live=long-poll", "?offset=-1&live=sse"]) {
      expect((yield* ask(`${url}/events${query}`, { headers: evil })).status).toBe(404)
    }
    expect((yield* ask(`${url}/conversation`, { headers: evil })).status).toBe(404)
    const theirs = yield* post(base, { id, agentType: "echo", title: "theirs" }, evil)
    expect([theirs.status, theirs.json.session.title]).toEqual([201, "theirs"])
    expect((yield* ask(url, { headers: acme })).json.session.title).toBe("mine")
    expect((yield* ask(base, { headers: evil })).json.sessions).toHaveLength(1)
  })
})
