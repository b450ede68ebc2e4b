/** Runs that are joined and answered after the service was killed, by the official client. */
import { assert, describe, expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { test } from "../../Tests.ts"
import { post } from "../HttpSessions/Fixture.ts"
import { make } from "../Socket/Fixture.ts"
import { clientOf, ignoringCuts, quiet, textsOf } from "./Fixture.ts"

/** Clients of a service that can be killed. */
const started = Effect.gen(function* () {
  const [cuts] = yield* Effect.all([ignoringCuts, quiet])
  const { simulator, start } = yield* make({ simulator: { pace: "5 millis" } })
  const gateway = yield* start
  const client = clientOf(`${gateway.agUi}/echo`)
  return {
    client,
    cuts,
    simulator,
    /** Kills the service and starts it again. */
    restart: Effect.gen(function* () {
      yield* gateway.kill
      const { agUi } = yield* start
      client.agent.url = `${agUi}/echo`
      return client.agent.url
    })
  }
})

const restarted = { type: "RUN_ERROR", code: "gateway_restarted" }

describe("after a crash of the service", () => {
  test.scopedLive("a run that was cut in the middle is joined by its id, and does not run again", function* () {
    const { client, cuts, restart, simulator } = yield* started
    const running = yield* Effect.fork(client.say("/long 200", "run-1"))
    yield* client.until(({ delta }) => String(delta).startsWith("5 "))
    const [url] = yield* Effect.all([restart, Fiber.join(running)], { concurrency: 2 })
    const seen = textsOf(client.agent.messages).at(-1)!
    const fresh = clientOf(url)
    for (const one of [client, fresh, client]) {
      const { failure, last } = yield* one.run({ runId: "run-1" })
      assert.isUndefined(failure)
      expect(last).toMatchObject(restarted)
    }
    assert.isTrue(textsOf(client.agent.messages).at(-1)!.startsWith(seen), "nothing that was seen is lost")
    assert.lengthOf(client.agent.messages, 2)
    assert.deepStrictEqual(fresh.agent.messages, client.agent.messages)
    assert.strictEqual((yield* simulator.state).frames.message, 1)
    // As the page for users says.
    assert.isAbove(cuts(), 0)
    const next = yield* client.say("hello", "run-2")
    expect(next.last).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } })
    assert.strictEqual(textsOf(client.agent.messages).at(-1), "assistant: echo: hello")
  })

  test.scopedLive("what waited for a person has failed with its turn, and the thread continues", function* () {
    const { client, restart, simulator } = yield* started
    yield* client.say("/ask", "run-1")
    const resume = client
      .interrupts()
      .map(({ id }) => ({ interruptId: id, status: "resolved" as const, payload: "red" }))
    assert.lengthOf(resume, 1)
    const url = yield* restart
    const late = yield* post(url, { threadId: "thread-1", runId: "run-2", messages: client.agent.messages, resume })
    expect([late.status, late.json.error]).toEqual([409, expect.stringContaining("no such request waits")])
    client.agent.pendingInterrupts = []
    expect((yield* client.run({ runId: "run-1" })).last).toMatchObject(restarted)
    expect((yield* client.say("hello", "run-3")).last).toMatchObject({ outcome: { type: "success" } })
    assert.strictEqual((yield* simulator.state).frames.answer, 0)
  })

  test.scopedLive(
    "a run that has answered is joined, with its answer and without, and does not answer again",
    function* () {
      const { client, restart, simulator } = yield* started
      yield* client.say("/approve", "run-1")
      const resume = client
        .interrupts()
        .map(({ id }) => ({ interruptId: id, status: "resolved" as const, payload: { approved: true } }))
      const answered = yield* client.run({ runId: "run-2", resume })
      expect(answered.last).toMatchObject({ type: "RUN_FINISHED", runId: "run-2", outcome: { type: "success" } })
      const { messages } = client.agent
      const url = yield* restart
      const again = yield* post(url, { threadId: "thread-1", runId: "run-2", messages, resume })
      assert.include(again.text, '"outcome":{"type":"success"}')
      for (const runId of ["run-1", "run-2"]) {
        expect((yield* client.run({ runId })).last).toMatchObject({ runId, outcome: { type: "success" } })
      }
      assert.deepStrictEqual(client.agent.messages, messages)
      expect((yield* simulator.state).frames).toMatchObject({ message: 1, answer: 1 })
    }
  )
})
