/** The connection between two nodes, over real sockets: commands, sessions, answers and failures. */
import { createServer } from "node:https"
import { connect } from "node:net"
import { connect as tlsConnect } from "node:tls"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Equal, Option, Queue, Redacted, Tracer } from "effect"
import { untilRead } from "../../../src/base/Time/EventLoop.ts"
import * as NodeClient from "../../../src/Gateway/Forwarding/NodeClient.ts"
import * as Security from "../../../src/Gateway/Forwarding/NodeLink.ts"
import { formatAddress, parseAddress } from "../../../src/Gateway/Forwarding/Settings.ts"
import { SessionElsewhere } from "../../../src/Gateway/SessionEvents.ts"
import { type Caller, SessionConflict, SessionsBusy, type TransferredSession } from "../../../src/Gateway/Sessions.ts"
import { Recorder } from "../../../src/Operations/Activity/Recorder.ts"
import { listening } from "../../Listening.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { test } from "../../Tests.ts"
import { command, failureOf, owner, quick, secret, server, unused } from "./Fixture.ts"

describe("the link between nodes", () => {
  // Commands wait for a connection by the test's clock, which does not advance.
  test.scoped("knows of a command that waited for another one's connection that it was sent", function* () {
    const begun = yield* Queue.unbounded<string>()
    const finish = yield* Deferred.make<void>()
    const { port } = yield* server((_, __, content) =>
      Effect.zipRight(
        Queue.offer(begun, content),
        content === "first" ? Effect.as(Deferred.await(finish), "turn") : Effect.never
      )
    )
    const proxy = yield* Proxy.make(`http://127.0.0.1:${port}`)
    const link = yield* NodeClient.make(secret, { connect: "1 minute", connections: 1 })
    const send = (content: string) => link.send(owner(`127.0.0.1:${new URL(proxy.url).port}`), command(content))
    const first = yield* Effect.fork(send("first"))
    assert.strictEqual(yield* Queue.take(begun), "first")
    const second = yield* Effect.fork(failureOf(send("second")))
    yield* Deferred.succeed(finish, undefined)
    assert.deepInclude(yield* first, { is: "answer" })
    assert.strictEqual(yield* Queue.take(begun), "second")
    yield* Effect.promise(() => proxy.cut(true))
    assert.strictEqual(yield* second, "NodeSilent")
  })

  test.scopedLive("carries a command, its author and its answer, or the reason of a refusal", function* () {
    const calls: Array<readonly [Caller, string]> = []
    const { address } = yield* server((caller, session, content) => {
      calls.push([caller, content])
      if (content === "conflict") return new SessionConflict({ message: "no" })
      if (content === "elsewhere") return new SessionElsewhere({ session })
      return content === "defect" ? Effect.dieMessage("planned") : Effect.succeed("turn")
    })
    const link = yield* NodeClient.make(secret)
    const text = `\u0000 \ud83d\ude00 ${"x".repeat(500_000)}`
    const answer = { type: "accepted", id: "1", turnId: "turn" }
    assert.deepStrictEqual(yield* link.send(owner(address), command(text)), { is: "answer", answer } as never)
    const caller = { tenant: "acme", actor: "alice", commandId: "c1" }
    assert.deepStrictEqual(calls, [[caller, text]])
    yield* link.send(owner(address), { ...command("followed"), hasSubscribers: true })
    assert.deepStrictEqual(calls.at(-1), [{ ...caller, hasSubscribers: true }, "followed"])
    const refused = yield* link.send(owner(address), command("conflict"))
    assert.deepStrictEqual(refused, { is: "failure", failure: { code: "conflict", message: "no" } } as never)
    assert.deepInclude(yield* link.send(owner(address), command("defect")), { is: "failure" })
    // What belongs to a third node is not sent on, and a command for another run is not carried out.
    assert.deepStrictEqual(yield* link.send(owner(address), command("elsewhere")), { is: "not_owner" })
    const before = calls.length
    assert.deepStrictEqual(yield* link.send(owner(address), command("for another", "b")), { is: "not_owner" })
    assert.lengthOf(calls, before)
  })

  test.scopedLive("carries what a node has recorded, and nothing for another run of it", function* () {
    const wanted = { lastMs: 60_000, most: 10 }
    const asked: Array<unknown> = []
    const recorded = { since: 1, breakers: [], series: { at: [1, 2] } } as never
    const read = (given: unknown) =>
      Effect.as(
        Effect.sync(() => asked.push(given)),
        Option.some(recorded)
      )
    const { address } = yield* Effect.provideService(server(unused), Recorder, { read })
    const link = yield* NodeClient.make(secret)
    assert.deepStrictEqual(yield* link.activity(owner(address), wanted), Option.some(recorded))
    assert.deepStrictEqual(asked, [wanted])
    assert.deepStrictEqual(yield* link.activity({ node: "b", address }, wanted), Option.none())
    assert.lengthOf(asked, 1)
    const { address: silent } = yield* server(unused)
    assert.deepStrictEqual(yield* link.activity(owner(silent), wanted), Option.none())
    const stranger = yield* NodeClient.make(Redacted.make("another secret of at least 32 characters"))
    assert.strictEqual(yield* failureOf(stranger.activity(owner(address), wanted)), "NodeUnreachable")
  })

  test.scopedLive("refuses peers with another secret or none", function* () {
    const { address, port } = yield* server(unused)
    const stranger = yield* NodeClient.make(Redacted.make("another secret of at least 32 characters"))
    assert.strictEqual(yield* failureOf(stranger.send(owner(address), command("x"))), "NodeUnreachable")
    const plain = yield* Effect.async<string>(resume => {
      let text = ""
      connect(port, "127.0.0.1")
        .on("data", data => {
          text += data.toString("latin1")
        })
        .on("error", () => undefined)
        .on("close", () => resume(Effect.succeed(text)))
        .end("POST /commands HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
    })
    assert.notInclude(plain, "HTTP/")
    const byCertificate = yield* Effect.async<string>(resume => {
      tlsConnect({ port, host: "127.0.0.1", rejectUnauthorized: false })
        .on("secureConnect", () => resume(Effect.succeed("connected")))
        .on("error", () => resume(Effect.succeed("refused")))
    })
    assert.strictEqual(byCertificate, "refused")
  })

  test.scopedLive("waits for a command as long as the other node is at work, and no longer", function* () {
    const finish = yield* Deferred.make<void>()
    const begun = yield* Deferred.make<void>()
    const { address, port } = yield* server((_, __, content) =>
      content === "quick"
        ? Effect.succeed("turn")
        : Effect.zipRight(Deferred.succeed(begun, undefined), Effect.as(Deferred.await(finish), "turn"))
    )
    const link = yield* NodeClient.make(secret, quick)
    const proxy = yield* Proxy.make(`http://127.0.0.1:${port}`)
    const through = `127.0.0.1:${new URL(proxy.url).port}`
    // Longer than the silence that is allowed.
    const slow = yield* Effect.fork(link.send(owner(address), command("slow")))
    yield* Deferred.await(begun)
    yield* Effect.sleep("2 seconds")
    yield* Deferred.succeed(finish, undefined)
    assert.deepInclude(yield* slow, { is: "answer" })
    // A connection that was there when the other node stopped to answer. A busy machine may need several attempts.
    const connecting = Effect.retry(link.send(owner(through), command("quick")), {
      while: ({ _tag }) => _tag === "NodeUnreachable"
    })
    assert.deepInclude(yield* connecting, { is: "answer" })
    // It is free after the answer.
    yield* untilRead
    proxy.set("black hole")
    assert.strictEqual(yield* failureOf(link.send(owner(through), command("quick"))), "NodeSilent")
    // A new connection does not come to be.
    assert.strictEqual(yield* failureOf(link.send(owner(through), command("quick"))), "NodeUnreachable")
    yield* Effect.promise(() => proxy.cut(true))
    assert.strictEqual(yield* failureOf(link.send(owner(through), command("quick"))), "NodeUnreachable")
  })

  test.scopedLive("does not take a node for silent whose signs came while this process stood still", function* () {
    const finish = yield* Deferred.make<void>()
    const begun = yield* Deferred.make<void>()
    const { address } = yield* server(() =>
      Effect.zipRight(Deferred.succeed(begun, undefined), Effect.as(Deferred.await(finish), "turn"))
    )
    const link = yield* NodeClient.make(secret, quick)
    const sending = yield* Effect.fork(link.send(owner(address), command("slow")))
    yield* Deferred.await(begun)
    yield* Effect.sync(() => {
      const end = performance.now() + 1.2 * Duration.toMillis(quick.silence)
      while (performance.now() < end);
    })
    // In the same turn of the event loop the other node, which is in this process too, says that it is at work.
    yield* Effect.sleep(1)
    yield* untilRead
    yield* Deferred.succeed(finish, undefined)
    assert.deepInclude(yield* sending, { is: "answer" })
  })

  test.scopedLive(
    "a command whose connection is cut may have been carried out; one that is interrupted is so there",
    function* () {
      const begun = yield* Deferred.make<void>()
      const again = yield* Deferred.make<void>()
      const interrupted = yield* Deferred.make<void>()
      const { port } = yield* server((_, __, content) =>
        Effect.zipRight(Deferred.succeed(content === "first" ? begun : again, undefined), Effect.never).pipe(
          Effect.onInterrupt(() => (content === "first" ? Effect.void : Deferred.succeed(interrupted, undefined)))
        )
      )
      const proxy = yield* Proxy.make(`http://127.0.0.1:${port}`)
      const through = `127.0.0.1:${new URL(proxy.url).port}`
      const link = yield* NodeClient.make(secret)
      const first = yield* Effect.fork(failureOf(link.send(owner(through), command("first"))))
      yield* Deferred.await(begun)
      yield* Effect.promise(() => proxy.cut(false))
      assert.strictEqual(yield* first, "NodeSilent")
      const second = yield* Effect.fork(link.send(owner(through), command("second")))
      yield* Deferred.await(again)
      yield* second.interruptAsFork(second.id())
      yield* Deferred.await(interrupted)
    }
  )

  test.scopedLive("knows that nothing was done where a node answers that it refuses the command", function* () {
    const answer: { status: number | undefined } = { status: 200 }
    const stub = createServer(Security.ofServer(secret), (request, response) => {
      request.resume()
      request.on("end", () => {
        if (answer.status === undefined) request.socket.destroy()
        else response.writeHead(answer.status).end("no command")
      })
    })
    const port = yield* listening(stub)
    const link = yield* NodeClient.make(secret)
    const send = failureOf(link.send(owner(`127.0.0.1:${port}`), command("x")))
    for (const status of [400, 404, 411, 413, 503]) {
      answer.status = status
      assert.strictEqual(yield* send, "NodeRefused")
    }
    // It may have been carried out.
    for (const status of [200, undefined]) {
      answer.status = status
      assert.strictEqual(yield* send, "NodeSilent")
    }
  })

  test.scopedLive("carries a session that is transferred with its secrets, to the named node only", function* () {
    const adopted: Array<TransferredSession> = []
    const { address } = yield* server(unused, {}, transferred =>
      transferred.session === "acme/busy"
        ? new SessionsBusy({ message: "no" })
        : Effect.sync(() => {
            adopted.push(transferred)
            return transferred.session !== "acme/elsewhere"
          })
    )
    const link = yield* NodeClient.make(secret)
    const secrets = { TOKEN: Redacted.make("\u0000 \ud83d\ude00"), __proto__x: Redacted.make("") }
    const of = (session: string): TransferredSession => ({ session, from: { node: "b", token: 7 }, secrets })
    const transfer = (session: string, node = "a") => link.transfer({ node, address }, of(session))
    assert.isTrue(yield* transfer("acme/s"))
    assert.isFalse(yield* transfer("acme/elsewhere"))
    assert.isFalse(yield* transfer("acme/busy"))
    assert.isFalse(yield* transfer("acme/s", "another run"))
    assert.lengthOf(adopted, 2)
    assert.isTrue(Equal.equals(adopted[0]!.secrets.TOKEN, secrets.TOKEN))
    assert.deepInclude(adopted[0], { session: "acme/s", from: { node: "b", token: 7 } })
  })

  test.scopedLive("the other node continues the trace of a command", function* () {
    const inner = yield* Effect.tracer
    const spans: Array<Tracer.Span> = []
    const tracer = Tracer.make({
      context: (f, fiber) => inner.context(f, fiber),
      span: (...args) => {
        const span = inner.span(...args)
        spans.push(span)
        return span
      }
    })
    const { address } = yield* Effect.withTracer(
      server(() => Effect.succeed("turn")),
      tracer
    )
    const link = yield* NodeClient.make(secret)
    const send = link.send(owner(address), command("x"))
    yield* Effect.withTracer(Effect.withSpan(send, "Gateway.send_message"), tracer)
    const [client, sent, carriedOut] = spans
    assert.deepStrictEqual(
      spans.map(({ kind, name }) => [name, kind]),
      [
        ["Gateway.send_message", "internal"],
        ["NodeClient.send_message", "client"],
        ["NodeServer.send_message", "server"]
      ]
    )
    assert.strictEqual(carriedOut!.traceId, client!.traceId)
    assert.strictEqual(Option.getOrThrow(carriedOut!.parent).spanId, sent!.spanId)
    // While tracing is off nothing is sent of it.
    yield* Effect.withTracerEnabled(Effect.withSpan(send, "Gateway.send_message"), false)
    assert.strictEqual(Option.getOrUndefined(spans.at(-1)!.parent)?._tag, undefined)
  })

  it("addresses have a host and a port", () => {
    for (const text of ["a:1", "10.0.0.1:65535", "[::1]:80", "node-0.nodes.svc:9000"]) {
      assert.strictEqual(Option.getOrThrow(Option.map(parseAddress(text), formatAddress)), text)
    }
    for (const text of ["", "a", ":1", "a:65536", "::1:80", "[a]:80", "http://a:1", "a:1/", "user@a:1"]) {
      assert.isTrue(Option.isNone(parseAddress(text)), text)
    }
  })
})
