/** Runs of an agent in virtual time: what its breaker counts, and how a turn ends. */
import { assert, describe, expect } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Option, Stream, TestClock } from "effect"
import { AgentPlatform } from "../../../src/Upstream/AgentPlatform.ts"
import * as AgUiAgent from "../../../src/Upstream/AgUiAgent.ts"
import type { PlatformEvent } from "../../../src/Upstream/PlatformEvent.ts"
import { test } from "../../Tests.ts"
import * as Stub from "../Stub.ts"

const bytes = (text: string) => new TextEncoder().encode(text)
const data = (...events: ReadonlyArray<object>) => events.map(event => `data: ${JSON.stringify(event)}\n\n`).join("")
const begin = { type: "RUN_STARTED", threadId: "t", runId: "r" }
const finish = { type: "RUN_FINISHED", threadId: "t", runId: "r" }
const said = { type: "TEXT_MESSAGE_CHUNK", messageId: "m", delta: "hello" }

const streaming = (body: Stream.Stream<Uint8Array>) => Stub.streaming("text/event-stream", body)
const sending = (text: string) => streaming(Stream.make(bytes(text)))
const fine = sending(data(begin, said, finish))
const breaking = sending(data(begin, said))
const slow = (delay: `${number} seconds`) =>
  streaming(Stream.fromEffect(Effect.delay(Effect.succeed(bytes(data(begin, finish))), delay)))

const isEnd = ({ type }: PlatformEvent) => ["turn.completed", "turn.failed", "turn.cancelled"].includes(type)

/** The agent of a type, whose requests get these answers. */
const make = (...answers: Parameters<typeof Stub.make>[0]) =>
  Effect.gen(function* () {
    const stub = Stub.make(answers)
    const conversation = { epoch: "0123456789", seq: 0, trimmedSeq: 0, turns: [], waiting: [], messages: [] }
    const history = Layer.succeed(AgUiAgent.SessionHistory, { read: () => Effect.succeed(conversation) })
    const agents = AgUiAgent.layer({ ...AgUiAgent.none, url: Option.some("http://agent.test/run") })
    const built = yield* Layer.build(Layer.provide(agents, Layer.merge(stub.layer, history)))
    const platform = Context.get(built, AgentPlatform)
    const parameters = { agentType: "echo", deployment: undefined, secrets: {}, environment: {} }
    const connect = Effect.flatMap(platform.create(parameters), id => platform.connect(id))

    /** The events of a turn to its end, or the refusal of its message. */
    const turn = (turnId: string) =>
      Effect.gen(function* () {
        const { send, take } = yield* connect
        yield* send({ type: "message", content: "hi", turnId })
        const events: Array<PlatformEvent> = []
        while (!events.some(isEnd)) {
          const [values, isDone] = yield* take
          for (const one of values) if ("payload" in one) events.push(one)
          assert.isFalse(isDone)
        }
        return events
      }).pipe(Effect.scoped)
    const code = (turnId: string) =>
      Effect.map(Effect.either(turn(turnId)), result =>
        result._tag === "Left" ? result.left.reason : (result.right.at(-1)!.payload.code ?? result.right.at(-1)!.type)
      )
    return { stub, connect, turn, code }
  })

const opened = Effect.fnUntraced(function* (...later: ReadonlyArray<typeof fine>) {
  const failing = Stub.status(500)
  const agent = yield* make(failing, failing, failing, failing, failing, ...later)
  for (let count = 0; count < 5; count++) assert.strictEqual(yield* agent.code(`failed-${count}`), "delivery_unknown")
  assert.strictEqual(yield* agent.code("rejected"), "circuit_open")
  yield* TestClock.adjust("10 seconds")
  return agent
})

