/** Runs of agents by the official client of AG-UI, unmodified. */
import { assert, describe, expect } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { sqlite } from "../../../src/Storage/Backends.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"
import { ask, post } from "../HttpSessions/Fixture.ts"
import { live, make } from "../Socket/Fixture.ts"
import { clientOf, type Received, textsOf } from "./Fixture.ts"

const echo = (text: string) => [
  "reasoning: What was said can be echoed.",
  'assistant: write_file({"path":"notes/last-message.md"})',
  "tool: wrote notes/last-message.md",
  `assistant: echo: ${text}`
]

const isText = ({ type }: Received) => type === "TEXT_MESSAGE_CONTENT"

const count = (all: ReadonlyArray<{ readonly type: string }>, type: string) =>
  all.filter(event => event.type === type).length

describe("the official client", () => {
  live("runs an agent, and another turn of the same thread", function* ({ agUi }) {
    const client = clientOf(`${agUi}/echo`)
    const first = yield* client.say("hello", "run-1")
    assert.isUndefined(first.failure)
    expect(first.events[0]).toMatchObject({ type: "RUN_STARTED", threadId: "thread-1", runId: "run-1" })
    expect(first.last).toMatchObject({ type: "RUN_FINISHED", runId: "run-1", outcome: { type: "success" } })
    expect(textsOf(client.agent.messages)).toEqual(["user: hello", ...echo("hello")])
    assert.strictEqual(count(first.events, "MESSAGES_SNAPSHOT"), 0)
    const second = yield* client.say("again")
    expect(second.last).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } })
    expect(textsOf(client.agent.messages)).toEqual(["user: hello", ...echo("hello"), "user: again", ...echo("again")])
    assert.strictEqual(count(second.events, "MESSAGES_SNAPSHOT"), 0)
    const other = clientOf(`${agUi}/echo`)
    const joined = yield* other.run({ runId: "run-1" })
    expect(joined.types.slice(0, 2)).toEqual(["RUN_STARTED", "MESSAGES_SNAPSHOT"])
    expect(joined.last).toMatchObject({ outcome: { type: "success" } })
    expect(textsOf(other.agent.messages)).toEqual(textsOf(client.agent.messages))
  })

  live(
    "joins a run in the middle, with the messages that it has and without, and never runs it again",
    { simulator: { pace: "2 millis" } },
    function* ({ agUi, base }) {
      const client = clientOf(`${agUi}/echo`)
      const running = yield* Effect.fork(client.say("/long 300", "run-1", "m-1"))
      yield* client.until(isText)
      const [empty, same] = [clientOf(`${agUi}/echo`), clientOf(`${agUi}/echo`, { messages: client.agent.messages })]
      const others = yield* Effect.all([empty.run({ runId: "run-1" }), same.run({ runId: "run-1" })], {
        concurrency: 2
      })
      yield* Fiber.join(running)
      for (const { failure, last } of others) {
        assert.isUndefined(failure)
        expect(last).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } })
      }
      for (const { agent } of [empty, same]) assert.deepStrictEqual(agent.messages, client.agent.messages)
      const { sessions } = (yield* ask(base)).json
      assert.lengthOf(sessions, 1)
      const { events } = yield* ask(`${base}/${sessions[0]!.id}/events`)
      assert.strictEqual(count(events, "turn_started"), 1)
    }
  )

  live("continues without its client, and is stopped by its name", function* ({ agUi }) {
    const client = clientOf(`${agUi}/echo`)
    const running = yield* Effect.fork(client.say("/hang", "run-1"))
    yield* client.until(({ type }) => type === "TEXT_MESSAGE_START")
    client.agent.abortRun()
    yield* Fiber.interrupt(running)
    const again = clientOf(`${agUi}/echo`)
    const joined = yield* Effect.fork(again.run({ runId: "run-1" }))
    yield* again.until(({ type }) => type === "TEXT_MESSAGE_START")
    const url = `${agUi}/echo/thread-1/runs/run-1`
    assert.strictEqual((yield* ask(url, { method: "DELETE" })).status, 204)
    expect((yield* Fiber.join(joined)).last).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "cancelled" } })
    assert.strictEqual((yield* ask(url, { method: "DELETE" })).status, 204)
    assert.strictEqual((yield* ask(`${agUi}/echo/thread-1/runs/other`, { method: "DELETE" })).status, 404)
    assert.strictEqual((yield* ask(`${agUi}/echo/other/runs/run-1`, { method: "DELETE" })).status, 404)
  })

  live("learns why a turn has failed", function* ({ agUi }) {
    const client = clientOf(`${agUi}/echo`)
    const { failure, last } = yield* client.say("/fail no luck", "run-1")
    expect(last).toMatchObject({ type: "RUN_ERROR", code: "simulated", message: "no luck" })
    assert.isUndefined(failure)
    expect((yield* client.run({ runId: "run-1" })).last).toMatchObject({ type: "RUN_ERROR", code: "simulated" })
  })

  live("asks a person, who answers by another run", function* ({ agUi, base }) {
    const client = clientOf(`${agUi}/echo`)
    const asked = yield* client.say("/ask", "run-1")
    expect(asked.last).toMatchObject({
      type: "RUN_FINISHED",
      outcome: {
        type: "interrupt",
        interrupts: [{ reason: "input_required", message: "Which color?", responseSchema: { enum: ["red", "blue"] } }]
      }
    })
    const [interrupt] = client.interrupts()
    const { messages } = client.agent
    const input = { threadId: "thread-1", tools: [], context: [], state: {} }
    const waiting = yield* post(`${agUi}/echo`, {
      ...{ ...input, runId: "run-x", messages: [...messages, { id: "m-2", role: "user", content: "well?" }] }
    })
    expect([waiting.status, waiting.json.error]).toEqual([409, expect.stringMatching(/^resume: is missing/)])
    const wrong = yield* post(`${agUi}/echo`, {
      ...{ ...input, runId: "run-x", messages, resume: [{ interruptId: "other", status: "resolved" }] }
    })
    expect([wrong.status, wrong.json.error]).toEqual([409, expect.stringMatching(/^resume\[0\]\.interruptId/)])
    const resume = [{ interruptId: interrupt!.id, status: "resolved" as const, payload: "red" }]
    const resumed = yield* client.run({ runId: "run-2", resume })
    expect(resumed.last).toMatchObject({ type: "RUN_FINISHED", runId: "run-2", outcome: { type: "success" } })
    expect(textsOf(client.agent.messages)).toEqual(["user: /ask", "assistant: answer: red"])
    // The same run again, with the answer and without, has the same end.
    for (const parameters of [{ runId: "run-2", resume }, { runId: "run-2" }, { runId: "run-1" }]) {
      expect((yield* client.run(parameters)).last).toMatchObject({ outcome: { type: "success" } })
    }
    const other = [{ interruptId: interrupt!.id, status: "resolved", payload: "blue" }]
    const late = yield* post(`${agUi}/echo`, { ...input, runId: "run-3", messages, resume: other })
    assert.strictEqual(late.status, 409)
    const { sessions } = (yield* ask(base)).json
    const { events } = yield* ask(`${base}/${sessions[0]!.id}/events`)
    assert.strictEqual(count(events, "question_resolved"), 1)
  })

  live("approves, and denies by an abandoned request", function* ({ agUi }) {
    for (const [threadId, entry, answer] of [
      ["a", { status: "resolved" as const, payload: { approved: true } }, "approved"],
      ["b", { status: "cancelled" as const }, "denied"]
    ] as const) {
      const client = clientOf(`${agUi}/echo`, { threadId })
      const asked = yield* client.say("/approve")
      expect(asked.last).toMatchObject({ outcome: { interrupts: [{ reason: "confirmation" }] } })
      const resume = client.interrupts().map(({ id }) => ({ interruptId: id, ...entry }))
      yield* client.run({ resume })
      assert.deepStrictEqual(textsOf(client.agent.messages), ["user: /approve", `assistant: ${answer}`])
    }
  })
})

