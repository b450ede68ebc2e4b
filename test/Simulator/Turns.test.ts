import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as TestClock from "effect/TestClock"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { given } from "../Given.ts"
import { onlyLong } from "../Scale.ts"
import { test } from "../Tests.ts"
import { type Client, connect, create, textOf, types } from "./Fixture.ts"

const start = (options?: Simulator.Options) =>
  Effect.gen(function* () {
    const simulator = yield* Simulator.make(options)
    const id = yield* create(simulator.platformUrl)
    const client = yield* connect(simulator.platformUrl, id)
    return { ...simulator, id, client }
  })

const live = given(it.scopedLive, start)

const timed = given(it.scoped, start)

/** Every type of the platform's events that the gateway's design names. */
const everyType = [
  ...["instance.starting", "instance.ready", "instance.stopping", "instance.stopped", "instance.failed"],
  ...["heartbeat", "log", "turn.started", "turn.completed", "turn.failed", "turn.cancelled"],
  ...["message.start", "message.delta", "message.complete", "thinking.start", "thinking.delta", "thinking.complete"],
  ...["tool.call.start", "tool.call.delta", "tool.call", "tool.progress", "tool.result", "tool.error"],
  ...["question.asked", "question.answered", "approval.requested", "approval.resolved"],
  ...["terminal.opened", "terminal.output", "terminal.exited"],
  ...["file.created", "file.modified", "file.deleted", "file.renamed"],
  ...["plan.updated", "step.started", "step.completed", "subagent.started", "subagent.completed"],
  ...["artifact.created", "checkpoint.created", "state.snapshot", "state.delta", "usage", "rate_limited", "error"]
]

describe("a turn", () => {
  live("thinks, calls a tool, changes a file, answers and reports its usage", function* ({ client }) {
    const events = yield* client.turn("Grüße an 🌊 and all", "t1")
    expect(types(events).filter((type, i, all) => type !== all[i - 1])).toEqual([
      ...["turn.started", "thinking.start", "thinking.delta", "thinking.complete"],
      ...["tool.call.start", "tool.call.delta", "tool.call", "file.created", "tool.result"],
      ...["message.start", "message.delta", "message.complete", "usage", "turn.completed"]
    ])
    expect(textOf(events)).toBe("echo: Grüße an 🌊 and all")
    expect(events.find(({ type }) => type === "message.complete")?.content).toBe(textOf(events))
    expect(client.events.map(({ id }) => id)).toEqual(client.events.map((_, i) => `e${i + 1}`))
    for (const { timestamp } of client.events) expect(timestamp).toBeTypeOf("number")
  })

  live("follows the one before it, and is taken once however often it is sent", function* ({ client, state }) {
    for (const turnId of ["t1", "t2", "t1", "t3"]) yield* client.send({ type: "message", content: "/long 50", turnId })
    yield* client.until("turn.completed", ({ turnId }) => turnId === "t3")
    const marks = client.events.filter(({ type }) => type === "turn.started" || type === "turn.completed")
    expect(marks.map(({ turnId }) => turnId)).toEqual(["t1", "t1", "t2", "t2", "t3", "t3"])
    expect((yield* state).instances[0]?.turns).toBe(3)
    expect((yield* state).frames.message).toBe(4)
  })

  live("is refused when too many are waiting", { limits: { waitingTurns: 1 } }, function* ({ client }) {
    yield* client.send({ type: "message", content: "/hang", turnId: "t1" })
    yield* client.until("message.start")
    yield* client.send({ type: "message", content: "waits", turnId: "t2" })
    yield* client.send({ type: "message", content: "is refused", turnId: "t3" })
    expect(yield* client.until("error")).toMatchObject({ turnId: "t3", code: "busy", retryable: true })
    yield* client.send({ type: "interrupt", turnId: "t1" })
    yield* client.until("turn.completed", ({ turnId }) => turnId === "t2")
  })

  live("ends when it is interrupted, at work or waiting, and once", function* ({ client }) {
    yield* client.send({ type: "message", content: "/hang", turnId: "t1" })
    yield* client.send({ type: "message", content: "waits", turnId: "t2" })
    yield* client.until("message.start")
    yield* client.send({ type: "interrupt", turnId: "nobody" })
    yield* client.send({ type: "interrupt", turnId: "t2" })
    yield* client.until("turn.cancelled", ({ turnId }) => turnId === "t2")
    yield* client.send({ type: "interrupt" })
    yield* client.send({ type: "interrupt", turnId: "t1" })
    yield* client.turn("next", "t3")
    const ends = client.events.filter(({ type }) => type === "turn.cancelled")
    expect(ends.map(({ turnId }) => turnId)).toEqual(["t2", "t1"])
  })

  timed("takes its time between events", { pace: "1 second" }, function* ({ client }) {
    yield* client.send({ type: "message", content: "/long 10", turnId: "t1" })
    yield* client.until("turn.started")
    const ticking = yield* Effect.fork(Effect.forever(TestClock.adjust("1 second")))
    const { timestamp } = yield* client.until("turn.completed")
    yield* Fiber.interrupt(ticking)
    expect(timestamp).toBeGreaterThanOrEqual(14_000)
  })

  live("takes an answer for an approval or for a refusal", function* ({ client }) {
    for (const [answer, approved] of [
      [true, true],
      ["approve", true],
      [{ approved: true }, true],
      [false, false],
      ["no", false],
      [null, false]
    ] as const) {
      const turnId = JSON.stringify(answer)
      yield* client.send({ type: "message", content: "/approve", turnId })
      const { requestId } = yield* client.until("approval.requested", event => event.turnId === turnId)
      yield* client.send({ type: "answer", requestId, answer })
      const resolved = yield* client.until("approval.resolved", event => event.turnId === turnId)
      expect(resolved).toMatchObject({ requestId, approved })
    }
  })
})

