/** Hostile or broken clients, and honest clients that must not be affected. */
import { connect as connectRaw, type Socket as NetSocket } from "node:net"
import { describe, expect } from "@effect/vitest"
import { Effect, Fiber, Layer, type Scope, TestClock } from "effect"
import { frameBytes, messagesPerSecond, requestsInFlight, subscriptions } from "../../../src/Gateway/Protocol/Limits.ts"
import * as EventsInMemory from "../../../src/Gateway/SessionEvents/Memory.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { isDense, pass } from "../Fixture.ts"
import { type Client, codeOf, completeTurn, connect, createSession, live, timed, until } from "./Fixture.ts"
import { bearer, sign, withSecret } from "./Tenants.ts"

/** More history than these tests make. */
const ample = Layer.merge(Memory.layer, EventsInMemory.layer({ events: 1_000_000, bytes: 1024 ** 3 }))

const narrow = { socket: { unsentBytes: 64 * 1024 }, stored: ample }
const narrower = { ...narrow, socket: { unsentBytes: 16 * 1024 } }

/** An honest client: it takes turns, and checks at the end that it received each event once, in order. */
const honest = (url: string) =>
  Effect.gen(function* () {
    const client = yield* connect(url)
    const sessionId = yield* createSession(client)
    yield* client.get("subscribed", { type: "subscribe", sessionId })
    const turn = completeTurn(client, sessionId, "an honest question")
    const check = Effect.gen(function* () {
      yield* turn
      isDense(client.events(sessionId).map(({ seq }) => seq))
      expect(client.isOpen()).toBe(true)
    })
    yield* turn
    return { client, sessionId, check }
  })

/** A WebSocket by hand, which can do what `ws` would not. */
const raw = (port: number): Effect.Effect<NetSocket, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.async<NetSocket>(resume => {
      const socket = connectRaw(port, "127.0.0.1", () =>
        socket.write(
          "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
      )
      socket.on("error", () => {})
      socket.once("data", () => resume(Effect.succeed(socket)))
    }),
    socket => Effect.sync(() => socket.destroy())
  )

/** Several MiB in few events, so that the buffers of the system are full. Returns the last turn. */
const sayMuch = (client: Client, sessionId: string) =>
  Effect.map(
    Effect.replicateEffect(completeTurn(client, sessionId, "a long message ".repeat(25_000)), 10),
    turns => turns.at(-1)!
  )

const isClosed = (client: Client) => Effect.map(client.closed, ({ code }) => code)

/** Waits until the server's close frame has arrived. */
const untilSentAway = (client: Client) =>
  Effect.repeat(
    Effect.promise(() => new Promise<void>(resolve => setTimeout(resolve, 5))),
    { until: () => client.socket.readyState !== client.socket.OPEN }
  )

