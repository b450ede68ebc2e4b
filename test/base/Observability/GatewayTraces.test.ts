import { assert, describe } from "@effect/vitest"
import { Effect, LogLevel, Option, Schema } from "effect"
import * as SocketFixture from "../../Gateway/Socket/Fixture.ts"
import { test } from "../../Tests.ts"
import { logged, recording } from "./Recording.ts"

const remote = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331" }
const headers = { traceparent: `00-${remote.traceId}-${remote.spanId}-01` }

const Failed = Schema.Struct({
  type: Schema.Literal("error"),
  error: Schema.Struct({ code: Schema.String, traceId: Schema.String })
})

const errorOf = (answer: unknown) => Schema.decodeUnknownSync(Failed)(answer).error

describe("traces of the client's socket", () => {
  test.scopedLive("continue the handshake's traceparent, and begin without one", function* () {
    const { named, tracer } = yield* recording
    const { start } = yield* SocketFixture.make()
    const { url } = yield* Effect.withTracer(start, tracer)
    const traced = yield* SocketFixture.connect(url, { headers })
    const failure = errorOf(yield* traced.ask({ type: "get_session", sessionId: "none" }))
    assert.strictEqual(failure.traceId, remote.traceId)
    yield* traced.send("no JSON")
    const invalid = yield* traced.until(frame => frame.type === "error" && !("id" in frame))
    assert.strictEqual(errorOf(invalid).traceId, remote.traceId)
    for (const name of ["http.server GET", "Gateway.get_session", "Gateway.invalid"]) {
      const spans = named(name)
      assert.lengthOf(spans, 1, name)
      assert.strictEqual(spans[0]!.traceId, remote.traceId, name)
      assert.strictEqual(Option.getOrThrow(spans[0]!.parent).spanId, remote.spanId, name)
    }
    const plain = yield* SocketFixture.connect(url)
    const [one, other] = [
      errorOf(yield* plain.ask({ type: "get_session", sessionId: "none" })),
      errorOf(yield* plain.ask({ type: "get_session", sessionId: "none" }))
    ]
    assert.notStrictEqual(one.traceId, other.traceId)
    assert.deepStrictEqual(
      named("Gateway.get_session").map(({ traceId }) => traceId),
      [remote.traceId, one.traceId, other.traceId]
    )
  })

  for (const isTraced of [true, false]) {
    test.scopedLive(
      `events of a turn have the trace of their message, tracing ${isTraced ? "on" : "off"}`,
      function* () {
        const { named, tracer } = yield* recording
        const { start } = yield* SocketFixture.make()
        const { url } = yield* start.pipe(Effect.withTracer(tracer), Effect.withTracerEnabled(isTraced))
        const client = yield* SocketFixture.connect(url)
        const sessionId = yield* SocketFixture.createSession(client)
        yield* client.get("subscribed", { type: "subscribe", sessionId })
        /** A turn whose events come in two parts, with a request of another trace in between. */
        const asked = Effect.gen(function* () {
          const { turnId } = yield* client.get("accepted", { type: "send_message", sessionId, content: "/ask why" })
          const question = yield* client.untilEvent(sessionId, event => event.type === "question_requested")
          const requestId = question.type === "question_requested" ? question.requestId : ""
          yield* client.get("accepted", { type: "answer", sessionId, requestId, answer: "because" })
          yield* client.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === turnId)
          return turnId!
        })
        const turns = [
          yield* asked,
          yield* SocketFixture.completeTurn(client, sessionId, "one two three"),
          yield* SocketFixture.completeTurn(client, sessionId, "four five six"),
          yield* SocketFixture.completeTurn(client, sessionId, "/fail on purpose").pipe(
            Effect.raceFirst(
              Effect.map(
                client.untilEvent(sessionId, event => event.type === "turn_errored"),
                event => ("turnId" in event ? String(event.turnId) : "")
              )
            )
          )
        ]
        const traces = turns.map(turnId => [
          ...new Set(
            client
              .events(sessionId)
              .filter(event => "turnId" in event && event.turnId === turnId)
              .map(({ traceId }) => traceId)
          )
        ])
        for (const trace of traces) {
          assert.lengthOf(trace, 1)
          assert.match(trace[0]!, /^[0-9a-f]{32}$/)
        }
        assert.strictEqual(new Set(traces.flat()).size, turns.length)
        if (!isTraced) return
        assert.deepStrictEqual(
          traces.flat(),
          named("Gateway.send_message").map(({ traceId }) => traceId)
        )
      }
    )
  }
})

