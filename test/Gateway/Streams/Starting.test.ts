/** The time before a message is recorded, while the instance of its session starts: nothing is lost in it. */
import { assert, describe, expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { MiB } from "../../../src/base/Bytes.ts"
import { pass } from "../../../src/Simulator/Testing/Time.ts"
import { ask, eventsUntil, post } from "../HttpSessions/Fixture.ts"
import { connect, type makeStarted, timed } from "../Socket/Fixture.ts"

const body = (runId: string, content = "hello", id = "m-1") => ({
  ...{ threadId: "c", runId, messages: content === "" ? [] : [{ id, role: "user", content }] }
})

type Gateway = Effect.Effect.Success<ReturnType<typeof makeStarted>>

/** Sends the first message of a session, whose instance takes 20 seconds to start, and waits until it starts. */
const startingBy = <A>({ base, simulator }: Gateway, sending: Effect.Effect<A>) =>
  Effect.gen(function* () {
    yield* simulator.inject({ operation: "create", fault: { kind: "latency", millis: 20_000 } })
    const running = yield* Effect.fork(sending)
    const { sessions } = yield* Effect.repeat(
      Effect.map(ask(base), ({ json }) => json),
      { until: ({ sessions }) => sessions.length > 0 }
    )
    yield* eventsUntil(base, sessions[0]!.id, event => event.type === "session_state" && event.state === "activating")
    return { running, id: sessions[0]!.id }
  })

/** The same by a run. */
const starting = (gateway: Gateway) => startingBy(gateway, post(`${gateway.agUi}/echo`, body("run-1")))

describe("While the instance starts", () => {
  timed("a chat and a run can be joined, and have the message", function* (gateway) {
    const { agUi, chats } = gateway
    const { running } = yield* starting(gateway)
    const joined = yield* Effect.fork(
      Effect.all([ask(`${chats}/c/stream`), ask(`${chats}/c/messages`), post(`${agUi}/echo`, body("run-1", ""))], {
        concurrency: "unbounded"
      })
    )
    yield* pass("25 seconds", "1 second")
    const [stream, messages, run] = yield* Fiber.join(joined)
    expect([stream.status, stream.text]).toEqual([200, expect.stringContaining("echo: ")])
    expect(messages.events[0]).toMatchObject({ role: "user", parts: [{ text: "hello" }] })
    expect([run.status, run.text]).toEqual([200, expect.stringContaining("RUN_FINISHED")])
    assert.strictEqual((yield* Fiber.join(running)).status, 200)
  })

  timed("a run is stopped by its name", function* (gateway) {
    const { agUi, base, simulator } = gateway
    const { id, running } = yield* starting(gateway)
    const url = `${agUi}/echo/c/runs`
    assert.strictEqual((yield* ask(`${url}/other`, { method: "DELETE" })).status, 404)
    assert.strictEqual((yield* ask(`${url}/run-1`, { method: "DELETE" })).status, 204)
    // It does not wait for the instance.
    expect((yield* Fiber.join(running)).text).toContain('"outcome":{"type":"cancelled"}')
    assert.strictEqual((yield* ask(`${url}/run-1`, { method: "DELETE" })).status, 204)
    yield* pass("25 seconds", "1 second")
    const { events } = yield* ask(`${base}/${id}/events`)
    assert.deepStrictEqual(
      events.map(({ type }) => type).filter(type => type.startsWith("turn")),
      ["turn_started", "turn_interrupted"]
    )
    assert.strictEqual((yield* simulator.state).frames.message, 0)
  })

  timed(
    "the inputs that wait take memory of their tenant, also without their clients",
    { socket: { fileBytes: 64 * MiB } },
    function* (gateway) {
      const { agUi } = gateway
      const { running } = yield* starting(gateway)
      const history = { id: "a-1", role: "assistant", content: "x".repeat(10 * MiB) }
      const large = (runId: string) => {
        const [message] = body(runId, "again", `m-${runId}`).messages
        return post(`${agUi}/echo`, { threadId: "c", runId, messages: [history, message] })
      }
      // Two of them have room, and wait.
      const first = yield* Effect.raceAll(["2", "3", "4"].map(large))
      assert.deepStrictEqual([first.status, first.headers.has("retry-after")], [503, true])
      // The clients of the others are gone.
      assert.strictEqual((yield* large("5")).status, 503)
      yield* pass("25 seconds", "1 second")
      assert.strictEqual((yield* Fiber.join(running)).status, 200)
    }
  )

  timed("a run that waits behind another one is stopped by its name, and its message is not sent", function* (gateway) {
    const { agUi, base, simulator } = gateway
    const { id, running } = yield* starting(gateway)
    const messages = [...body("run-1").messages, { id: "m-2", role: "user", content: "again" }]
    const second = yield* Effect.fork(post(`${agUi}/echo`, { ...body("run-2"), messages }))
    const stop = Effect.map(ask(`${agUi}/echo/c/runs/run-2`, { method: "DELETE" }), ({ status }) => status)
    // It waits as soon as its request has come.
    assert.strictEqual(yield* Effect.repeat(stop, { until: status => status !== 404, times: 500 }), 204)
    assert.strictEqual(yield* stop, 204)
    yield* pass("25 seconds", "1 second")
    expect((yield* Fiber.join(running)).text).toContain('"outcome":{"type":"success"}')
    expect((yield* Fiber.join(second)).text).toContain('"outcome":{"type":"cancelled"}')
    assert.strictEqual(yield* stop, 204)
    const again = yield* post(`${agUi}/echo`, { ...body("run-2"), messages })
    expect(again.text).toContain('"outcome":{"type":"cancelled"}')
    const { events } = yield* ask(`${base}/${id}/events`)
    const started = events.flatMap(event => (event.type === "turn_started" ? [event.content] : []))
    assert.deepStrictEqual(started.sort(), ["again", "hello"])
    assert.strictEqual(events.filter(({ type }) => type === "turn_interrupted").length, 1)
    assert.strictEqual((yield* simulator.state).frames.message, 1)
  })

  timed(
    "the send of a chat that waits behind another one is aborted, and its turn is interrupted",
    function* (gateway) {
      const { base, chats } = gateway
      const { id, running } = yield* starting(gateway)
      const client = yield* connect(`${chats.replace("http", "ws")}/ws`)
      const send = (id: string, text: string) => ({
        ...{ type: "send", requestId: id, id: "c" },
        messages: [{ id, role: "user", parts: [{ type: "text", text }] }]
      })
      yield* client.send(JSON.stringify(send("m-2", "/hang")))
      yield* client.until(frame => Reflect.get(frame, "requestId") === "m-2")
      yield* client.send(JSON.stringify({ type: "abort", requestId: "m-2" }))
      yield* pass("30 seconds", "1 second")
      expect((yield* Fiber.join(running)).text).toContain('"outcome":{"type":"success"}')
      yield* Effect.raceFirst(
        Effect.forever(pass("1 second", "1 second")),
        eventsUntil(base, id, ({ type }) => type === "turn_interrupted")
      )
    }
  )

  timed("all messages of a chat are sent although its client is gone", function* (gateway) {
    const { base, chats } = gateway
    const messages = ["one", "two"].map(text => ({ id: text, role: "user", parts: [{ type: "text", text }] }))
    const { id, running } = yield* startingBy(gateway, post(`${chats}`, { id: "c", messages }))
    yield* Fiber.interrupt(running)
    yield* pass("25 seconds", "1 second")
    const events = yield* eventsUntil(base, id, event => event.type === "turn_started" && event.content === "two")
    expect(events.filter(({ type }) => type === "turn_started")).toMatchObject([{ content: "one" }, { content: "two" }])
  })

  describe.each([false, true])("a chat is aborted on its socket, and resumed: %s", isResumed => {
    timed("its message is withdrawn unless it is resumed", function* (gateway) {
      const { base, chats, simulator } = gateway
      const client = yield* connect(`${chats.replace("http", "ws")}/ws`)
      const messages = [{ id: "m-1", role: "user", parts: [{ type: "text", text: "/hang" }] }]
      const send = client.send(JSON.stringify({ type: "send", requestId: "1", id: "c", messages }))
      const { id } = yield* startingBy(gateway, send)
      yield* client.send(JSON.stringify({ type: "abort", requestId: "1" }))
      if (isResumed) yield* client.send(JSON.stringify({ type: "resume", requestId: "2", id: "c" }))
      yield* pass("40 seconds", "1 second")
      const ended = eventsUntil(base, id, ({ type }) => type === (isResumed ? "text_start" : "turn_interrupted"))
      const types = (yield* ended).map(({ type }) => type)
      assert.strictEqual(types.includes("turn_interrupted"), !isResumed)
      assert.strictEqual((yield* simulator.state).frames.message, isResumed ? 1 : 0)
      if (!isResumed) return
      yield* pass("3 seconds", "1 second")
      const { events } = yield* ask(`${base}/${id}/events`)
      assert.notInclude(
        events.map(({ type }) => type),
        "turn_interrupted"
      )
    })
  })

  timed("waits end as the service drains, with an error after which a client tries again", function* (gateway) {
    const { agUi, chats, draining } = gateway
    const { running } = yield* starting(gateway)
    const joined = yield* Effect.fork(
      Effect.all([ask(`${chats}/c/stream`), ask(`${chats}/c/messages`), post(`${agUi}/echo`, body("run-1", ""))], {
        concurrency: "unbounded"
      })
    )
    yield* pass("2 seconds", "1 second")
    yield* draining.begin
    yield* pass("25 seconds", "1 second")
    for (const { headers, status } of [yield* Fiber.join(running), ...(yield* Fiber.join(joined))]) {
      assert.deepStrictEqual([status, headers.has("retry-after")], [503, true])
    }
  })

  timed("a chat is stopped", function* (gateway) {
    const { chats, simulator } = gateway
    const { running } = yield* starting(gateway)
    assert.strictEqual((yield* ask(`${chats}/c/stream`, { method: "DELETE" })).status, 204)
    expect((yield* Fiber.join(running)).text).toContain('"outcome":{"type":"cancelled"}')
    yield* pass("25 seconds", "1 second")
    assert.strictEqual((yield* simulator.state).frames.message, 0)
  })
})
