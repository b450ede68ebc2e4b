/** How streams of runs end without the run, what tenants share, and turns that overlap. */
import { assert, describe, expect, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { runReceipt } from "../../../src/Gateway/Sessions.ts"
import { pass } from "../../../src/Simulator/Testing/Time.ts"
import type { AgentPlatform } from "../../../src/Upstream/AgentPlatform.ts"
import type { PlatformFrame } from "../../../src/Upstream/PlatformEvent.ts"
import { given } from "../../Given.ts"
import { test } from "../../Tests.ts"
import * as Sessions from "../Fixture.ts"
import { ask, post } from "../HttpSessions/Fixture.ts"
import { live, makeStarted, timed } from "../Socket/Fixture.ts"
import { claims, sign, withSecret } from "../Socket/Tenants.ts"
import { clientOf, textsOf } from "./Fixture.ts"

const secured = given(it.scopedLive, () => makeStarted({ authentication: withSecret }))
const securedTimed = given(it.scoped, () => makeStarted({ authentication: withSecret }))

const as = (tenant: string, exp = claims.exp!) =>
  Effect.map(sign({ ...claims, tenant, exp }), token => ({ authorization: `Bearer ${token}` }))

const body = (runId: string, content: string, id = "m-1") => ({
  ...{ threadId: "thread-1", runId, messages: [{ id, role: "user", content }] }
})

/** The last event of an answer. */
const lastOf = (text: string) => JSON.parse(text.trimEnd().split("\n\n").at(-1)!.slice(6)) as Record<string, unknown>

describe("The stream of a run", () => {
  timed("ends with a code that means to join again when the service drains", function* ({ agUi, draining }) {
    const running = yield* Effect.fork(post(`${agUi}/echo`, body("run-1", "/hang")))
    yield* pass("5 seconds", "1 second")
    yield* draining.begin
    yield* pass("3 seconds", "1 second")
    expect(lastOf((yield* Fiber.join(running)).text)).toMatchObject({
      type: "RUN_ERROR",
      code: "going_away",
      metadata: { "causeway.retryable": true }
    })
  })

  timed("has no time limit of its own", function* ({ agUi, base }) {
    const running = yield* Effect.fork(post(`${agUi}/echo`, body("run-1", "/hang")))
    yield* pass("10 minutes", "10 seconds")
    expect(yield* Fiber.poll(running)).toMatchObject({ _tag: "None" })
    const { sessions } = (yield* ask(base)).json
    yield* Effect.fork(ask(`${base}/${sessions[0]!.id}`, { method: "DELETE" }))
    yield* pass("20 seconds", "1 second")
    const { text } = yield* Fiber.join(running)
    expect(lastOf(text).type).toMatch(/^RUN_(?:ERROR|FINISHED)$/)
    assert.include(text, ": ping\n\n")
  })

  securedTimed("ends at the expiry of the token, by another code than that of a failure", function* ({ agUi }) {
    const headers = yield* as("acme", 10)
    const running = yield* Effect.fork(post(`${agUi}/echo`, body("run-1", "/hang"), headers))
    yield* pass("12 seconds", "1 second")
    expect(lastOf((yield* Fiber.join(running)).text)).toMatchObject({ type: "RUN_ERROR", code: "token_expired" })
    assert.strictEqual((yield* post(`${agUi}/echo`, body("run-1", "/hang"), headers)).status, 401)
  })
})

describe("Tenants", () => {
  secured("have threads of the same name, and neither sees the other's", function* ({ agUi }) {
    const [acme, evil] = [yield* as("acme"), yield* as("evil")]
    const mine = clientOf(`${agUi}/echo`, { headers: acme })
    yield* mine.say("mine", "run-1", "m-1")
    const theirs = clientOf(`${agUi}/echo`, { headers: evil })
    assert.strictEqual((yield* post(`${agUi}/echo`, { ...body("run-1", ""), messages: [] }, evil)).status, 400)
    const url = `${agUi}/echo/thread-1/runs/run-1`
    assert.strictEqual((yield* ask(url, { method: "DELETE", headers: evil })).status, 404)
    yield* theirs.say("theirs", "run-1", "m-1")
    assert.strictEqual(textsOf(mine.agent.messages).at(-1), "assistant: echo: mine")
    assert.strictEqual(textsOf(theirs.agent.messages).at(-1), "assistant: echo: theirs")
    assert.strictEqual((yield* post(`${agUi}/echo`, body("run-2", "x"))).status, 401)
  })
})

describe("Turns that overlap", () => {
  live("are followed by each client to its end", { simulator: { pace: "1 millis" } }, function* ({ agUi }) {
    const clients = [clientOf(`${agUi}/echo`), clientOf(`${agUi}/echo`), clientOf(`${agUi}/echo`)]
    const runs = yield* Effect.all(
      clients.map((client, index) => client.say(`number ${index}`, `run-${index}`)),
      { concurrency: "unbounded" }
    )
    for (const { failure, last } of runs) {
      assert.isUndefined(failure)
      expect(last).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } })
    }
    for (const client of clients) yield* client.run({ runId: "run-0" })
    const [first, ...others] = clients.map(({ agent }) => agent.messages)
    assert.lengthOf(first!, 15)
    for (const messages of others) assert.deepStrictEqual(messages, first)
  })
})

