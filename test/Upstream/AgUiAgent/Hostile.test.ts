/** Agents that are broken or hostile, next to one that is neither: a turn ends once with a clear error. */
import { assert, describe, expect } from "@effect/vitest"
import { Option } from "effect"
import type { Event } from "../../../src/Gateway/Protocol.ts"
import { completeTurn, connect, createSession, makeStarted } from "../../Gateway/Socket/Fixture.ts"
import { test } from "../../Tests.ts"
import { make, type Run, type Script } from "./AgentServer.ts"

const isEnd = ({ type }: Event) => type === "turn_completed" || type === "turn_errored" || type === "turn_interrupted"

const head = (run: Run, status = 200, headers: Record<string, string> = {}) =>
  run.response.writeHead(status, { "content-type": "text/event-stream", ...headers })

const honest: Script = run => {
  run.begin()
  run.say("fine")
  run.finish()
}

/** Writes as fast as the gateway reads, until it ends the request. */
const flood = (run: Run, text: string) => {
  const write = () => {
    while (!run.isClosed && run.response.write(text)) {}
    if (!run.isClosed) run.response.once("drain", write)
  }
  write()
}

const times = { connect: "3 seconds", silence: "300 millis", run: "1 second" } as const

type Attack = readonly [name: string, script: Script, code: string]

const attacks: ReadonlyArray<Attack> = [
  ["answers 500", run => void head(run, 500).end("internal 10.0.0.1"), "delivery_unknown"],
  ["answers 503 at every try", run => void head(run, 503, { "retry-after": "0" }).end(), "delivery_unknown"],
  ["redirects", run => void head(run, 307, { location: "/elsewhere" }).end(), "not_sent"],
  ["answers with a page", run => void head(run, 200, { "content-type": "text/html" }).end("<p>"), "agent_malformed"],
  ["answers nothing", () => {}, "delivery_unknown"],
  ["sends no event", run => void head(run).flushHeaders(), "timeout"],
  ["sends an empty stream", run => void head(run).end(), "delivery_unknown"],
  ["closes the connection", run => void run.request.socket.destroy(), "delivery_unknown"],
  [
    "breaks off",
    run => {
      run.begin()
      run.say("almost")
      setImmediate(() => run.request.socket.destroy())
    },
    "delivery_unknown"
  ],
  [
    "ends without an end",
    run => {
      run.begin()
      run.say("almost")
      run.response.end()
    },
    "delivery_unknown"
  ],
  ["sends no JSON", run => void head(run).write("data: {oops\n\n"), "agent_malformed"],
  ["sends no object", run => void head(run).write("data: [1]\n\n"), "agent_malformed"],
  [
    "sends nothing after its start",
    run => {
      run.begin()
    },
    "timeout"
  ],
  [
    "sends one byte after the other",
    run => {
      run.begin()
      const timer = setInterval(() => (run.isClosed ? clearInterval(timer) : run.response.write("x")), 20)
    },
    "timeout"
  ],
  [
    "sends comments without end",
    run => {
      run.begin()
      flood(run, ": comment\n\n")
    },
    "timeout"
  ],
  [
    "sends a line that does not end",
    run => {
      run.begin()
      flood(run, "x".repeat(64 * 1024))
    },
    "timeout"
  ],
  [
    "sends events without end",
    run => {
      run.begin()
      flood(run, 'data: {"type":"STATE_DELTA","delta":[]}\n\n')
    },
    "timeout"
  ],
  [
    "sends events of 10 MB",
    run => {
      run.begin()
      const big = `data: ${JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "x".repeat(10_000_000) })}\n\n`
      for (let count = 0; count < 3; count++) run.response.write(big)
      run.response.end()
    },
    // A slow machine takes longer than the silence that is allowed.
    "delivery_unknown|timeout"
  ],
  [
    "sends events in a wrong order",
    run => {
      head(run)
      run.event("TEXT_MESSAGE_END", { messageId: "m" })
      run.event("TOOL_CALL_RESULT", { messageId: "r", toolCallId: "c", content: "?" })
      run.event("TEXT_MESSAGE_CONTENT", { messageId: "m", delta: "lost" })
      run.event("RUN_ERROR", { message: "confused", code: "E9" })
      run.event("RUN_FINISHED", { threadId: "other", runId: "other" })
      run.event("RUN_ERROR", { message: "again" })
      run.response.end()
    },
    "E9"
  ],
  [
    "asks in a form that is not understood",
    run => {
      run.begin()
      run.finish({ outcome: { type: "interrupt", interrupts: "?" } })
    },
    "agent_malformed"
  ]
]

describe("a turn ends once, and other agents work, if an agent", () => {
  for (const [name, script, code] of attacks)
    test.scopedLive(name, function* () {
      const bad = yield* make(script)
      const good = yield* make(honest)
      const urls = new Map([
        ["bad", bad.url],
        ["good", good.url]
      ])
      const gateway = yield* makeStarted({ agents: { urls, times } })
      const client = yield* connect(gateway.url)
      const [victim, other] = [
        yield* createSession(client, { agentType: "bad" }),
        yield* createSession(client, { agentType: "good" })
      ]
      for (const sessionId of [victim, other]) yield* client.get("subscribed", { type: "subscribe", sessionId })
      yield* client.ask({ type: "send_message", sessionId: victim, content: "hi" })
      yield* completeTurn(client, other, "hello")
      yield* client.untilEvent(victim, isEnd)
      yield* completeTurn(client, other, "hello again")
      const ends = client.events(victim).filter(isEnd)
      expect(ends).toEqual([
        expect.objectContaining({ type: "turn_errored", code: expect.stringMatching(`^(?:${code})$`) })
      ])
      assert.lengthOf(bad.runs, 1)
      yield* bad.until(() => (bad.runs.every(({ isClosed }) => isClosed) ? true : undefined))
    })
})

describe("the breaker of an agent type", () => {
  test.scopedLive("opens for the type alone", function* () {
    const agent = yield* make(run => (run.text === "fail" ? void head(run, 500).end() : honest(run)))
    const gateway = yield* makeStarted({ agents: { url: Option.some(agent.url) } })
    const client = yield* connect(gateway.url)
    const [bad, good] = [
      yield* createSession(client, { agentType: "bad" }),
      yield* createSession(client, { agentType: "good" })
    ]
    for (const sessionId of [bad, good]) yield* client.get("subscribed", { type: "subscribe", sessionId })
    for (let count = 0; count < 5; count++) {
      yield* client.ask({ type: "send_message", sessionId: bad, content: "fail" })
      yield* client.until(() => client.events(bad).filter(isEnd).length === count + 1)
    }
    const rejected = yield* client.ask({ type: "send_message", sessionId: bad, content: "fail" })
    expect(rejected).toMatchObject({ type: "error", error: { message: expect.stringContaining("circuit breaker") } })
    assert.lengthOf(agent.runs, 5)
    yield* completeTurn(client, good, "hello")
  })
})
