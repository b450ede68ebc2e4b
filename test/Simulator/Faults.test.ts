import * as http from "node:http"
import { describe, expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as TestClock from "effect/TestClock"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { test } from "../Tests.ts"
import { connect, create, jsonOf, live, NoReply, request, timed, types } from "./Fixture.ts"

const body = { agentType: "echo" }

const createAt = (platformUrl: string) => `${platformUrl}/api/v1/instances`

const generateAt = (inferenceUrl: string) => `${inferenceUrl}/api/v1/generate/stream`

describe("an injected", () => {
  timed(
    "latency, jitter included, holds back a request and its effect",
    { seed: 1 },
    function* ({ awaitState, inject, platformUrl, state }) {
      yield* inject({ operation: "create", fault: { kind: "latency", millis: 4000, jitterMillis: 1000 } })
      yield* inject({ operation: "create", fault: { kind: "latency", millis: 1000 } })
      const created = yield* Effect.fork(create(platformUrl))
      yield* awaitState(({ requests }) => requests.create === 1)
      yield* TestClock.adjust("4999 millis")
      expect((yield* state).created).toBe(0)
      yield* TestClock.adjust("1001 millis")
      yield* Fiber.join(created)
      expect((yield* state).created).toBe(1)
    }
  )

  live("status is answered so many times, and nothing is done", function* ({ inject, platformUrl, state }) {
    yield* inject({ operation: "create", times: 2, fault: { kind: "status", status: 503, retryAfter: 7 } })
    for (let i = 0; i < 2; i++) {
      const reply = yield* request(createAt(platformUrl), { body })
      expect([reply.status, reply.headers["retry-after"]]).toEqual([503, "7"])
    }
    expect((yield* state).created).toBe(0)
    expect((yield* state).rules).toEqual([])
    yield* create(platformUrl)
  })

  test.scopedLive("rate strikes the same requests for the same seed, whatever else is asked", function* () {
    const statuses = (seed: number, also: boolean) =>
      Effect.gen(function* () {
        const { platformUrl, inferenceUrl, inject } = yield* Simulator.make({ seed })
        yield* inject({ operation: "platform_health", rate: 0.5, fault: { kind: "status", status: 500 } })
        yield* inject({ operation: "inference_health", rate: 0.5, fault: { kind: "status", status: 500 } })
        const all: Array<number> = []
        for (let i = 0; i < 40; i++) {
          all.push((yield* request(`${platformUrl}/health`)).status)
          if (also) yield* request(`${inferenceUrl}/health`)
        }
        return all
      }).pipe(Effect.scoped)
    const first = yield* statuses(1, false)
    expect(new Set(first)).toEqual(new Set([200, 500]))
    expect(yield* statuses(1, true)).toEqual(first)
    expect(yield* statuses(2, false)).not.toEqual(first)
  })

  live("reset breaks the connection before anything is done", function* ({ inject, platformUrl, state }) {
    yield* inject({ operation: "*", times: 1, fault: { kind: "reset" } })
    expect((yield* Effect.flip(request(createAt(platformUrl), { body }))).code).toBe("ECONNRESET")
    expect((yield* state).created).toBe(0)
  })

  live("hang lasts until the client goes", function* ({ awaitState, clear, inject, platformUrl }) {
    yield* inject({ operation: "create", fault: { kind: "hang" } })
    const hanging = yield* Effect.fork(request(createAt(platformUrl), { body }))
    yield* awaitState(({ requests }) => requests.create === 1)
    yield* Fiber.interrupt(hanging)
    yield* clear
    yield* create(platformUrl)
  })

  live(
    "malformed answer does not parse, though all was done",
    { format: "text" },
    function* ({ inferenceUrl, inject, platformUrl, state }) {
      yield* inject({ operation: "*", fault: { kind: "malformed" } })
      const reply = yield* request(createAt(platformUrl), { body })
      expect(reply.status).toBe(201)
      expect(reply.broken).toBe(undefined)
      expect(() => jsonOf(reply)).toThrow()
      expect((yield* state).created).toBe(1)
      const text = yield* request(generateAt(inferenceUrl), { body: { prompt: "a" } })
      expect(text.body.toString("utf8")).toContain("\ufffd")
    }
  )

  live("malformed stream has an event that is no JSON, and ends", function* ({ inferenceUrl, inject }) {
    yield* inject({ operation: "generate", fault: { kind: "malformed" } })
    const reply = yield* request(generateAt(inferenceUrl), { body: { prompt: "a" } })
    expect(reply.body.toString("utf8")).toContain('data: {"text": \n\n')
    expect(reply.body.toString("utf8")).toMatch(/data: \[DONE\]\n\n$/)
  })

  live("drop loses the answer and keeps what was done", function* ({ inject, platformUrl, state }) {
    yield* inject({ operation: "create", times: 1, fault: { kind: "drop", after: 0 } })
    const headers = { "idempotency-key": "a" }
    const lost = yield* request(createAt(platformUrl), { body, headers })
    expect([lost.status, lost.body.length, lost.broken]).toEqual([201, 0, "ECONNRESET"])
    const id = yield* create(platformUrl, headers)
    expect((yield* state).instances.map(instance => instance.id)).toEqual([id])
    expect((yield* state).created).toBe(1)
  })

  timed("drip sends an answer slowly, byte by byte", function* ({ awaitState, inject, platformUrl }) {
    yield* inject({ operation: "platform_health", fault: { kind: "drip", bytes: 1, everyMillis: 1000 } })
    const reply = yield* Effect.fork(request(`${platformUrl}/health`))
    yield* awaitState(({ requests }) => requests.platform_health === 1)
    // The wait for the next byte begins only when one is on its way.
    const ticking = yield* Effect.fork(Effect.forever(TestClock.adjust("1 second")))
    expect(jsonOf(yield* Fiber.join(reply))).toEqual({ status: "ok" })
    yield* Fiber.interrupt(ticking)
    expect(yield* TestClock.currentTimeMillis).toBeGreaterThanOrEqual(JSON.stringify({ status: "ok" }).length * 1000)
  })
})

describe("on a WebSocket, an injected", () => {
  live("status, reset or hang refuses the handshake", function* ({ awaitState, inject, platformUrl }) {
    const id = yield* create(platformUrl)
    yield* inject({ operation: "connect", times: 1, fault: { kind: "status", status: 503 } })
    expect((yield* Effect.flip(Effect.asVoid(connect(platformUrl, id)))).code).toBe("503")
    yield* inject({ operation: "connect", times: 1, fault: { kind: "reset" } })
    expect((yield* Effect.flip(Effect.asVoid(connect(platformUrl, id)))).code).toBe("ECONNRESET")
    yield* inject({ operation: "connect", times: 1, fault: { kind: "hang" } })
    const hanging = yield* Effect.fork(connect(platformUrl, id))
    yield* awaitState(({ requests }) => requests.connect === 3)
    yield* Fiber.interruptFork(hanging)
    yield* connect(platformUrl, id)
  })

  live("drop cuts or closes it after so many events, which can be resumed after", function* ({ inject, platformUrl }) {
    const id = yield* create(platformUrl)
    yield* inject({ operation: "connect", times: 1, fault: { kind: "drop", after: 5 } })
    const first = yield* connect(platformUrl, id)
    yield* first.send({ type: "message", content: "/long 5", turnId: "t1" })
    expect(yield* first.closed).toBe(1006)
    expect(first.events.map(event => event.id)).toEqual(["e1", "e2", "e3", "e4", "e5"])
    yield* inject({ operation: "connect", times: 1, fault: { kind: "drop", after: 1, code: 1012 } })
    const second = yield* connect(platformUrl, id, "?after=e5")
    expect(yield* second.closed).toBe(1012)
    expect(second.events.map(event => event.id)).toEqual(["e6"])
    const third = yield* connect(platformUrl, id, "?after=e6")
    yield* third.until("turn.completed")
    expect(third.events[0]?.id).toBe("e7")
  })

  live("malformed sends frames that are not events, and continues", function* ({ inject, platformUrl }) {
    const id = yield* create(platformUrl)
    yield* inject({ operation: "connect", fault: { kind: "malformed" } })
    const client = yield* connect(platformUrl, id)
    yield* client.until("instance.ready")
    expect(client.events[0]).toEqual({ frame: "{not json" })
    expect(types(client.events).slice(-2)).toEqual(["instance.starting", "instance.ready"])
  })

  timed("drip sends one event at a time", function* ({ inject, platformUrl }) {
    const id = yield* create(platformUrl)
    yield* inject({ operation: "connect", fault: { kind: "drip", bytes: 1, everyMillis: 1000 } })
    const client = yield* connect(platformUrl, id)
    const ticking = yield* Effect.fork(Effect.forever(TestClock.adjust("1 second")))
    yield* client.until("instance.ready")
    yield* Fiber.interrupt(ticking)
    expect(yield* TestClock.currentTimeMillis).toBeGreaterThanOrEqual(2000)
  })
})

describe("the control handle", () => {
  live(
    "refuses connections, and accepts them again there",
    function* ({ clear, inferenceUrl, platformUrl, refuse, state }) {
      const id = yield* create(platformUrl)
      const client = yield* connect(platformUrl, id)
      yield* refuse("platform", true)
      yield* refuse("platform", true)
      expect((yield* Effect.flip(request(`${platformUrl}/health`))).code).toBe("ECONNREFUSED")
      expect((yield* request(`${inferenceUrl}/health`)).status).toBe(200)
      expect((yield* state).refusing).toEqual(["platform"])
      yield* client.turn("continues", "t1")
      yield* refuse("platform", false)
      expect((yield* request(`${platformUrl}/health`)).status).toBe(200)
      yield* refuse("inference", true)
      yield* clear
      expect((yield* request(`${inferenceUrl}/health`)).status).toBe(200)
      expect((yield* state).refusing).toEqual([])
    }
  )

  live("closes or cuts connections, of one instance or of all", function* ({ awaitState, disconnect, platformUrl }) {
    const ids = [yield* create(platformUrl), yield* create(platformUrl)] as const
    const clients = yield* Effect.forEach(ids, id => connect(platformUrl, id))
    yield* awaitState(({ connections }) => connections === 2)
    expect(yield* disconnect({ instanceId: ids[0], code: 4000 })).toBe(1)
    expect(yield* clients[0]!.closed).toBe(4000)
    expect(yield* disconnect()).toBe(1)
    expect(yield* clients[1]!.closed).toBe(1006)
    expect((yield* Effect.flip(disconnect({ code: 1005 }))).message).toContain("close code")
  })

  live("lets an instance emit anything", function* ({ emit, platformUrl }) {
    const id = yield* create(platformUrl)
    const client = yield* connect(platformUrl, id)
    yield* emit(id, { type: "heartbeat" })
    expect(yield* client.until("heartbeat")).toMatchObject({ id: "e3" })
    yield* emit(id, { type: "own", id: "mine", timestamp: 7 })
    expect(yield* client.until("own")).toEqual({ type: "own", id: "mine", timestamp: 7 })
    expect((yield* Effect.flip(emit("nobody", { type: "heartbeat" }))).message).toContain('"nobody"')
  })

  live("refuses rules that make no sense", function* ({ inject, remove, state }) {
    expect((yield* Effect.flip(inject({ operation: "*", rate: 2, fault: { kind: "hang" } }))).message).toContain("rate")
    const id = yield* inject({ operation: "*", fault: { kind: "hang" } })
    yield* remove(id)
    expect((yield* Effect.flip(remove(id))).message).toContain(`no rule ${id}`)
    expect((yield* state).rules).toEqual([])
  })
})

describe("a simulator", () => {
  live("continues when clients disconnect halfway through", function* ({ inferenceUrl, state }) {
    const leave = Effect.async<void, NoReply>(resume => {
      const sent = http.request(generateAt(inferenceUrl), { method: "POST", agent: false }, response => {
        response.on("error", () => {})
        response.once("data", () => {
          response.destroy()
          resume(Effect.void)
        })
      })
      sent.once("error", error => resume(Effect.fail(new NoReply({ code: error.message }))))
      sent.end(JSON.stringify({ prompt: "/long 5000" }))
    })
    yield* Effect.all(
      Array.from({ length: 20 }, () => leave),
      { concurrency: 20 }
    )
    const reply = yield* request(generateAt(inferenceUrl), { body: { prompt: "still there" } })
    expect(reply.body.toString("utf8")).toMatch(/\[DONE\]\n\n$/)
    expect((yield* state).requests.generate).toBe(21)
  })

  live("says which port it cannot have", function* ({ platformUrl }) {
    const port = Number(new URL(platformUrl).port)
    const failed = yield* Effect.flip(Effect.scoped(Simulator.make({ ports: { inference: port } })))
    expect(failed.message).toContain(`127.0.0.1, port ${port}`)
    expect(failed.message).toContain("EADDRINUSE")
  })

  test.scopedLive("leaves nothing behind, whatever hangs or is connected", function* () {
    const { fiber, client, platformUrl } = yield* Effect.gen(function* () {
      const { platformUrl, inject, awaitState } = yield* Simulator.Simulator
      const id = yield* create(platformUrl)
      yield* inject({ operation: "create", fault: { kind: "hang" } })
      const fiber = yield* Effect.forkDaemon(Effect.flip(request(createAt(platformUrl), { body })))
      const client = yield* connect(platformUrl, id)
      yield* client.send({ type: "message", content: "/hang", turnId: "t1" })
      yield* awaitState(({ requests, frames }) => requests.create === 2 && frames.message === 1)
      return { fiber, client, platformUrl }
    }).pipe(Effect.provide(Simulator.layer()))
    expect((yield* Fiber.join(fiber)).code).toBe("ECONNRESET")
    expect(yield* client.closed).toBe(1006)
    expect((yield* Effect.flip(request(`${platformUrl}/health`))).code).toBe("ECONNREFUSED")
  })
})