describe("the breaker of an agent", () => {
  test.scoped("closes when the agent answers, even if its first event comes minutes later", function* () {
    const agent = yield* opened(slow("200 seconds"), fine)
    const first = yield* Effect.fork(agent.code("slow"))
    yield* TestClock.adjust("40 seconds")
    assert.strictEqual(yield* agent.code("another"), "turn.completed")
    yield* TestClock.adjust("160 seconds")
    assert.strictEqual(yield* Fiber.join(first), "turn.completed")
  })

  test.scoped("closes when the agent answers late, and does not shut out others until then", function* () {
    const agent = yield* opened(Stub.late(50_000, fine), Stub.late(50_000, fine), fine)
    const first = yield* Effect.fork(agent.code("slow"))
    yield* TestClock.adjust("9 seconds")
    assert.strictEqual(yield* agent.code("too early"), "circuit_open")
    yield* TestClock.adjust("1 seconds")
    const second = yield* Effect.fork(agent.code("slow too"))
    yield* TestClock.adjust("40 seconds")
    assert.strictEqual(yield* Fiber.join(first), "turn.completed")
    assert.strictEqual(yield* agent.code("fast"), "turn.completed")
    yield* TestClock.adjust("10 seconds")
    assert.strictEqual(yield* Fiber.join(second), "turn.completed")
  })

  test.scoped("opens when streams break off, and not when they are stopped", function* () {
    const endless = streaming(Stream.concat(Stream.make(bytes(data(begin))), Stream.never))
    const agent = yield* make(endless, endless, endless, endless, endless, endless, breaking)
    for (let count = 0; count < 6; count++) {
      const { send, take } = yield* agent.connect
      yield* send({ type: "message", content: "hi", turnId: "stopped" })
      yield* take
      yield* send({ type: "interrupt", turnId: "stopped" })
      yield* take
    }
    for (let count = 0; count < 5; count++) assert.strictEqual(yield* agent.code(`broken-${count}`), "delivery_unknown")
    assert.strictEqual(yield* agent.code("rejected"), "circuit_open")
    assert.lengthOf(agent.stub.seen, 11)
  })
})

describe("a turn of an agent", () => {
  const after = [
    { type: "CUSTOM", name: "late", value: 1 },
    { type: "RAW", event: {} },
    { type: "STATE_SNAPSHOT", snapshot: {} },
    { type: "MESSAGES_SNAPSHOT", messages: [{ id: "m", role: "assistant", content: "hello" }] },
    { type: "TEXT_MESSAGE_CHUNK", messageId: "late", delta: "late" }
  ]
  const types = ["turn.started", "message.start", "message.delta", "message.complete", "turn.completed"]

  test.scoped("ends with its run, whatever follows, and so does its request", function* () {
    for (const one of after) {
      const bodies = [
        sending(data(begin, said, finish, one)),
        streaming(Stream.concat(Stream.make(bytes(data(begin, said, finish)), bytes(data(one))), Stream.never))
      ]
      for (const body of bodies) {
        const agent = yield* make(body)
        expect((yield* agent.turn("t")).map(({ type }) => type)).toEqual(types)
        yield* Effect.yieldNow()
        assert.isTrue(agent.stub.seen[0]!.isAborted())
      }
    }
  })

  test.scoped("ends by a last event without an empty line, if it is whole", function* () {
    const last = `data: ${JSON.stringify(finish)}`
    for (const end of [last, `${last}\n`]) {
      const agent = yield* make(sending(data(begin, said) + end))
      expect((yield* agent.turn("t")).map(({ type }) => type)).toEqual(types)
    }
    const agent = yield* make(sending(data(begin, said) + last.slice(0, -1)))
    assert.strictEqual(yield* agent.code("t"), "delivery_unknown")
  })

  test.scoped(
    "is complete if its stream ends after the results of calls that were open at the end of its run",
    function* () {
      const call = { type: "TOOL_CALL_CHUNK", toolCallId: "c", toolCallName: "look", delta: "{}" }
      const result = { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "c", content: "found" }
      const agent = yield* make(sending(data(begin, call, finish, result)))
      assert.strictEqual(yield* agent.code("t"), "turn.completed")
    }
  )

  test.scoped("fails if no event comes", function* () {
    const agent = yield* make(streaming(Stream.never))
    const turn = yield* Effect.fork(agent.code("t"))
    yield* TestClock.adjust("5 minutes")
    assert.strictEqual(yield* Fiber.join(turn), "timeout")
  })
})