describe("A run", () => {
  live("whose message has not reached the agent may be tried again", function* ({ agUi, base, simulator }) {
    const client = clientOf(`${agUi}/echo`)
    yield* simulator.refuse("platform", true)
    const refused = yield* client.say("hello", "run-1", "m-1")
    assert.match(refused.failure ?? "", /HTTP 503/)
    yield* simulator.refuse("platform", false)
    expect((yield* client.run({ runId: "run-1" })).last).toMatchObject({ outcome: { type: "success" } })
    assert.strictEqual(textsOf(client.agent.messages).at(-1), "assistant: echo: hello")
    const { sessions } = (yield* ask(base)).json
    assert.lengthOf(sessions, 1)
  })

  test.scopedLive("is recorded with its message, and the agent gets its input", function* () {
    const sent: Array<PlatformFrame> = []
    const platform = (inner: typeof AgentPlatform.Service): typeof AgentPlatform.Service => ({
      ...inner,
      connect: (instanceId, options) =>
        Effect.map(inner.connect(instanceId, options), connection => ({
          ...connection,
          send: (frame, how) =>
            Effect.zipRight(
              Effect.sync(() => void sent.push(frame)),
              connection.send(frame, how)
            )
        }))
    })
    const { start, stored } = yield* Sessions.make({ platform })
    const { sessions } = yield* start
    const { id } = yield* sessions.create(Sessions.alice, { agentType: "echo" })
    const input = { tools: [{ name: "color" }] }
    const caller = { ...Sessions.alice, run: { id: "run-1", digest: "d", input } }
    const turnId = yield* sessions.send(caller, id, "hello", "m-1")
    expect(sent).toMatchObject([{ type: "message", content: "hello", turnId, input }])
    const receipt = yield* Effect.provide(
      Effect.flatMap(SessionEvents, events => events.receipt(`acme/${id}`, runReceipt("run-1"))),
      stored
    )
    expect(receipt).toMatchObject({ _tag: "Some", value: { digest: "d", turnId } })
    const other = { ...caller, run: { id: "run-1", digest: "other" } }
    expect(yield* Effect.flip(sessions.send(other, id, "again", "m-2"))).toMatchObject({ _tag: "SessionConflict" })
    assert.strictEqual(yield* sessions.send(other, id, "hello", "m-1"), turnId)
    // A message that has arrived by another run or another protocol has both runs, so that each can be joined again.
    assert.strictEqual(
      yield* sessions.send({ ...caller, run: { id: "run-2", digest: "d" } }, id, "hello", "m-1"),
      turnId
    )
    const second = Effect.flatMap(SessionEvents, events => events.receipt(`acme/${id}`, runReceipt("run-2")))
    expect(yield* Effect.provide(second, stored)).toMatchObject({ _tag: "Some", value: { digest: "d", turnId } })
    assert.lengthOf(sent, 1)
  })
})
