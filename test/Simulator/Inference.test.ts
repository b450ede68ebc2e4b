import { assert, describe, expect, it } from "@effect/vitest"
import { Effect, Fiber, FastCheck as fc, Option } from "effect"
import * as Titles from "../../src/Gateway/Sessions/Session/Titles.ts"
import { plainText, serverSentEvents, tokens } from "../../src/Simulator/Inference.ts"
import { cut } from "../../src/Simulator/SimulatedService.ts"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { codePoint } from "../CodePoint.ts"
import { clientOf, textsOf } from "../Gateway/AgUi/Fixture.ts"
import { completeTurn, connect, createSession, makeStarted } from "../Gateway/Socket/Fixture.ts"
import { times } from "../Scale.ts"
import { test } from "../Tests.ts"
import { live, request } from "./Fixture.ts"

const runs = times(100)

const generate = (inferenceUrl: string, prompt: string, headers: Readonly<Record<string, string>> = {}, more = {}) =>
  request(`${inferenceUrl}/api/v1/generate/stream`, { body: { prompt, ...more }, headers })

/** Reads Server-Sent Events by the HTML standard's rules, except `id`, `event` and `retry`. */
const dataOf = (text: string): ReadonlyArray<string> => {
  const events: Array<string> = []
  let lines: Array<string> = []
  for (const line of text.split(/\r\n|\n|\r/)) {
    if (line === "") {
      if (lines.length > 0) events.push(lines.join("\n"))
      lines = []
    } else if (line.startsWith("data: ")) lines.push(line.slice(6))
  }
  return events
}

const textOf = (data: ReadonlyArray<string>): string =>
  data
    .filter(text => text !== "[DONE]")
    .map(text => Object.values(JSON.parse(text) as Record<string, string>).join())
    .join("")

live("generates Server-Sent Events or plain text, as the client accepts", function* ({ inferenceUrl, state }) {
  const expected = "Écho de «Grüße an alle, zwölf 🦆» 回声 🌊"
  for (const accept of ["text/event-stream", "*/*", "text/event-stream, text/plain"]) {
    const reply = yield* generate(inferenceUrl, "Grüße an alle, zwölf 🦆", { accept })
    expect(reply.headers["content-type"]).toMatch(/^text\/event-stream/)
    const data = dataOf(reply.body.toString("utf8"))
    expect(data.at(-1)).toBe("[DONE]")
    expect(textOf(data)).toBe(expected)
  }
  const plain = yield* generate(inferenceUrl, "Grüße an alle, zwölf 🦆", { accept: "text/plain" })
  expect(plain.headers["content-type"]).toMatch(/^text\/plain/)
  expect(plain.body.toString("utf8")).toBe(expected)
  expect((yield* state).requests.generate).toBe(4)
})

live("generates the configured format, whatever the client accepts", { format: "text" }, function* ({ inferenceUrl }) {
  const reply = yield* generate(inferenceUrl, "/long 9", { accept: "text/event-stream" }, { maxTokens: 3, model: "m" })
  expect(reply.body.toString("utf8")).toBe("1 2 3 ")
})

it("what is generated says the prompt again, whole, in any notation and cut anywhere", () => {
  const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 })
  fc.assert(
    fc.property(fc.string({ unit: codePoint, maxLength: 200 }), sizes, (prompt, [first = 1, ...others]) => {
      fc.pre(!prompt.startsWith("/long"))
      const text = tokens({ prompt })
      const expected = `Écho de «${prompt}» 回声 🌊`
      const plain = Buffer.concat([...cut(plainText(text, false), [first, ...others])])
      const events = Buffer.concat([...cut(serverSentEvents(text, false), [first, ...others])])
      expect(plain.toString("utf8")).toBe(expected)
      expect(textOf(dataOf(events.toString("utf8")))).toBe(expected)
    }),
    { numRuns: runs }
  )
})

it("pieces have the sizes asked for, but the last", () => {
  const pieces = cut([Buffer.alloc(5), Buffer.alloc(0), Buffer.alloc(12)], [1, 4])
  expect([...pieces].map(piece => piece.length)).toEqual([1, 4, 1, 4, 1, 4, 1, 1])
})

it("makes a title of the first words of what is to be titled", () => {
  const title = (message: string, maxTokens = 32) => tokens({ prompt: Titles.promptFor(message), maxTokens }).join("")
  expect(title("How do the tides work, and why\nare there two of them in a day?")).toBe("How do the tides work, and")
  expect(title("Hello")).toBe("Hello")
  expect(title("a\n\nb")).toBe("a b")
  expect(tokens({ prompt: "Write a poem\n\nplease" }).join("")).toContain("Write a poem")
})

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