describe("a command", () => {
  live("/all shows every type of event, and one end for each turn", function* ({ awaitState, client }) {
    yield* client.send({ type: "message", content: "/all", turnId: "t1" })
    expect(yield* client.closed).toBe(1000)
    yield* awaitState(({ instances }) => instances.length === 0)
    expect(new Set(types(client.events))).toEqual(new Set(everyType))
    const marks = client.events.filter(({ type }) => String(type).startsWith("turn."))
    expect(marks.map(({ turnId, type }) => `${turnId} ${type}`)).toEqual([
      ...["t1-failing turn.started", "t1-failing turn.failed"],
      ...["t1-cancelled turn.started", "t1-cancelled turn.cancelled"],
      ...["t1 turn.started", "t1 turn.completed"]
    ])
  })

  live("/unknown and /malformed send what no client expects", function* ({ client }) {
    expect(types(yield* client.turn("/unknown", "t1"))).toEqual([
      ...["turn.started", "poem.recited", "poem.recited", "poem.recited", "silence.kept", "usage", "turn.completed"]
    ])
    yield* client.turn("/malformed", "t2")
    expect(client.events.filter(({ id }) => id === undefined)).toEqual([
      { frame: "{not json" },
      { frame: "[]" },
      { frame: "null" },
      { content: "no type" },
      { type: 5 },
      { frame: "binary" }
    ])
  })

  live("/drop cuts the connection; what was missed comes later", function* ({ client, id, platformUrl }) {
    yield* client.send({ type: "message", content: "/drop", turnId: "t1" })
    expect(yield* client.closed).toBe(1006)
    const again = yield* connect(platformUrl, id, `?after=${client.events.at(-1)!.id}`)
    yield* again.until("turn.completed")
    expect(textOf([...client.events, ...again.events])).toBe("before after")
    yield* again.send({ type: "message", content: "/drop 4000", turnId: "t2" })
    expect(yield* again.closed).toBe(4000)
    const third = yield* connect(platformUrl, id, `?after=${again.events.at(-1)!.id}`)
    yield* third.until("turn.completed", ({ turnId }) => turnId === "t2")
    const ids = [client, again, third].flatMap(({ events }) => events.map(event => event.id))
    expect(ids).toEqual(ids.map((_, i) => `e${i + 1}`))
  })

  live("/crash ends the instance and not the turn", function* ({ awaitState, client, id, platformUrl }) {
    yield* client.send({ type: "message", content: "/crash no more tea", turnId: "t1" })
    expect(yield* client.closed).toBe(1011)
    expect(types(client.events).slice(-3)).toEqual(["turn.started", "message.start", "instance.failed"])
    expect(client.events.at(-1)).toMatchObject({ message: "no more tea" })
    yield* awaitState(({ instances }) => instances.length === 0)
    expect((yield* Effect.flip(Effect.asVoid(connect(platformUrl, id)))).code).toBe("404")
  })

  live("/help names all of them", function* ({ client }) {
    const text = textOf(yield* client.turn("/help", "t1"))
    for (const name of Object.keys(Simulator.commands)) expect(text).toContain(`${name}: `)
  })
})

