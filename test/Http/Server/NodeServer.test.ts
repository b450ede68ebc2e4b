import Dns from "node:dns"
import { once } from "node:events"
import * as Http from "node:http"
import * as Net from "node:net"
import { PassThrough } from "node:stream"
import * as HttpRouter from "@effect/platform/HttpRouter"
import * as HttpServer from "@effect/platform/HttpServer"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import { assert, describe, it } from "@effect/vitest"
import { Cause, Chunk, Context, Deferred, Effect, Exit, Fiber, Layer, Scope, TestClock } from "effect"
import { timing } from "../../../src/Http/ConnectionLimits.ts"
import * as DrainingSignal from "../../../src/Http/DrainingSignal.ts"
import * as PlatformServer from "../../../src/Http/Platform/PlatformServer.ts"
import { Gate } from "../../../src/Http/Server/Gate.ts"
import * as NodeServer from "../../../src/Http/Server/NodeServer.ts"
import { handshakeOf } from "../../../src/Http/WebSocket/Handshake.ts"
import { test } from "../../Tests.ts"
import * as Fixture from "./Fixture.ts"
import { get } from "./Fixture.ts"

const options: NodeServer.Options = { host: "127.0.0.1", port: 0 }

/** A server that the test stops. */
const start = (app: HttpRouter.HttpRouter | undefined, given: Partial<NodeServer.Options> = {}) =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    yield* Effect.addFinalizer(exit => Scope.close(scope, exit))
    const server = PlatformServer.layer({ ...options, ...given }).pipe(Layer.provideMerge(DrainingSignal.layer))
    const layer =
      app === undefined
        ? server
        : HttpServer.serve(app as HttpRouter.HttpRouter<never, never>).pipe(Layer.provideMerge(server))
    const context = yield* Layer.buildWithScope(layer, scope)
    const { address } = Context.get(context, HttpServer.HttpServer)
    const port = address._tag === "TcpAddress" ? address.port : 0
    return { port, draining: Context.get(context, DrainingSignal.DrainingSignal), stop: Scope.close(scope, Exit.void) }
  })

/** A connection, and the bytes received until it was closed. */
const connect = (port: number) =>
  Effect.acquireRelease(
    Effect.promise(() => Fixture.connect(port)),
    ({ socket }) => Effect.sync(() => socket.destroy())
  ).pipe(Effect.map(({ closed, received, socket }) => ({ socket, received: closed.then(received) })))

/** Sends bytes on a new connection and waits for its end. */
const exchange = (port: number, bytes: string) =>
  Effect.gen(function* () {
    const { socket, received } = yield* connect(port)
    socket.write(bytes)
    return yield* Effect.promise(() => received)
  })

/** The next bytes on a connection. */
const next = (socket: Net.Socket) =>
  Effect.async<string>(resume => {
    socket.once("data", chunk => resume(Effect.succeed(chunk.toString("latin1"))))
  })

const parts = (answer: string) => {
  const [head = "", body = ""] = answer.split("\r\n\r\n")
  return { status: Number(head.split(" ")[1]), head: head.toLowerCase(), body }
}

const assertError = (answer: string, status: number) => {
  const { status: actual, head, body } = parts(answer)
  assert.strictEqual(actual, status, answer)
  assert.include(head, "content-type: application/json")
  const json = JSON.parse(body)
  assert.deepStrictEqual(Object.keys(json), ["error"])
  assert.isNotEmpty(json.error)
}

const echo = HttpRouter.empty.pipe(
  HttpRouter.get("/", HttpServerResponse.text("here")),
  HttpRouter.put(
    "/echo",
    Effect.flatMap(HttpServerRequest.HttpServerRequest, request =>
      Effect.map(Effect.orDie(request.text), body => HttpServerResponse.unsafeJson({ body }))
    )
  )
)

/** A route that signals when it is entered and answers when the test permits it. */
const gated = Effect.gen(function* () {
  const entered = yield* Deferred.make<void>()
  const leave = yield* Deferred.make<void>()
  const router = echo.pipe(
    HttpRouter.get(
      "/slow",
      Effect.as(
        Effect.zipRight(Deferred.succeed(entered, undefined), Deferred.await(leave)),
        HttpServerResponse.text("slow but whole")
      )
    )
  )
  return { router, entered: Deferred.await(entered), leave: Deferred.succeed(leave, undefined) }
})

