import { createServer } from "node:http"
import { createServer as createTcpServer } from "node:net"
import { describe, expect } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Option, Scope, TestClock } from "effect"
import { type WebSocket, WebSocketServer } from "ws"
import { breathe } from "../../../src/Simulator/Testing/Time.ts"
import * as PlatformSocket from "../../../src/Upstream/AgentPlatform/PlatformSocket.ts"
import { OversizedFrame } from "../../../src/Upstream/PlatformEvent.ts"
import { collected, socketsMade } from "../../Garbage.ts"
import { listening } from "../../Listening.ts"
import { test } from "../../Tests.ts"

const listen = (server: Parameters<typeof listening>[0]) =>
  Effect.map(listening(server), port => `ws://127.0.0.1:${port}`)

/** A server with a given behavior for each WebSocket. */
const webSockets = (onSocket: (socket: WebSocket) => void) =>
  Effect.gen(function* () {
    const server = createServer()
    const sockets = new WebSocketServer({ server })
    sockets.on("connection", onSocket)
    const url = yield* listen(server)
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const socket of sockets.clients) socket.terminate()
        sockets.close()
      })
    )
    return url
  })

const limits: PlatformSocket.Limits = { frameBytes: 1000, eventBytes: 900, waitingFrames: 10, waitingBytes: 1000 }

const { open } = PlatformSocket.make(limits)