describe("a connection", () => {
  // More than the buffers of both ends hold, which a short history cannot wait for.
  const flood = (client: Client) =>
    Effect.forEach(Array.from({ length: 16 }), (_, i) =>
      client.send({ type: "message", content: "word ".repeat(90_000), turnId: `t${i}` })
    )

  live("loses nothing when the client is slow", { limits: { history: 20 } }, function* ({ awaitState, client }) {
    client.socket.pause()
    yield* flood(client)
    yield* awaitState(({ instances }) => instances[0]!.events > 100)
    client.socket.resume()
    yield* client.until("turn.completed", ({ turnId }) => turnId === "t15")
    expect(client.events.map(({ id }) => id)).toEqual(client.events.map((_, i) => `e${i + 1}`))
  })

  onlyLong(test.scopedLive)("is closed when the client reads nothing at all, and the turns continue", function* () {
    // So long that it does not end a client that reads, on any machine.
    const { client, awaitState, platformUrl, id } = yield* start({ limits: { history: 20, stall: "3 seconds" } })
    client.socket.pause()
    yield* flood(client)
    yield* awaitState(({ connections }) => connections === 0)
    const other = yield* connect(platformUrl, id)
    yield* other.until("turn.completed", ({ turnId }) => turnId === "t15")
    client.socket.resume()
    expect(yield* client.closed).toBe(1013)
  })

  live(
    "replays what is kept after an event, or at all",
    { limits: { history: 10 } },
    function* ({ client, id, platformUrl }) {
      yield* client.turn("/long 20", "t1")
      const last = client.events.length
      const firstOf = (query: string) =>
        Effect.gen(function* () {
          const other = yield* connect(platformUrl, id, query)
          yield* other.until("turn.completed")
          return other.events[0]?.id
        }).pipe(Effect.scoped)
      expect(yield* firstOf("")).toBe(`e${last - 9}`)
      expect(yield* firstOf("?after=e1")).toBe(`e${last - 9}`)
      expect(yield* firstOf("?after=e99999")).toBe(`e${last - 9}`)
      expect(yield* firstOf("?after=rubbish")).toBe(`e${last - 9}`)
      expect(yield* firstOf(`?after=e${last - 3}`)).toBe(`e${last - 2}`)
      const current = yield* connect(platformUrl, id, `?after=e${last}`)
      yield* current.turn("next", "t2")
      expect(current.events[0]).toMatchObject({ id: `e${last + 1}`, type: "turn.started" })
    }
  )

  live("answers a frame that it does not understand with an error", function* ({ client, state }) {
    const wrong = ["{", "[]", { type: "message" }, { type: "dance" }, { type: "answer", answer: 1 }]
    for (const frame of wrong) yield* client.send(frame)
    client.socket.send(Buffer.from([1, 2, 3]))
    yield* client.turn("still there", "t1")
    expect(client.events.filter(({ code }) => code === "bad_frame")).toHaveLength(wrong.length + 1)
    expect((yield* state).frames).toEqual({ message: 1, interrupt: 0, answer: 0, other: wrong.length + 1 })
  })

  live("is closed when a frame is too big", { limits: { bodyBytes: 1000 } }, function* ({ client }) {
    yield* client.send({ type: "message", content: "a".repeat(1000) })
    expect(yield* client.closed).toBe(1009)
  })

  live("hears of its instance's stop, with all turns cancelled", function* ({ awaitState, client, id, platformUrl }) {
    yield* client.send({ type: "message", content: "/hang", turnId: "t1" })
    yield* client.send({ type: "message", content: "waits", turnId: "t2" })
    yield* awaitState(({ frames }) => frames.message === 2)
    yield* Effect.promise(() => fetch(`${platformUrl}/api/v1/instances/${id}`, { method: "DELETE" }))
    expect(yield* client.closed).toBe(1000)
    expect(types(client.events).slice(-4)).toEqual([
      ...["turn.cancelled", "turn.cancelled", "instance.stopping", "instance.stopped"]
    ])
    const { instances, connections, stopped } = yield* awaitState(state => state.connections === 0)
    expect([instances.length, connections, stopped]).toEqual([0, 0, 1])
  })
})
