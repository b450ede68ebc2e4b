/** The service before an AG-UI agent, killed as a crash or the kernel would kill it. */
import { assert, expect, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { clientOf, ignoringCuts, quiet, textsOf } from "../Gateway/AgUi/Fixture.ts"
import { post } from "../Gateway/HttpSessions/Fixture.ts"
import { secret, token } from "../Gateway/survival/Token.ts"
import * as Environment from "../service/Environment.ts"
import * as Service from "../service/Service.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { lines, make, type Script } from "../Upstream/AgUiAgent/AgentServer.ts"

const script: Script = run => {
  run.begin()
  if (run.text === "long") return run.say("half of it")
  if (run.text !== "ask") run.say(`echo: ${run.text}`)
  const interrupts = [{ id: "q", reason: "input_required", message: "Which?" }]
  run.finish(run.text === "ask" ? { outcome: { type: "interrupt", interrupts } } : {})
}

/** A service that is killed and started again in the same directory, and a client of it. */
const started = Effect.gen(function* () {
  yield* Effect.all([ignoringCuts, quiet])
  const agent = yield* make(script)
  const directory = yield* temporaryDirectory
  const start = Service.start({ directory, env: { AGENT_URL: agent.url, GATEWAY_JWT_SECRET: secret } })
  let service = yield* start
  const headers = { authorization: `Bearer ${yield* token("acme")}` }
  const client = clientOf(`${service.url}/api/v1/ag-ui/any`, { headers })
  const restart = Effect.gen(function* () {
    yield* service.end("SIGKILL")
    service = yield* start
    client.agent.url = `${service.url}/api/v1/ag-ui/any`
  })
  return { agent, client, headers, restart }
})

const restarted = { type: "RUN_ERROR", code: "gateway_restarted" }

layer(Environment.layer, { excludeTestServices: true })("the service before an AG-UI agent, after kill -9", it => {
  it.scoped("in the middle of an answer: it keeps what was said, repeats nothing, and the chat continues", () =>
    Effect.gen(function* () {
      const { agent, client, restart } = yield* started
      const running = yield* Effect.fork(client.say("long", "run-1"))
      yield* Effect.raceFirst(
        client.until(({ delta }) => delta === "it"),
        Fiber.join(running)
      )
      yield* Effect.all([restart, Fiber.join(running)], { concurrency: 2 })
      expect((yield* client.run({ runId: "run-1" })).last).toMatchObject(restarted)
      yield* agent.until(() => (agent.runs[0]!.isClosed ? true : undefined))
      assert.lengthOf(agent.runs, 1)
      expect((yield* client.say("hello", "run-2")).last).toMatchObject({ outcome: { type: "success" } })
      const texts = ["user: long", "assistant: half of it", "user: hello", "assistant: echo: hello"]
      assert.deepStrictEqual(textsOf(client.agent.messages), texts)
      assert.deepStrictEqual(lines(agent.runs[1]!.input.messages), texts.slice(0, 3))
    })
  )

  it.scoped("while a person is asked: the turn has failed, the answer is refused, and the chat continues", () =>
    Effect.gen(function* () {
      const { agent, client, headers, restart } = yield* started
      expect((yield* client.say("ask", "run-1")).last).toMatchObject({ outcome: { type: "interrupt" } })
      const resume = client
        .interrupts()
        .map(({ id }) => ({ interruptId: id, status: "resolved" as const, payload: "red" }))
      assert.lengthOf(resume, 1)
      yield* restart
      const { messages, url } = client.agent
      const late = yield* post(url, { threadId: "thread-1", runId: "run-2", messages, resume }, headers)
      expect([late.status, late.json.error]).toEqual([409, expect.stringContaining("no such request waits")])
      client.agent.pendingInterrupts = []
      expect((yield* client.run({ runId: "run-1" })).last).toMatchObject(restarted)
      expect((yield* client.say("hello", "run-3")).last).toMatchObject({ outcome: { type: "success" } })
      assert.lengthOf(agent.runs, 2)
    })
  )
})
