/** What limits the turns that clients of other protocols follow, as sockets are limited; how they are counted and traced. */
import { assert, describe, expect, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Metric, Option } from "effect"
import { MiB } from "../../../src/base/Bytes.ts"
import * as EventsInMemory from "../../../src/Gateway/SessionEvents/Memory.ts"
import type { Simulator } from "../../../src/Simulator/Simulator.ts"
import { pass } from "../../../src/Simulator/Testing/Time.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { recording } from "../../base/Observability/Recording.ts"
import { given } from "../../Given.ts"
import { test } from "../../Tests.ts"
import { ask, eventsUntil, post } from "../HttpSessions/Fixture.ts"
import { live, make, makeStarted, type Options, timed } from "../Socket/Fixture.ts"
import { claims, sign, withSecret } from "../Socket/Tenants.ts"
import { kinds } from "./Following.ts"

const ample = Layer.merge(Memory.layer, EventsInMemory.layer({ events: 1_000_000, bytes: 1024 ** 3 }))

const narrow = { socket: { unsentBytes: 64 * 1024 }, stored: ample }

const secured = given(it.scopedLive, (options: Options = {}) => makeStarted({ ...options, authentication: withSecret }))

const as = (tenant: string) => Effect.map(sign({ ...claims, tenant }), token => ({ authorization: `Bearer ${token}` }))

/** The value of a counter with a label. */
const counted = (name: string, value: string): number =>
  Metric.unsafeSnapshot().reduce((sum, { metricKey, metricState }) => {
    const isIt = metricKey.name === name && metricKey.tags.some(tag => tag.value === value)
    return isIt && "count" in metricState ? sum + Number(metricState.count) : sum
  }, 0)

/** Characters of a large message. */
const large = 900_000

/** Makes an agent write large messages in a turn. */
const emit = (
  simulator: Effect.Effect.Success<typeof Simulator>,
  instanceId: string,
  turnId: string,
  messages: number
) =>
  Effect.forEach(
    Array.from({ length: messages }, (_, i) => `m${i}`),
    messageId => simulator.emit(instanceId, { type: "message.delta", turnId, messageId, delta: "x".repeat(large) }),
    { discard: true }
  )

/** The turn in progress of a session. */
const turnIn = (session: string, headers: Readonly<Record<string, string>> = {}) =>
  Effect.map(ask(`${session}/conversation`, { headers }), ({ text }) => String(JSON.parse(text).turns[0]))

describe.each(Object.entries(kinds))("%s", (_, { ends, follow, hasStarted, protocol, span }) => {
  secured(
    "shares the connections: a full gateway is 503, and the newest of the largest tenant gives way",
    { socket: { connections: 2 } },
    function* (gateway) {
      const [acme, evil] = [yield* as("acme"), yield* as("evil")]
      const first = yield* follow(gateway, "a", "1", "/hang", evil)
      yield* first.until(hasStarted)
      const second = yield* follow(gateway, "b", "2", "/hang", evil)
      yield* second.until(hasStarted)
      assert.strictEqual(yield* Effect.flip(follow(gateway, "c", "3", "/hang", evil)), 503)
      // Nothing runs for it.
      assert.lengthOf((yield* ask(gateway.base, { headers: evil })).json.sessions, 2)
      const mine = yield* follow(gateway, "a", "1", "/hang", acme)
      yield* mine.until(hasStarted)
      assert.strictEqual(yield* second.end, ends.busy)
    }
  )

  timed("ends for a client that reads nothing, which holds few bytes until then", narrow, function* (gateway) {
    const one = yield* follow(gateway, "c", "1", "/hang")
    yield* one.until(hasStarted)
    one.pause()
    const { base, simulator } = gateway
    const { id, instanceId } = (yield* ask(base)).json.sessions[0]!
    yield* emit(simulator, instanceId!, yield* turnIn(`${base}/${id}`), 20)
    yield* eventsUntil(base, id, event => event.type === "text_delta" && event.messageId === "m19")
    yield* pass(protocol === "ai_sdk_websocket" ? "52 seconds" : "34 seconds", "1 second")
    one.resume()
    assert.strictEqual(yield* one.end, ends.slow)
    assert.isBelow(one.text().length, 15 * large)
  })

  secured(
    "shares the memory of conversations, in which a turn may grow",
    { socket: { fileBytes: 64 * MiB } },
    function* ({ base, simulator, ...gateway }) {
      const [acme, evil] = [yield* as("acme"), yield* as("evil")]
      const first = yield* follow(gateway, "c", "1", "/hang", evil)
      yield* first.until(hasStarted)
      const second = yield* follow(gateway, "c", "1", "/hang", evil)
      yield* second.until(hasStarted)
      const { id, instanceId } = (yield* ask(base, { headers: evil })).json.sessions[0]!
      yield* emit(simulator, instanceId!, yield* turnIn(`${base}/${id}`, evil), 8)
      const end = yield* Effect.raceFirst(first.end, second.end)
      assert.strictEqual(end, ends.busy)
      const third = yield* Effect.either(follow(gateway, "c", "1", "/hang", evil))
      if (third._tag === "Left") assert.strictEqual(third.left, 503)
      else assert.match(yield* third.right.end, /no more memory for conversations/)
      const mine = yield* follow(gateway, "c", "1", "/hang", acme)
      yield* mine.until(hasStarted)
    }
  )

  test.scopedLive("has a span with the tenant, in the trace of the request, and is counted", function* () {
    const { spans, tracer } = yield* recording
    const gateway = yield* Effect.withTracer(
      Effect.flatMap(make(), ({ start }) => start),
      tracer
    )
    const [streams, events] = [
      counted("session_streams_total", protocol),
      counted("ws_messages_sent_total", "chat_end")
    ]
    const requests = counted("ws_messages_received_total", "chat_send")
    const traceId = "0af7651916cd43dd8448eb211c80319c"
    const one = yield* follow(gateway, "c", "1", "hi", { traceparent: `00-${traceId}-b7ad6b7169203331-01` })
    yield* one.until(text => /RUN_FINISHED|"type":"finish"/.test(text))
    assert.strictEqual(counted("session_streams_total", protocol), streams + 1)
    const found = spans.filter(({ name }) => name === span)
    expect(found.map(({ attributes }) => attributes.get("tenant"))).toEqual([expect.any(String)])
    assert.deepStrictEqual([found[0]!.traceId, Option.isSome(found[0]!.parent)], [traceId, true])
    if (protocol !== "ai_sdk_websocket") return
    yield* one.until(text => text.includes('"type":"end"'))
    assert.strictEqual(counted("ws_messages_received_total", "chat_send"), requests + 1)
    assert.strictEqual(counted("ws_messages_sent_total", "chat_end"), events + 1)
  })
})

describe("A message", () => {
  for (const [name, body] of [
    ["AG-UI", { threadId: "c", runId: "r", messages: [{ id: "m", role: "user", content: "hi" }] }],
    ["the AI SDK", { id: "c", messages: [{ id: "m", role: "user", parts: [{ type: "text", text: "hi" }] }] }]
  ] as const) {
    live(`of ${name} is carried out though its client has disconnected before the first answer`, function* (gateway) {
      const { agUi, chats, simulator } = gateway
      yield* simulator.inject({ operation: "create", times: 1, fault: { kind: "latency", millis: 300 } })
      const sending = yield* Effect.fork(post(name === "AG-UI" ? `${agUi}/echo` : chats, body))
      yield* simulator.awaitState(({ requests }) => requests.create === 1)
      yield* Fiber.interrupt(sending)
      yield* simulator.awaitState(({ frames }) => frames.message === 1)
    })
  }
})
