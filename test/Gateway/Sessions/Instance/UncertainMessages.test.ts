/** Messages to an instance whose recording or delivery is uncertain, and their repetitions. */
import { describe, expect } from "@effect/vitest"
import { Effect, Queue } from "effect"
import type { Event } from "../../../../src/Gateway/Protocol.ts"
import { StoreUnavailable } from "../../../../src/Kv/Store.ts"
import { type Received, Undelivered } from "../../../../src/Upstream/AgentPlatform.ts"
import type { PlatformFrame } from "../../../../src/Upstream/PlatformEvent.ts"
import { test } from "../../../Tests.ts"
import { alice, endsOf, heard, history, listen, makeHeard, storedWith, typesOf } from "../../Fixture.ts"
import { timeout, withSend } from "./SentMessages.ts"

describe("messages to an instance", () => {
  test.scopedLive("a message with an uncertain recording leaves no turn without an end", function* () {
    let isMoody = false
    const { simulator, sessions, id, listener } = yield* makeHeard({
      stored: storedWith(({ append }) => ({
        append: request => {
          const isMessage = request.texts.some(text => text.includes('"turn_started"'))
          if (!isMoody || !isMessage) return append(request)
          isMoody = false
          return Effect.zipRight(append(request), new StoreUnavailable({ reason: "no word of it" }))
        }
      }))
    })
    yield* sessions.start(alice, id)
    isMoody = true
    expect(yield* Effect.flip(sessions.send(alice, id, "perhaps"))).toMatchObject({ _tag: "StoreUnavailable" })
    const turnId = yield* sessions.send(alice, id, "hello")
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
    const published = typesOf(yield* history(listener.subscription)).filter(type => type.startsWith("turn_"))
    expect(published).toEqual(["turn_started", "turn_errored", "turn_started", "turn_completed"])
    expect((yield* simulator.state).frames.message).toBe(1)
  })

  test.scopedLive("a turn with an uncertain delivery is interrupted if the agent starts it after all", function* () {
    const heard = yield* Queue.unbounded<Received>()
    const frames = yield* Queue.unbounded<PlatformFrame>()
    const { sessions, id, listener } = yield* makeHeard({
      platform: withSend(() => ({
        send: (frame, options) =>
          Effect.suspend(() => {
            options?.claim?.()
            return Queue.offer(frames, frame)
          }),
        take: Effect.map(Queue.take(heard), one => [[one], false] as const)
      }))
    })
    const begins = (turnId: string, id: string) =>
      Queue.offer(heard, {
        id,
        type: "turn.started",
        timestamp: undefined,
        payload: { type: "turn.started", turnId }
      })
    const first = yield* sessions.send(alice, id, "perhaps")
    expect(yield* Queue.take(frames)).toMatchObject({ type: "message", turnId: first })
    yield* Queue.offer(heard, new Undelivered([first]))
    yield* listener.until(event => event.type === "turn_errored" && event.code === "delivery_unknown")
    const second = yield* sessions.send(alice, id, "perhaps")
    expect(yield* Queue.take(frames)).toMatchObject({ type: "message", turnId: second })
    yield* begins(first, "1")
    expect(yield* Queue.take(frames)).toEqual({ type: "interrupt", turnId: first })
    // A second start, or the start of a turn without such an end, is not.
    yield* begins(first, "2")
    yield* begins(second, "3")
    yield* sessions.interrupt(alice, id, second)
    expect(yield* Queue.take(frames)).toEqual({ type: "interrupt", turnId: second })
    expect(typesOf(listener.events).filter(type => type.startsWith("turn_"))).toEqual([
      "turn_started",
      "turn_errored",
      "turn_started"
    ])
  })

  heard("a message with a client's id is sent once", function* ({ simulator, start, id, listener, sessions, kill }) {
    const say = (content: string) => sessions.send(alice, id, content, "m-1")
    // At once, while the session comes up.
    const turnIds = yield* Effect.forEach([1, 2, 3], () => say("hello"), { concurrency: "unbounded" })
    const turnId = turnIds[0]!
    expect(new Set(turnIds)).toEqual(new Set([turnId]))
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
    expect(listener.events.find(({ type }) => type === "turn_started")).toMatchObject({ clientMessageId: "m-1" })
    expect(yield* say("hello")).toBe(turnId)
    expect(yield* Effect.flip(say("something else"))).toMatchObject({ _tag: "SessionConflict" })
    // A session that is down does not come up for it.
    yield* sessions.stop(alice, id)
    expect(yield* say("hello")).toBe(turnId)
    expect(yield* sessions.get(alice, id)).toMatchObject({ state: "inactive" })
    yield* kill
    const second = yield* start
    expect(yield* second.sessions.send(alice, id, "hello", "m-1")).toBe(turnId)
    expect(yield* Effect.flip(second.sessions.send(alice, id, "no", "m-1"))).toMatchObject({
      _tag: "SessionConflict"
    })
    const next = yield* second.sessions.send(alice, id, "hello", "m-2")
    expect(next).not.toBe(turnId)
    const later = yield* listen(second.sessions, id)
    yield* second.sessions.send(alice, id, "last")
    yield* later.until(event => event.type === "turn_completed" && event.turnId !== next)
    expect((yield* simulator.state).frames.message).toBe(3)
  })

  heard("an answer with a client's id is sent once", function* ({ simulator, sessions, id, listener }) {
    const turnId = yield* sessions.send(alice, id, "/ask", "m-1")
    const asked = yield* listener.until(event => event.type === "question_requested")
    const { requestId } = asked as Event & { requestId: string }
    const reply = (answer: string, name = "m-2") => sessions.answer(alice, id, requestId, answer, name)
    yield* reply("tea")
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
    yield* reply("tea")
    expect(yield* Effect.flip(reply("coffee"))).toMatchObject({ message: expect.stringContaining("clientMessageId") })
    // The request has an answer, and the id of the message says something else.
    const refused = { message: expect.stringContaining("was answered before") }
    expect(yield* Effect.flip(reply("tea", "m-3"))).toMatchObject(refused)
    expect(yield* Effect.flip(reply("/ask", "m-1"))).toMatchObject({ _tag: "SessionConflict" })
    expect((yield* simulator.state).frames.answer).toBe(1)
  })

  test.scopedLive("a message that was certainly not sent may be repeated under its id", function* () {
    let isUnavailable = false
    const { simulator, sessions, id, listener } = yield* makeHeard({
      platform: withSend(({ send }) => ({
        send: (frame, options) => (isUnavailable ? timeout : send(frame, options))
      }))
    })
    const working = yield* sessions.send(alice, id, "/ask")
    const asked = yield* listener.until(event => event.type === "question_requested")
    const { requestId } = asked as Event & { requestId: string }
    const reply = sessions.answer(alice, id, requestId, "tea", "m-1")
    const say = sessions.send(alice, id, "hello", "m-2")
    isUnavailable = true
    expect(yield* Effect.flip(reply)).toMatchObject({ reason: "timeout" })
    expect(yield* Effect.flip(say)).toMatchObject({ reason: "timeout" })
    isUnavailable = false
    yield* reply
    const turnId = yield* say
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
    const ends = Object.entries(endsOf(listener.events))
    expect(ends.map(([, types]) => types)).toEqual([["turn_errored"], ["turn_completed"], ["turn_completed"]])
    expect(ends.map(([turn]) => turn).slice(1)).toEqual([working, turnId])
    expect((yield* simulator.state).frames).toMatchObject({ message: 2, answer: 1 })
  })
})