describe("NodeServer", () => {
  test.scoped("ends after the requests in flight, and closes their connections", function* () {
    const { router, entered, leave } = yield* gated
    const { port, draining, stop } = yield* start(router)
    const silent = yield* connect(port)
    const idle = yield* connect(port)
    idle.socket.write(get("/"))
    yield* next(idle.socket)
    const busy = yield* connect(port)
    busy.socket.write(get("/slow"))
    yield* entered
    const stopping = yield* Effect.fork(stop)
    yield* draining.started
    assert.strictEqual(yield* Effect.promise(() => silent.received), "")
    yield* Effect.promise(() => idle.received)
    const refused = yield* Effect.promise(
      () =>
        new Promise<string>(resolve => Net.connect({ port, host: "127.0.0.1" }).once("error", e => resolve(e.message)))
    )
    assert.include(refused, "ECONNREFUSED")
    assert.isTrue(yield* Effect.map(Fiber.poll(stopping), poll => poll._tag === "None"))
    yield* leave
    const answer = parts(yield* Effect.promise(() => busy.received))
    assert.strictEqual(answer.status, 200)
    assert.include(answer.head, "connection: close")
    assert.strictEqual(answer.body, "slow but whole")
    yield* Fiber.join(stopping)
  })

  test.scoped("answers a late request with 503", function* () {
    const { router, entered, leave } = yield* gated
    const { port, draining, stop } = yield* start(router)
    const busy = yield* connect(port)
    busy.socket.write(get("/slow"))
    yield* entered
    // Half a request: the connection is not idle, and the request is completed later.
    const late = yield* connect(port)
    late.socket.write("GET / HTTP/1.1\r\n")
    yield* exchange(port, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    const stopping = yield* Effect.fork(stop)
    yield* draining.started
    late.socket.write("host: x\r\n\r\n")
    const answer = yield* Effect.promise(() => late.received)
    assertError(answer, 503)
    assert.include(parts(answer).head, "retry-after: 1")
    yield* leave
    yield* Fiber.join(stopping)
  })

  test.scoped(
    "ends the connection of an answer that has started when it ends, not when the connection is idle for long",
    function* () {
      const gate = new Gate(timing)
      const requested = Effect.async<[Http.IncomingMessage, Http.ServerResponse]>(resume => {
        gate.once("request", (...exchange) => resume(Effect.succeed(exchange)))
      })
      gate.open()
      yield* Effect.acquireRelease(
        Effect.promise(() => once(gate.listen(0, options.host), "listening")),
        () => Effect.sync(() => gate.cut())
      )
      const { socket } = yield* connect((gate.address() as Net.AddressInfo).port)
      socket.write(get("/"))
      const [request, response] = yield* requested
      response.write("first,")
      gate.drain()
      const finished = once(response, "finish")
      response.end("last")
      yield* Effect.promise(() => finished)
      assert.isTrue(request.socket.writableEnded)
    }
  )

  test.scoped("cuts requests that exceed the grace period", function* () {
    const { router, entered } = yield* gated
    const { port, stop } = yield* start(router)
    const busy = yield* connect(port)
    busy.socket.write(get("/slow"))
    yield* entered
    const stopping = yield* Effect.fork(stop)
    yield* Effect.repeat(Effect.yieldNow(), {
      until: () => Effect.map(TestClock.sleeps(), Chunk.isNonEmpty)
    })
    yield* TestClock.adjust("9999 millis")
    assert.isFalse(busy.socket.destroyed)
    yield* TestClock.adjust("1 millis")
    assert.strictEqual(yield* Effect.promise(() => busy.received), "")
    yield* Fiber.join(stopping)
  })

  test.scoped("answers 503 until there is an application", function* () {
    const { port } = yield* start(undefined)
    assertError(yield* exchange(port, get("/")), 503)
    const upgrade = "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    assertError(yield* exchange(port, upgrade), 503)
  })

  test.scoped("answers a malformed or unfinished request with a JSON error", function* () {
    const { port } = yield* start(echo)
    const hurried = yield* start(echo, { timing: { ...timing, headers: 100, request: 200, check: 50 } })
    for (const [status, bytes] of [
      [400, "what is this?\r\n\r\n"],
      [400, "GET / HTTP/1.1\r\n\r\n"],
      [400, "GET / HTTP/1.1\r\nhost: x\r\ncontent-length: a\r\n\r\n"],
      [431, `GET / HTTP/1.1\r\nhost: x\r\nlong: ${"x".repeat(100_000)}\r\n\r\n`],
      [417, "PUT /echo HTTP/1.1\r\nhost: x\r\nexpect: wonders\r\n\r\n"],
      [400, "PUT /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"],
      [408, "GET / HTTP/1.1\r\nhost:"],
      [408, "PUT /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf"]
    ] as const) {
      assertError(yield* exchange(status === 408 ? hurried.port : port, bytes), status)
    }
  })

  test.scoped("accepts headers of 60 KiB and 2,000 lines, and answers more lines with a JSON error", function* () {
    const { port } = yield* start(echo)
    const withLines = (count: number, value = "b") =>
      exchange(port, `GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n${`a: ${value}\r\n`.repeat(count - 2)}\r\n`)
    assert.include(yield* withLines(3, "x".repeat(61_000)), "here")
    assert.include(yield* withLines(2000), "here")
    const answer = yield* withLines(2001)
    assertError(answer, 431)
    assert.include(answer, "The request has 2001 header lines; the limit is 2000")
  })

  test.scoped("treats a WebSocket handshake with a body as an ordinary request", function* () {
    const { port } = yield* start(echo)
    const handshake = "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    const behind = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    for (const body of ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"]) {
      const answers = yield* exchange(port, handshake + body + behind)
      assert.strictEqual(answers.split("HTTP/1.1 200 OK").length, 3, answers)
    }
  })

  test.scoped("keeps the bytes after a WebSocket handshake", function* () {
    const seen = yield* Deferred.make<string>()
    const { port } = yield* start(
      HttpRouter.empty.pipe(
        HttpRouter.get(
          "/ws",
          Effect.flatMap(HttpServerRequest.HttpServerRequest, request =>
            Effect.as(
              Deferred.succeed(seen, handshakeOf(request)?.head.toString() ?? "none"),
              HttpServerResponse.empty({ status: 400 })
            )
          )
        )
      )
    )
    const handshake = "GET /ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nearly"
    assert.strictEqual(parts(yield* exchange(port, handshake)).status, 400)
    assert.strictEqual(yield* Deferred.await(seen), "early")
  })

  it("survives the errors of connections that asked for an upgrade", () => {
    const gate = new Gate(timing)
    const socket = new PassThrough()
    gate.emit("upgrade", new Http.IncomingMessage(new Net.Socket()), socket, Buffer.alloc(0))
    socket.emit("error", new Error("ECONNRESET"))
    assert.isTrue(socket.destroyed)
  })

  test.scoped("says why it cannot listen", function* () {
    const { port } = yield* start(echo)
    const taken = yield* Effect.flip(start(echo, { port }))
    assert.strictEqual(taken._tag, "ListenFailed")
    assert.strictEqual(
      taken.message,
      `Cannot listen on host 127.0.0.1, port ${port}: the address is already in use (EADDRINUSE)`
    )
    assert.strictEqual(Cause.pretty(Cause.fail(taken)), `ListenFailed: ${taken.message}`)
    const foreign = yield* Effect.flip(start(echo, { host: "192.0.2.1" }))
    assert.include(foreign.message, "this machine has no such address")
  })

  test.scopedLive("can be interrupted while the resolver looks up the host", function* () {
    const { lookup } = Dns
    const asked = yield* Deferred.make<void>()
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        Dns.lookup = (() => Deferred.unsafeDone(asked, Effect.void)) as unknown as typeof lookup
      }),
      () =>
        Effect.sync(() => {
          Dns.lookup = lookup
        })
    )
    const server = Layer.provide(NodeServer.layer({ ...options, host: "name.example" }), DrainingSignal.layer)
    const starting = yield* Effect.fork(Layer.launch(server))
    yield* Deferred.await(asked)
    assert.isTrue(Exit.isInterrupted(yield* Fiber.interrupt(starting)))
  })
})