describe("logs of the client's socket", () => {
  test.scopedLive("have the trace id of every error answer, also without tracing, at level info", function* () {
    const { layer, lines, texts } = logged(LogLevel.Info)
    const { start } = yield* SocketFixture.make()
    const { url } = yield* start.pipe(Effect.withTracerEnabled(false), Effect.provide(layer))
    const client = yield* SocketFixture.connect(url)
    const failed = errorOf(yield* client.ask({ type: "get_session", sessionId: "none" }))
    yield* client.send(JSON.stringify({ type: "poem", id: "p" }))
    const unknown = errorOf(yield* client.until(frame => "id" in frame && frame.id === "p"))
    for (const { code, traceId } of [failed, unknown]) {
      assert.match(traceId, /^[0-9a-f]{32}$/)
      const line = lines().find(({ annotations }) => annotations.traceId === traceId)
      assert.strictEqual(line?.level, "INFO")
      assert.deepInclude(line?.annotations, { code, tenant: "dev" })
    }
    // A client that does nothing else fills no log.
    const before = texts.length
    for (let index = 0; index < 60; index++) yield* client.ask({ type: "get_session", sessionId: "none" })
    assert.isBelow(texts.length - before, 40)
    yield* client.get("session_list", { type: "list_sessions" })
  })

  const secret = "s3cr3t-value-of-a-secret"
  const variable = "value-of-an-environment-variable"
  const token = "header.payload.signature"

  /** A conversation with all that must not be shown. */
  const conversation = (url: string) =>
    Effect.gen(function* () {
      const client = yield* SocketFixture.connect(url, { headers: { authorization: `Bearer ${token}` } })
      const sessionId = yield* SocketFixture.createSession(client, {
        secrets: { API_KEY: secret },
        environment: { REGION: variable },
        deployment: { registry: { password: secret } }
      })
      yield* client.get("subscribed", { type: "subscribe", sessionId })
      yield* SocketFixture.completeTurn(client, sessionId, `my key is ${secret} ${"x".repeat(100_000)}`)
      yield* client.send(`{"type":"create_session","id":"broken","secrets":{"K":"${secret}"`)
      yield* client.until(frame => frame.type === "error")
      yield* client.get("pong", { type: "ping" })
      return sessionId
    })

  const frameLines = ["Received a frame of a client", "Sending a frame to a client"]
  const instanceLines = ["Received a frame of an agent instance", "Sending a frame to an agent instance"]

  test.scopedLive("show truncated frames without secrets at level debug, and none above", function* () {
    const at = (level: LogLevel.LogLevel) =>
      Effect.gen(function* () {
        const { layer, lines, texts } = logged(level)
        yield* Effect.gen(function* () {
          const { start } = yield* SocketFixture.make()
          const { url } = yield* start
          yield* conversation(url)
        }).pipe(Effect.provide(layer), Effect.scoped)
        return { lines: lines(), texts }
      })
    const { lines, texts } = yield* at(LogLevel.Debug)
    const framesOf = (message: string) =>
      lines.filter(line => line.message === message).map(({ annotations }) => annotations.frame)
    const typesOf = (message: string) => new Set(framesOf(message).map(frame => (frame as { type?: string }).type))
    const [received, sent] = frameLines.map(typesOf)
    for (const type of ["create_session", "subscribe", "send_message", "ping"]) assert.isTrue(received!.has(type), type)
    for (const type of ["session_created", "accepted", "text_delta", "turn_completed", "error", "pong"]) {
      assert.isTrue(sent!.has(type), type)
    }
    const [fromInstance, toInstance] = instanceLines.map(typesOf)
    assert.isTrue(toInstance!.has("message"))
    for (const type of ["instance.ready", "message.delta", "turn.completed"]) {
      assert.isTrue(fromInstance!.has(type), type)
    }
    for (const text of texts) {
      for (const hidden of [secret, variable, token]) assert.notInclude(text, hidden)
      assert.isBelow(text.length, 8192)
    }
    const messages = new Set((yield* at(LogLevel.Info)).lines.map(({ message }) => message))
    for (const message of [...frameLines, ...instanceLines]) assert.isFalse(messages.has(message), message)
  })

  test.scopedLive("name trace and span on every line of a request while tracing is on", function* () {
    const { layer, lines } = logged(LogLevel.Debug)
    const { spans, tracer } = yield* recording
    const { start } = yield* SocketFixture.make()
    const { url } = yield* start.pipe(Effect.withTracer(tracer), Effect.provide(layer))
    const client = yield* SocketFixture.connect(url, { headers })
    yield* client.ask({ type: "get_session", sessionId: "none" })
    const sessionId = yield* SocketFixture.createSession(client)
    yield* client.get("subscribed", { type: "subscribe", sessionId })
    yield* SocketFixture.completeTurn(client, sessionId, "hello")
    const known = new Map(spans.map(({ spanId, traceId }) => [spanId, traceId]))
    const ofRequests = lines().filter(({ annotations }) => "request" in annotations)
    assert.isAbove(ofRequests.length, 10)
    for (const { annotations, message } of ofRequests) {
      assert.strictEqual(annotations.traceId, remote.traceId, message)
      assert.strictEqual(known.get(String(annotations.spanId)), remote.traceId, message)
    }
    const messages = lines().map(({ message }) => message)
    for (const message of [...frameLines, "A client has connected", "A client was answered with an error"]) {
      assert.include(messages, message)
    }
  })

  test.scopedLive("have a line on a refused client at level debug", function* () {
    const { layer, lines } = logged(LogLevel.Debug)
    const { start } = yield* SocketFixture.make({ authentication: {} })
    const { url } = yield* Effect.provide(start, layer)
    yield* Effect.flip(SocketFixture.connect(url, { headers }))
    const line = lines().find(({ message }) => message === "A client was refused")
    assert.deepInclude(line?.annotations, { status: 401, traceId: remote.traceId })
  })
})
