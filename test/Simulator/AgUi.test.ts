/** The simulated agent by the official client of AG-UI, and a gateway before it. */
import { assert, describe, expect } from "@effect/vitest"
import { Effect, Fiber, Option } from "effect"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { clientOf, textsOf } from "../Gateway/AgUi/Fixture.ts"
import { completeTurn, connect, createSession, makeStarted } from "../Gateway/Socket/Fixture.ts"
import { test } from "../Tests.ts"

const simulated = ["reasoning: What was said can be echoed.", 'assistant: write_file({"path":"notes/last-message.md"})']

describe("the simulated agent", () => {
  test.scopedLive("runs, asks and is stopped", function* () {
    const { agentsUrl, awaitState } = yield* Simulator.make()
    const client = clientOf(`${agentsUrl}/echo`)
    const first = yield* client.say("hello", "run-1")
    assert.isUndefined(first.failure)
    expect(textsOf(client.agent.messages)).toEqual([
      ...["user: hello", ...simulated, "tool: wrote notes/last-message.md", "assistant: echo: hello"]
    ])
    yield* client.say("/approve", "run-2")
    const resume = client.interrupts().map(({ id }) => ({
      ...{ interruptId: id, status: "resolved" as const, payload: { approved: true } }
    }))
    assert.lengthOf(resume, 1)
    const resumed = yield* client.run({ runId: "run-3", resume })
    expect(resumed.last).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } })
    assert.strictEqual(textsOf(client.agent.messages).at(-1), "assistant: approved")
    const failed = yield* client.say("/fail no luck", "run-4")
    expect(failed.last).toMatchObject({ type: "RUN_ERROR", code: "simulated", message: "no luck" })
    const hanging = yield* Effect.fork(client.say("/hang", "run-5"))
    yield* client.until(({ runId, type }) => type === "RUN_STARTED" && runId === "run-5")
    client.agent.abortRun()
    yield* Fiber.join(hanging)
    const { instances } = yield* awaitState(({ instances }) => instances[0]?.turns === 4)
    assert.lengthOf(instances, 1)
    expect((yield* client.say("/crash", "run-6")).last).toMatchObject({ type: "RUN_ERROR", code: "instance_lost" })
  })

  test.scopedLive("behind a gateway", function* () {
    const { agentsUrl } = yield* Simulator.make()
    const gateway = yield* makeStarted({ agents: { url: Option.some(`${agentsUrl}/echo`) } })
    const client = clientOf(`${gateway.agUi}/echo`)
    yield* client.say("hello")
    expect(textsOf(client.agent.messages)).toEqual([
      ...["user: hello", ...simulated, "tool: wrote notes/last-message.md", "assistant: echo: hello"]
    ])
    const socket = yield* connect(gateway.url)
    const sessionId = yield* createSession(socket)
    yield* socket.get("subscribed", { type: "subscribe", sessionId })
    yield* completeTurn(socket, sessionId, "/write notes.md text")
    expect(socket.events(sessionId).map(({ type }) => type)).toContain("file_changed")
  })
})
