/** What clients say to a running instance: in order, once, and within its time. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Option } from "effect"
import type { Event } from "../../../../src/Gateway/Protocol.ts"
import { StoreUnavailable } from "../../../../src/Kv/Store.ts"
import type { SendOptions } from "../../../../src/Upstream/AgentPlatform.ts"
import { given } from "../../../Given.ts"
import { test } from "../../../Tests.ts"
import { alice, breathe, endsOf, heard, history, makeHeard, pass, storedWith } from "../../Fixture.ts"
import { timeout, withSend } from "./SentMessages.ts"

const endings: ReadonlySet<string> = new Set(["turn_completed", "turn_errored", "turn_interrupted"])

const startsOf = (events: ReadonlyArray<Event>) =>
  events.flatMap(event => (event.type === "turn_started" ? [event.content] : []))

/** Lets time pass until a fiber has ended, for so many seconds at most; answers how many it took. */
const secondsUntil = (fiber: Fiber.Fiber<unknown, unknown>, most: number) =>
  Effect.gen(function* () {
    let seconds = 0
    while (Option.isNone(yield* Fiber.poll(fiber)) && seconds < most) {
      yield* pass("1 second", "1 second")
      seconds++
    }
    return seconds
  })

/** A session whose instance is out of reach while it works at a turn. */
const outOfReach = Effect.gen(function* () {
  const { id, listener, sessions, simulator, stop } = yield* makeHeard()
  const working = yield* sessions.send(alice, id, "/hang")
  yield* simulator.awaitState(({ frames }) => frames.message === 1)
  yield* simulator.refuse("platform", true)
  yield* simulator.disconnect()
  yield* listener.until(event => event.type === "session_state" && event.state === "reconnecting")
  return { simulator, stop, sessions, id, listener, working }
})

/** A session that is up, whose messages wait at a gate. */
const gated = Effect.gen(function* () {
  const begun = yield* Effect.makeLatch(false)
  const gate = yield* Effect.makeLatch(true)
  const made = yield* makeHeard({
    platform: withSend(({ send }) => ({
      send: (frame, options: SendOptions = {}) =>
        Effect.zipRight(Effect.zipRight(begun.open, gate.await), send(frame, options))
    }))
  })
  yield* made.sessions.start(alice, made.id)
  return { ...made, begun, gate }
})

const unreached = given(it.scoped, () => outOfReach)

const held = given(it.scopedLive, () => gated)

