/** Runs at several nodes that share a database: each works at each node. */
import { assert, expect, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { reasonToSkip } from "../../postgres/Server.ts"
import * as Environment from "../../service/Environment.ts"
import * as Gateways from "../../service/Gateways.ts"
import { ask, post } from "../HttpSessions/Fixture.ts"
import { token } from "../survival/Token.ts"
import { clientOf, textsOf } from "./Fixture.ts"

layer(Environment.layer, { excludeTestServices: true })(
  `gateways that share one PostgreSQL ${reasonToSkip ?? ""}`,
  it => {
    if (reasonToSkip !== undefined) {
      it.skip("serve runs of each other's threads")
      return
    }

    it.scoped("serve runs of each other's threads", () =>
      Effect.gen(function* () {
        const { serve } = yield* Gateways.make({ isLinked: true, env: { SESSION_LEASE: "1 minute" } })
        const [one, other] = yield* Effect.all([serve, serve], { concurrency: 2 })
        const headers = { authorization: `Bearer ${yield* token("acme")}` }
        const [here, there] = [one, other].map(({ url }) => clientOf(`${url}/api/v1/ag-ui/echo`, { headers }))
        // The same thread is made at both nodes at once.
        const both = yield* Effect.all([here!.say("hello", "run-1", "m-1"), there!.say("hello", "run-1", "m-1")], {
          concurrency: 2
        })
        for (const { last } of both) expect(last).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } })
        assert.deepStrictEqual(there!.agent.messages, here!.agent.messages)
        assert.lengthOf(here!.agent.messages, 5)
        yield* here!.say("/ask", "run-2")
        const asked = yield* there!.run({ runId: "run-2" })
        expect(asked.last).toMatchObject({ outcome: { type: "interrupt" } })
        const resume = there!
          .interrupts()
          .map(({ id }) => ({ interruptId: id, status: "resolved" as const, payload: "red" }))
        expect((yield* there!.run({ runId: "run-3", resume })).last).toMatchObject({ outcome: { type: "success" } })
        here!.agent.pendingInterrupts = []
        expect((yield* here!.run({ runId: "run-3" })).last).toMatchObject({ outcome: { type: "success" } })
        assert.deepStrictEqual(there!.agent.messages, here!.agent.messages)
        assert.strictEqual(textsOf(here!.agent.messages).at(-1), "assistant: answer: red")
        const hanging = yield* Effect.fork(here!.say("/hang", "run-4"))
        const joined = yield* Effect.fork(
          Effect.repeat(there!.run({ runId: "run-4" }), { until: ({ failure }) => failure === undefined })
        )
        yield* there!.until(({ runId, type }) => type === "RUN_STARTED" && runId === "run-4")
        const stopped = yield* Effect.promise(() =>
          fetch(`${other.url}/api/v1/ag-ui/echo/thread-1/runs/run-4`, { method: "DELETE", headers })
        )
        assert.strictEqual(stopped.status, 204)
        for (const fiber of [hanging, joined]) {
          expect((yield* Fiber.join(fiber)).last).toMatchObject({ outcome: { type: "cancelled" } })
        }
      })
    )

    it.scoped("know of messages on their way, and take one answer of two, at whichever node", () =>
      Effect.gen(function* () {
        const { serve, simulator } = yield* Gateways.make({ isLinked: true, env: { SESSION_LEASE: "1 minute" } })
        const [one, other] = yield* Effect.all([serve, serve], { concurrency: 2 })
        const headers = { authorization: `Bearer ${yield* token("acme")}` }
        const [here, there] = [one, other].map(({ url }) => clientOf(`${url}/api/v1/ag-ui/echo`, { headers }))
        yield* simulator.inject({ operation: "create", times: 1, fault: { kind: "latency", millis: 3000 } })
        const running = yield* Effect.fork(here!.say("/approve", "run-1", "m-1"))
        const sessions = Effect.map(ask(`${other.url}/api/v1/sessions`, { headers }), ({ json }) => json.sessions)
        yield* Effect.repeat(sessions, { until: ([session]) => session?.state === "activating" })
        const joined = yield* there!.run({ runId: "run-1" })
        assert.isUndefined(joined.failure)
        expect(joined.last).toMatchObject({ outcome: { type: "interrupt" } })
        yield* Fiber.join(running)
        const [interrupt] = there!.interrupts()
        const answers = [one, other].map(({ url }, index) => {
          const payload = { approved: index === 0 }
          const resume = [{ interruptId: interrupt!.id, status: "resolved", payload }]
          const run = { threadId: "thread-1", runId: `run-${2 + index}`, messages: [], resume }
          return post(`${url}/api/v1/ag-ui/echo`, run, headers)
        })
        const answered = yield* Effect.all(answers, { concurrency: 2 })
        assert.deepStrictEqual(answered.map(({ status }) => status).sort(), [200, 409])
        const [session] = yield* sessions
        const { events } = yield* ask(`${other.url}/api/v1/sessions/${session!.id}/events`, { headers })
        expect(events.filter(({ type }) => type === "approval_resolved")).toMatchObject([
          { approved: answered[0]!.status === 200 }
        ])
      })
    )
  }
)