describe("a thread", () => {
  live("accepts each message and each run once", function* ({ agUi, base }) {
    const url = `${agUi}/echo`
    const user = (id: string, content: unknown) => ({ id, role: "user", content })
    const run = (runId: string, messages: ReadonlyArray<object>, others: object = {}, threadId = "thread-1") =>
      Effect.map(post(url, { threadId, runId, messages, ...others }), ({ json, status, text }) => [
        status,
        json?.error ?? /"type":"(RUN_FINISHED|RUN_ERROR)"/.exec(text)?.[1]
      ])
    expect(yield* run("run-1", [])).toEqual([400, expect.stringMatching(/runId: is unknown/)])
    assert.deepStrictEqual((yield* ask(base)).json.sessions, [])
    // At once.
    const both = yield* Effect.all([run("run-1", [user("m", "hello")]), run("run-1", [user("m", "hello")])], {
      concurrency: 2
    })
    expect(both).toEqual([
      [200, "RUN_FINISHED"],
      [200, "RUN_FINISHED"]
    ])
    // As a component does that is mounted twice.
    const mount = (runId: string) => run(runId, [user("a", "twice")], {}, "thread-2")
    const mounted = yield* Effect.all([mount("run-a"), mount("run-b")], { concurrency: 2 })
    for (const [status] of mounted) assert.include([200, 400], status)
    expect(yield* run("run-1", [])).toEqual([200, "RUN_FINISHED"])
    expect(yield* run("run-1", [user("m", [{ type: "text", text: "hello" }])])).toEqual([200, "RUN_FINISHED"])
    expect(yield* run("run-1", [user("m", "other")])).toEqual([409, expect.stringMatching(/^messages\[0\]: .*other/)])
    expect(yield* run("run-1", [user("m", "hello"), user("n", "more")])).toEqual([409, expect.any(String)])
    expect(yield* run("run-2", [user("m", "hello")])).toEqual([400, expect.stringMatching(/runId: is unknown/)])
    expect(yield* run("run-2", [user("n", "one"), user("o", "two")])).toEqual([409, expect.any(String)])
    const image = [
      { type: "text", text: "see" },
      { type: "image", source: { type: "url", value: "http://x" } }
    ]
    expect(yield* run("run-2", [user("n", image)])).toEqual([400, expect.stringContaining("messages[0].content[1]")])
    expect(yield* run("run-2", [user("n", "")])).toEqual([400, expect.stringContaining("messages[0].content")])
    expect(yield* run("run-2", [{ id: "n", role: "tool", toolCallId: "c", content: "1" }])).toEqual([
      400,
      expect.stringContaining("toolCallId")
    ])
    expect(yield* run("", [user("n", "x")])).toEqual([400, expect.stringContaining("runId: must not be empty")])
    expect(yield* run("run-2", [user("n", "x")], {}, "t".repeat(257))).toEqual([
      400,
      expect.stringContaining("threadId: has 257 characters; the limit is 256")
    ])
    expect(yield* run("run-2", [{ role: "user", content: "x" }])).toEqual([400, expect.stringContaining("messages[0]")])
    expect(yield* run("run-2", [user("n", "x")], { messages: {} })).toEqual([
      400,
      "Invalid request: messages: must be an array"
    ])
    const { sessions } = (yield* ask(base)).json
    assert.lengthOf(sessions, 2)
    for (const { id } of sessions) {
      assert.strictEqual(count((yield* ask(`${base}/${id}/events`)).events, "turn_started"), 1)
    }
    const other = yield* post(`${agUi}/other`, { threadId: "thread-1", runId: "r", messages: [user("z", "hello")] })
    assert.strictEqual(other.status, 409)
    assert.strictEqual((yield* ask(`${base}/${sessions[1]!.id}`, { method: "DELETE" })).status, 204)
    for (let i = 0; i < 2; i++) {
      expect(yield* run("run-3", [user("p", "hello")])).toEqual([404, 'There is no session "thread-1"'])
    }
  })

  test.scopedLive("outlives a crash of the service, with its runs", function* () {
    const directory = yield* temporaryDirectory
    const { start } = yield* make({ stored: Layer.orDie(sqlite({ directory })) })
    const before = yield* start
    const client = clientOf(`${before.agUi}/echo`)
    yield* client.say("hello", "run-1")
    yield* client.say("/ask", "run-2")
    const hanging = clientOf(`${before.agUi}/echo`, { threadId: "thread-2" })
    const running = yield* Effect.fork(hanging.say("/hang", "run-3"))
    yield* hanging.until(({ type }) => type === "TEXT_MESSAGE_START")
    // A connection that is cut makes the client throw where it cannot be caught.
    hanging.agent.abortRun()
    yield* Fiber.join(running)
    yield* before.kill
    const after = yield* start
    client.agent.url = `${after.agUi}/echo`
    hanging.agent.url = `${after.agUi}/echo`
    const { messages } = client.agent
    expect((yield* client.run({ runId: "run-1", resume: [] })).last).toBeUndefined()
    client.agent.pendingInterrupts = []
    expect((yield* client.run({ runId: "run-1" })).last).toMatchObject({ outcome: { type: "success" } })
    assert.deepStrictEqual(client.agent.messages, messages)
    for (const other of [hanging, clientOf(`${after.agUi}/echo`, { threadId: "thread-2" })]) {
      expect((yield* other.run({ runId: "run-3" })).last).toMatchObject({
        type: "RUN_ERROR",
        code: "gateway_restarted"
      })
      assert.deepStrictEqual(textsOf(other.agent.messages), ["user: /hang", "assistant: "])
    }
  })
})