describe("PlatformSocket", () => {
  test.scopedLive("returns the frames before the end, then the end", function* () {
    const url = yield* webSockets(socket => {
      for (let i = 0; i < 100; i++) socket.send(`${i}`)
      socket.close(1013, "too slow")
    })
    const socket = yield* open(url, {})
    for (let i = 0; i < 100; i++) expect(yield* socket.take).toBe(`${i}`)
    expect(yield* Effect.flip(socket.take)).toMatchObject({
      code: 1013,
      message: expect.stringContaining("too slow")
    })
    expect(socket.isClosed()).toBe(true)
    expect(yield* Effect.flip(socket.send("x"))).toMatchObject({ _tag: "SocketClosed" })
  })

  test.scopedLive("refuses a frame that is too long, and says that it is the frame", function* () {
    const url = yield* webSockets(socket => {
      socket.send("x".repeat(1001))
    })
    const socket = yield* open(url, {})
    expect(yield* Effect.flip(socket.take)).toMatchObject({ tooLarge: true })
  })

  test.scopedLive("is not kept in memory by its end, which its user may keep", function* () {
    const url = yield* webSockets(socket => socket.terminate())
    const made = yield* socketsMade("client")
    const ended = yield* Effect.scoped(
      Effect.gen(function* () {
        const { take } = yield* open(url, {})
        const sockets = made(Number(new URL(url).port))
        return { closed: yield* Effect.flip(take), sockets }
      })
    )
    expect(ended.sockets).toHaveLength(1)
    yield* collected(ended.sockets)
    expect(ended.closed).toMatchObject({ _tag: "SocketClosed", code: 1006 })
  })

  test.scopedLive("ends the socket with the most unfinished bytes if those of all are too many", function* () {
    let cuts = 0
    const peers: Array<WebSocket> = []
    const url = yield* webSockets(socket => peers.push(socket))
    const { open } = PlatformSocket.make(
      { frameBytes: 100_000, eventBytes: 100_000, waitingFrames: 10, waitingBytes: 100_000 },
      new PlatformSocket.ArrivingFrames(50_000, () => cuts++)
    )
    const honest = yield* open(url, {})
    const hostile = yield* open(url, {})
    peers[0]!.send("x".repeat(9999), { fin: false })
    // Each of its frames takes memory only until it is finished.
    for (let i = 0; i < 10; i++) {
      peers[1]!.send("x".repeat(30_000))
      expect(yield* hostile.take).toHaveLength(30_000)
    }
    peers[1]!.send("x".repeat(60_000), { fin: false })
    expect(yield* Effect.timeout(Effect.flip(hostile.take), "10 seconds")).toMatchObject({
      tooLarge: false,
      message: expect.stringContaining("unfinished frames take too much memory")
    })
    peers[0]!.send("x", { fin: true })
    expect(yield* honest.take).toHaveLength(10_000)
    expect(cuts).toBe(1)
  })

  test.scopedLive("does not count pings as received while a message is not finished", function* () {
    const peers: Array<WebSocket> = []
    const url = yield* webSockets(socket => peers.push(socket))
    const socket = yield* open(url, {})
    const peer = peers[0]!
    peer.ping()
    peer.send("1")
    expect(yield* socket.take).toBe("1")
    expect(socket.received()).toBe(2)
    peer.send("2", { fin: false })
    yield* socket.acknowledged
    const received = socket.received()
    for (let count = 0; count < 3; count++) peer.ping()
    // Its pong comes after the pings.
    yield* socket.acknowledged
    expect(socket.received()).toBe(received)
    peer.send("3")
    expect(yield* socket.take).toBe("23")
    expect(socket.received()).toBe(received + 1)
  })

  test.scopedLive("does not decode a frame that is too long for an event, and continues", function* () {
    const url = yield* webSockets(socket => {
      for (const length of [900, 901, 1]) socket.send("x".repeat(length))
    })
    const socket = yield* open(url, {})
    expect(yield* socket.take).toBe("x".repeat(900))
    expect(yield* socket.take).toEqual(new OversizedFrame("has 901 bytes; the limit is 900"))
    expect(yield* socket.take).toBe("x")
  })

  test.scopedLive("reports the status of a refused handshake", function* () {
    const server = createServer()
    server.on("upgrade", (_, socket) =>
      socket.end("HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    )
    const url = yield* listen(server)
    expect(yield* Effect.flip(open(url, {}))).toMatchObject({ statusCode: 503, retryAfterMillis: 7000 })
  })

  test.scopedLive("fails if no server listens, and if the server does not speak HTTP", function* () {
    const closed = yield* Effect.scoped(listen(createServer()))
    expect(yield* Effect.flip(open(closed, {}))).toMatchObject({ message: expect.stringContaining("ECONNREFUSED") })
    const url = yield* listen(
      createTcpServer(socket =>
        socket
          .on("error", () => undefined)
          .resume()
          .end("hello\r\n\r\n")
      )
    )
    expect(yield* Effect.flip(open(url, {}))).toMatchObject({ _tag: "UpstreamFailure", reason: "connection" })
  })

  test.scopedLive("a handshake that is given up leaves no connection behind", function* () {
    const [connected, ended] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    const url = yield* listen(
      createTcpServer(socket => {
        Effect.runSync(Deferred.succeed(connected, undefined))
        socket.on("error", () => undefined)
        socket.on("close", () => Effect.runSync(Deferred.succeed(ended, undefined)))
        socket.resume()
      })
    )
    const fiber = yield* Effect.fork(open(url, {}))
    yield* Deferred.await(connected)
    yield* Fiber.interrupt(fiber)
    yield* Deferred.await(ended)
  })

  test.scopedLive("hears signs of life, and closes with its scope", function* () {
    const [ponged, code] = [yield* Deferred.make<void>(), yield* Deferred.make<number>()]
    const url = yield* webSockets(socket => {
      socket.on("ping", () => socket.send("pinged", () => Effect.runSync(Deferred.succeed(ponged, undefined))))
      socket.on("close", code_ => Effect.runSync(Deferred.succeed(code, code_)))
    })
    yield* Effect.scoped(
      Effect.gen(function* () {
        const socket = yield* open(url, {})
        expect(socket.received()).toBe(0)
        yield* socket.ping
        yield* Deferred.await(ponged)
        expect(yield* socket.take).toBe("pinged")
        expect(socket.received()).toBeGreaterThan(0)
      })
    )
    expect(yield* Deferred.await(code)).toBe(1001)
  })

  test.scoped("waits a second at most for the answer to its close frame", function* () {
    const deaf = yield* Deferred.make<void>()
    const url = yield* webSockets(socket => {
      // It reads nothing any more, the close frame neither.
      socket.pause()
      Effect.runSync(Deferred.succeed(deaf, undefined))
    })
    const scope = yield* Scope.make()
    const socket = yield* Scope.extend(open(url, {}), scope)
    yield* Deferred.await(deaf)
    const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
    let seconds = 0
    while (Option.isNone(yield* Fiber.poll(closing)) && seconds < 100) {
      yield* breathe
      yield* TestClock.adjust("1 second")
      seconds++
    }
    expect(seconds).toBeLessThan(100)
    expect(socket.isClosed()).toBe(true)
  })
})