describe("messages to an instance", () => {
  unreached(
    "a message that cannot be sent fails after fifteen seconds, and so do messages behind it",
    function* ({ id, listener, sessions, simulator, working }) {
      const first = yield* Effect.fork(Effect.flip(sessions.send(alice, id, "first")))
      yield* breathe
      yield* pass("5 seconds", "1 second")
      const second = yield* Effect.fork(Effect.flip(sessions.send(alice, id, "second")))
      const interrupting = yield* Effect.fork(Effect.flip(sessions.interrupt(alice, id, working)))
      yield* breathe
      expect(yield* secondsUntil(first, 60)).toBeLessThanOrEqual(10)
      expect(yield* Fiber.join(first)).toMatchObject({ _tag: "AgentPlatformConnectionError", reason: "timeout" })
      expect(yield* secondsUntil(second, 60)).toBeLessThanOrEqual(6)
      expect(yield* Fiber.join(second)).toMatchObject({ reason: "timeout" })
      expect(yield* secondsUntil(interrupting, 60)).toBeLessThanOrEqual(6)
      expect(yield* Fiber.join(interrupting)).toMatchObject({ reason: "timeout" })
      // Neither has been recorded, so neither has a turn.
      expect(startsOf(listener.events)).toEqual(["/hang"])
      yield* simulator.refuse("platform", false)
    }
  )

  unreached("a waiting message does not delay a shutdown, which refuses it", function* ({ id, sessions, stop }) {
    const waiting = yield* Effect.fork(Effect.exit(sessions.send(alice, id, "never")))
    yield* breathe
    const ending = yield* Effect.fork(stop)
    expect(yield* secondsUntil(ending, 60)).toBeLessThanOrEqual(10)
    expect(yield* secondsUntil(waiting, 60)).toBeLessThanOrEqual(1)
    expect(Exit.isFailure(yield* Fiber.join(waiting))).toBe(true)
  })

  unreached(
    "a waiting message with an interrupted caller is not sent, and those behind it keep their order",
    function* ({ id, listener, sessions, simulator }) {
      const all = yield* Effect.forEach(["a", "b", "c"], content =>
        Effect.zipLeft(Effect.fork(sessions.send(alice, id, content)), breathe)
      )
      yield* Fiber.interrupt(all[1]!)
      yield* simulator.refuse("platform", false)
      const waiting = yield* Effect.fork(Effect.forEach([all[0]!, all[2]!], Fiber.join))
      yield* secondsUntil(waiting, 15)
      const turnIds = yield* Fiber.join(waiting)
      yield* sessions.interrupt(alice, id, undefined)
      for (const turnId of turnIds) {
        yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
      }
      expect(startsOf(listener.events)).toEqual(["/hang", "a", "c"])
      expect((yield* simulator.state).frames.message).toBe(3)
    }
  )

  heard("turns are published once, as soon as they are recorded", function* ({ simulator, sessions, id, listener }) {
    const hanging = yield* sessions.send(alice, id, "/hang")
    const turnId = yield* sessions.send({ ...alice, actor: "bob" }, id, "hello")
    // The agent works at the first one still.
    yield* listener.until(event => event.type === "turn_started" && event.turnId === turnId)
    yield* sessions.interrupt(alice, id, hanging)
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
    const starts = (yield* history(listener.subscription)).filter(({ type }) => type === "turn_started")
    expect(starts).toMatchObject([
      { turnId: hanging, content: "/hang", sub: "alice" },
      { turnId, content: "hello", sub: "bob" }
    ])
    expect(endsOf(listener.events)).toEqual({ [hanging]: ["turn_interrupted"], [turnId]: ["turn_completed"] })
    expect((yield* simulator.state).frames.message).toBe(2)
  })

  test.scopedLive("a recorded message that cannot be sent ends its turn", function* () {
    let isUnavailable = false
    const { sessions, id, listener } = yield* makeHeard({
      platform: withSend(({ send }) => ({
        send: (frame, options) => (isUnavailable ? timeout : send(frame, options))
      }))
    })
    isUnavailable = true
    expect(yield* Effect.flip(sessions.send(alice, id, "lost"))).toMatchObject({ reason: "timeout" })
    const ended = yield* listener.until(event => event.type === "turn_errored")
    expect(ended).toMatchObject({ code: "not_sent", retryable: true })
    isUnavailable = false
    const turnId = yield* sessions.send(alice, id, "hello")
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
    expect(startsOf(listener.events)).toEqual(["lost", "hello"])
  })

  held(
    "a request has one answer, also while the first is being sent",
    function* ({ begun, gate, id, listener, sessions }) {
      yield* sessions.send(alice, id, "/ask")
      const asked = yield* listener.until(({ type }) => type === "question_requested")
      const { requestId } = asked as Event & { requestId: string }
      yield* gate.close
      yield* begun.close
      const first = yield* Effect.fork(sessions.answer(alice, id, requestId, "red", "a-1"))
      yield* begun.await
      const others = yield* Effect.forEach(
        [
          sessions.answer(alice, id, requestId, "red", "a-1"),
          sessions.answer(alice, id, requestId, "red", "a-2"),
          sessions.answer(alice, id, requestId, "blue"),
          sessions.answer({ ...alice, run: { id: "run-1", digest: "d" } }, id, requestId, "red")
        ],
        answer => Effect.fork(Effect.either(answer))
      )
      yield* breathe
      yield* gate.open
      yield* Fiber.join(first)
      const [same, ...refused] = yield* Effect.forEach(others, Fiber.join)
      expect(same).toMatchObject({ _tag: "Right" })
      for (const one of refused) {
        const message = expect.stringContaining("was answered before")
        expect(one).toMatchObject({ _tag: "Left", left: { _tag: "SessionConflict", message } })
      }
      yield* listener.until(({ type }) => type === "turn_completed")
      expect(yield* Effect.either(sessions.answer(alice, id, requestId, "red", "a-1"))).toMatchObject({ _tag: "Right" })
      expect(listener.events.filter(({ type }) => type === "question_resolved")).toMatchObject([{ answer: "red" }])
    }
  )

  held(
    "a message that is interrupted before it is sent is not sent",
    function* ({ begun, gate, id, listener, sessions, simulator }) {
      yield* gate.close
      const sending = yield* Effect.fork(sessions.send(alice, id, "never mind"))
      yield* begun.await
      const { turnId } = yield* Effect.map(
        listener.until(event => event.type === "turn_started"),
        event => event as Event & { turnId: string }
      )
      expect(yield* sessions.interrupt(alice, id, turnId)).toBe(turnId)
      expect(yield* Fiber.join(sending)).toBe(turnId)
      yield* listener.until(event => event.type === "turn_interrupted" && event.turnId === turnId)
      yield* gate.open
      const next = yield* sessions.send(alice, id, "hello")
      yield* listener.until(event => event.type === "turn_completed" && event.turnId === next)
      expect((yield* simulator.state).frames.message).toBe(1)
      expect(endsOf(listener.events)).toEqual({ [turnId]: ["turn_interrupted"], [next]: ["turn_completed"] })
    }
  )

  held(
    "a run that waits for the message of another is stopped before it sends its own, or an answer",
    function* ({ begun, gate, id, listener, sessions }) {
      const of = (run: string) => ({ ...alice, awaitsMessages: true, run: { id: run, digest: "d" } })
      yield* gate.close
      const first = yield* Effect.fork(sessions.send(alice, id, "first"))
      yield* begun.await
      // The first of 65 is forgotten.
      const runs = ["run-1", ...Array.from({ length: 62 }, (_, index) => `run-${index + 5}`), "run-2", "run-3"]
      yield* Effect.forEach(runs, run => sessions.get(of(run), id))
      const turnId = yield* sessions.interrupt(of("run-2"), id, undefined)
      yield* sessions.interrupt(of("run-3"), id, undefined)
      for (const run of ["run-1", "run-4"]) {
        expect(yield* Effect.flip(sessions.interrupt(of(run), id, undefined))).toMatchObject({
          _tag: "SessionConflict"
        })
      }
      yield* gate.open
      expect(yield* sessions.send(of("run-2"), id, "second")).toBe(turnId)
      expect(yield* sessions.interrupt(of("run-2"), id, undefined)).toBe(turnId)
      const stopped = { _tag: "SessionConflict", message: expect.stringContaining("stopped") }
      expect(yield* Effect.flip(sessions.answer(of("run-3"), id, "q", true))).toMatchObject(stopped)
      yield* Fiber.join(first)
      yield* listener.until(event => event.type === "turn_interrupted" && event.turnId === turnId)
      expect(startsOf(listener.events)).toEqual(["first", "second"])
    }
  )

  held(
    "a message that waits behind another is withdrawn by its run, as often as that is asked for",
    function* ({ begun, gate, id, listener, sessions, simulator }) {
      const run = { id: "run-2", digest: "d" }
      yield* gate.close
      const first = yield* Effect.fork(sessions.send(alice, id, "first"))
      yield* begun.await
      const second = yield* Effect.fork(sessions.send({ ...alice, run }, id, "second"))
      const stop = sessions.interrupt({ ...alice, run }, id, undefined)
      const turnId = yield* Effect.retry(stop, { times: 1000 })
      expect([yield* stop, yield* stop]).toEqual([turnId, turnId])
      yield* gate.open
      yield* Fiber.join(first)
      expect(yield* Fiber.join(second)).toBe(turnId)
      yield* listener.until(event => event.type === "turn_interrupted" && event.turnId === turnId)
      yield* simulator.awaitState(({ frames }) => frames.message === 1)
    }
  )

  held(
    "a message is withdrawn or sent, wherever the caller that interrupts it goes away",
    function* ({ begun, gate, id, listener, sessions }) {
      for (let steps = 16; steps < 56; steps++) {
        yield* gate.close
        yield* begun.close
        const sending = yield* Effect.fork(sessions.send(alice, id, "perhaps"))
        yield* begun.await
        // It is interrupted where it first yields.
        const interrupting = yield* Effect.fork(
          Effect.withMaxOpsBeforeYield(sessions.interrupt(alice, id, undefined), steps)
        )
        yield* Effect.yieldNow()
        yield* Fiber.interrupt(interrupting)
        yield* gate.open
        const turnId = yield* Fiber.join(sending)
        const isEnd = (event: Event) => endings.has(event.type) && "turnId" in event && event.turnId === turnId
        const ended = yield* Effect.timeoutOption(listener.until(isEnd), "30 seconds")
        expect(Option.isSome(ended), `interrupted after ${steps} steps`).toBe(true)
      }
    }
  )

  test.scoped("while the store is unavailable all messages fail at once", function* () {
    let isUnavailable = false
    const { simulator, sessions, id, listener } = yield* makeHeard({
      stored: storedWith(({ append }) => ({
        append: request =>
          isUnavailable ? Effect.zipRight(breathe, new StoreUnavailable({ reason: "away" })) : append(request)
      }))
    })
    yield* sessions.start(alice, id)
    isUnavailable = true
    const unavailable = { _tag: "StoreUnavailable" }
    const say = (content: string, clientMessageId?: string) =>
      Effect.flip(sessions.send(alice, id, content, clientMessageId))
    // No time passes on the clock, so a waiting fiber would wait forever.
    const together = yield* Effect.all([say("first"), say("second"), say("third", "m-3")], {
      concurrency: "unbounded"
    })
    expect(together).toMatchObject([unavailable, unavailable, unavailable])
    expect(yield* say("fourth")).toMatchObject(unavailable)
    expect(yield* say("fifth", "m-5")).toMatchObject(unavailable)
    isUnavailable = false
    yield* pass("4 seconds", "1 second")
    const turnId = yield* sessions.send(alice, id, "third", "m-3")
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
    expect(startsOf(listener.events)).toEqual(["third"])
    expect((yield* simulator.state).frames.message).toBe(1)
  })
})