describe("Hostile clients", () => {
  live("invalid frames are each answered, and the connection stays open", function* ({ url }) {
    const { check } = yield* honest(url)
    const client = yield* connect(url)
    const rubbish = ["", "{", "null", "{}", '{"type":"ping"}', "[".repeat(100_000), "\u0000", "\ud800"]
    for (const [index, frame] of rubbish.entries()) {
      yield* client.send(frame)
      yield* client.until(() => client.frames.length === index + 1)
      expect(codeOf(client.frames[index] as never), frame.slice(0, 40)).toBe("bad_request")
    }
    expect(codeOf(yield* client.ask({ type: "ping" }))).toBe("pong")
    yield* check
  })

  live("binary, oversized and invalid frames close the connection", function* ({ port, url }) {
    const { check } = yield* honest(url)

    const binary = yield* connect(url)
    yield* binary.send(Buffer.from('{"type":"ping","id":"a"}'))
    expect(yield* isClosed(binary)).toBe(4502)

    const exact = yield* connect(url)
    const padding = "x".repeat(frameBytes - '{"type":"ping","id":"a","pad":""}'.length)
    yield* exact.send(`{"type":"ping","id":"a","pad":"${padding}"}`)
    yield* exact.until(frame => frame.type === "pong")
    const large = yield* connect(url)
    yield* large.send(`{"type":"ping","id":"a","pad":"${padding}x"}`)
    expect(yield* isClosed(large)).toBe(1009)

    for (const [bytes, code, reason] of [
      [Buffer.from([0x8f, 0x80, 0, 0, 0, 0]), 1002, "protocol_error"],
      [Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0xff, 0xfe]), 1007, "invalid_utf8"],
      [Buffer.from([0x81, 0xff, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0]), 1009, "message_too_big"]
    ] as const) {
      const breaking = yield* raw(port)
      let received = Buffer.alloc(0)
      breaking.on("data", chunk => {
        received = Buffer.concat([received, chunk])
      })
      breaking.write(bytes)
      yield* until(() => received.length >= 4 + reason.length)
      expect([received[0], received.readUInt16BE(2), received.subarray(4).toString()]).toEqual([0x88, code, reason])
      breaking.destroy()
    }

    const unmasked = yield* raw(port)
    unmasked.write(Buffer.from([0x81, 0x02, 0x7b, 0x7d]))
    yield* until(() => unmasked.destroyed || unmasked.readableEnded)
    yield* check
  })

  // All of it within one second of the test's clock, however long it takes.
  timed("a flood of messages is answered with warnings, and then closed", function* ({ url }) {
    const { check } = yield* honest(url)
    const client = yield* connect(url)
    for (let i = 0; i < 5 * messagesPerSecond; i++) client.socket.send(`{"type":"ping","id":"${i}"}`)
    yield* untilSentAway(client)
    yield* TestClock.adjust("5 seconds")
    expect(yield* isClosed(client)).toBe(4001)
    const answers = client.frames.map(frame => codeOf(frame as never))
    expect(answers.filter(code => code === "pong").length).toBeLessThanOrEqual(2 * messagesPerSecond)
    expect(answers).toContain("rate_limited")
    yield* check
  })

  timed("waiting requests are limited", function* ({ simulator, url }) {
    const { check } = yield* honest(url)
    const client = yield* connect(url)
    const sessionId = yield* createSession(client)
    yield* simulator.inject({ operation: "create", times: 1, fault: { kind: "latency", millis: 300 } })
    const asking = yield* Effect.fork(
      Effect.forEach(
        Array.from({ length: requestsInFlight + 5 }, (_, i) => i),
        i => Effect.map(client.ask({ type: "start_session", sessionId }, `s${i}`), codeOf),
        { concurrency: "unbounded" }
      )
    )
    // Time does not advance, so the activation waits until those above the limit were refused.
    yield* client.until(() => client.frames.filter(frame => codeOf(frame as never) === "rate_limited").length === 5)
    yield* Effect.repeat(pass("1 second", "1 second"), { until: () => asking.unsafePoll() !== null })
    const asked = yield* Fiber.join(asking)
    expect(asked.filter(code => code === "session")).toHaveLength(requestsInFlight)
    expect(asked.filter(code => code === "rate_limited")).toHaveLength(5)
    expect(codeOf(yield* client.ask({ type: "get_session", sessionId }))).toBe("session")
    yield* check
  })

  timed("subscriptions are limited", function* ({ url }) {
    const { client: own, check } = yield* honest(url)
    /** Asks no faster than is allowed. */
    const calmly = <A, B>(items: ReadonlyArray<A>, f: (item: A) => Effect.Effect<B>) =>
      Effect.forEach(items, (item, index) =>
        Effect.zipRight(index % 50 === 0 ? TestClock.adjust("1 second") : Effect.void, f(item))
      )
    const ids = yield* calmly(
      Array.from({ length: subscriptions + 2 }, (_, i) => i),
      () => createSession(own)
    )
    const client = yield* connect(url)
    const codes = yield* calmly(ids, sessionId => Effect.map(client.ask({ type: "subscribe", sessionId }), codeOf))
    expect(codes).toEqual([
      ...Array.from({ length: subscriptions }, () => "subscribed"),
      "rate_limited",
      "rate_limited"
    ])
    yield* TestClock.adjust("1 second")
    yield* client.get("unsubscribed", { type: "unsubscribe", sessionId: ids[0]! })
    yield* client.get("subscribed", { type: "subscribe", sessionId: ids.at(-1)! })
    yield* check
  })

  timed(
    "a client that does not read is closed as slow, not as idle, after all earlier frames",
    narrow,
    function* ({ url }) {
      const { client, sessionId } = yield* honest(url)
      const silent = yield* connect(url)
      yield* silent.get("subscribed", { type: "subscribe", sessionId })
      silent.socket.pause()
      yield* sayMuch(client, sessionId)
      // By now, pings would be unanswered for longer than allowed.
      yield* pass("29 seconds", "1 second")
      expect(silent.isOpen()).toBe(true)
      // The close frame follows the unread data, for which the client gets time too.
      yield* pass("23 seconds", "1 second")
      silent.socket.resume()
      expect(yield* silent.closed).toEqual({ code: 4008, reason: "slow_consumer" })
      const seqs = silent.events(sessionId).map(({ seq }) => seq)
      expect(seqs).toEqual(seqs.map((_, index) => index + 1))
      expect(seqs.length).toBeLessThan(client.events(sessionId).length)
    }
  )

  timed("a slow client that catches up misses nothing", narrower, function* ({ url }) {
    const { client, sessionId } = yield* honest(url)
    const slow = yield* connect(url)
    yield* slow.get("subscribed", { type: "subscribe", sessionId })
    slow.socket.pause()
    const turnId = yield* sayMuch(client, sessionId)
    slow.socket.resume()
    yield* slow.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === turnId)
    expect(slow.isOpen()).toBe(true)
    const seqs = slow.events(sessionId).map(({ seq }) => seq)
    expect(seqs).toEqual(seqs.map((_, index) => seqs[0]! + index))
    expect(slow.events(sessionId).at(-1)).toEqual(client.events(sessionId).at(-1))
  })

  timed("a dead client is noticed by missing pongs, one that answers pings stays", function* ({ port, socket, url }) {
    const { client } = yield* honest(url)
    yield* raw(port)
    yield* until(() => socket.connections() === 2)
    yield* pass("24 seconds", "1 second")
    expect(socket.connections()).toBe(2)
    // The ping at 25 s has no answer; after 10 s more the gateway gives up, and 5 s later it cuts the connection.
    yield* pass("9 seconds", "1 second")
    expect(socket.connections()).toBe(2)
    yield* pass("10 seconds", "1 second")
    yield* until(() => socket.connections() === 1)
    yield* pass("2 minutes", "1 second")
    expect(client.isOpen()).toBe(true)
  })

  timed("a connection is closed when its credential expires", { authentication: withSecret }, function* ({ url }) {
    const connectUntil = (exp: number) =>
      Effect.flatMap(sign({ tenant: "acme", sub: "alice", exp }), token => connect(url, bearer(token)))
    const short = yield* connectUntil(60)
    const long = yield* connectUntil(3600)
    yield* pass("58 seconds", "1 second")
    expect(short.isOpen()).toBe(true)
    yield* pass("3 seconds", "1 second")
    expect(yield* short.closed).toEqual({ code: 4501, reason: "token_expired" })
    expect(codeOf(yield* long.ask({ type: "ping" }))).toBe("pong")
  })

  timed("at shutdown, clients are closed over two seconds", function* ({ draining, socket, url }) {
    const clients = yield* Effect.forEach(Array.from({ length: 40 }), () => connect(url))
    yield* draining.begin
    yield* pass("1 second", "100 millis")
    expect(socket.connections()).toBeGreaterThan(0)
    expect(socket.connections()).toBeLessThan(40)
    yield* pass("1100 millis", "100 millis")
    for (const client of clients) expect(yield* client.closed).toEqual({ code: 1001, reason: "going_away" })
  })
})
