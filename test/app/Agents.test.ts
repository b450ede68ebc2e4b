/** The whole service before an AG-UI agent. */
import { assert, describe, expect } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { clientOf, textsOf } from "../Gateway/AgUi/Fixture.ts"
import { serve } from "../service/InProcess.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"
import { lines, make } from "../Upstream/AgUiAgent/AgentServer.ts"

describe("the service before an AG-UI agent", () => {
  test.scopedLive("continues a conversation after a restart", function* () {
    const agent = yield* make(run => {
      run.begin()
      run.say(`echo: ${run.text}`)
      run.finish()
    })
    const directory = yield* temporaryDirectory
    const started = Effect.gen(function* () {
      const scope = yield* Scope.make()
      const env = {
        DEV_MODE: "true",
        DATA_DIR: directory,
        AGENT_URL: `${agent.url}?key=secret`,
        AGENT_HEALTH_URL: agent.base
      }
      const { url } = yield* Scope.extend(serve(env), scope)
      return { url, stop: Scope.close(scope, Exit.void) }
    })
    const first = yield* started
    yield* clientOf(`${first.url}/api/v1/ag-ui/any`).say("one", "run-1")
    const health = yield* Effect.promise(() => fetch(`${first.url}/health`).then(answer => answer.json()))
    expect(health).toMatchObject({
      dependencies: expect.arrayContaining([expect.objectContaining({ name: "agent_platform", status: "ok" })])
    })
    const authorization = "Bearer dev-key"
    const activity = yield* Effect.promise(() =>
      fetch(`${first.url}/api/v1/activity`, { headers: { authorization } }).then(
        answer => answer.json() as Promise<{ agents: unknown }>
      )
    )
    assert.deepStrictEqual(activity.agents, [{ agentType: null, address: agent.url }])
    yield* first.stop
    const second = yield* started
    const client = clientOf(`${second.url}/api/v1/ag-ui/any`)
    yield* client.run({ runId: "run-1" })
    const { failure } = yield* client.say("two", "run-2")
    assert.isUndefined(failure)
    expect(textsOf(client.agent.messages)).toEqual([
      ...["user: one", "assistant: echo: one", "user: two", "assistant: echo: two"]
    ])
    expect(lines(agent.runs[1]!.input.messages)).toEqual(["user: one", "assistant: echo: one", "user: two"])
    yield* second.stop
  })
})
