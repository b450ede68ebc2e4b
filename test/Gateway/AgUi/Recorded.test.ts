/** Streams of recorded sessions, and streams as they come, joined anywhere by the official client. */
import { assert, describe } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { vi } from "vitest"
import * as Messages from "../../../src/AgUi/Messages.ts"
import type { Conversation } from "../../../src/Client/Conversation/Conversation.ts"
import type { SessionEvent } from "../../../src/Client/SessionModel.ts"
import { isLong } from "../../Scale.ts"
import { ask, create, eventsUntil, post } from "../HttpSessions/Fixture.ts"
import { live } from "../Socket/Fixture.ts"
import { clientOf } from "./Fixture.ts"
import { comparable, follow, makeClient, projection } from "./Joining.ts"

/** What the simulated agent does, in one session, and how a turn that waits is continued. */
const messages: ReadonlyArray<
  readonly [content: string, waits?: "question_requested" | "approval_requested" | "text_start"]
> = [
  ["hello"],
  ["/ask", "question_requested"],
  ["/approve", "approval_requested"],
  ["/long 12"],
  ["/hang", "text_start"],
  ["/drop"],
  ["/unknown"],
  ["/malformed"],
  ["/write a.md text"],
  ["/fail no luck"],
  ["/crash"],
  ["/all"],
  ["the end"]
]

const ends: ReadonlySet<string> = new Set(["turn_completed", "turn_errored", "turn_interrupted"])

/** Records a session. */
const record = (base: string) =>
  Effect.gen(function* () {
    const { id } = yield* create(base)
    for (const [content, waits] of messages) {
      const { json } = yield* post(`${base}/${id}/messages`, { content }, { "idempotency-key": content })
      const isOf = (event: { readonly type: string; readonly turnId?: unknown }) => event.turnId === json.turnId
      if (waits !== undefined) {
        const events = yield* eventsUntil(base, id, event => isOf(event) && event.type === waits)
        const asked = events.find(event => isOf(event) && event.type === waits)!
        yield* "requestId" in asked
          ? post(`${base}/${id}/answers`, { requestId: asked.requestId, answer: true })
          : post(`${base}/${id}/interrupt`, {})
      }
      yield* eventsUntil(base, id, event => isOf(event) && ends.has(event.type))
    }
    return { id, events: (yield* ask(`${base}/${id}/events`)).events as ReadonlyArray<SessionEvent> }
  })

/** What the client has written to the console, except the sentence about a call that is replaced by a snapshot. */
const complaints = Effect.acquireRelease(
  Effect.sync(() => vi.spyOn(console, "warn").mockImplementation(() => {})),
  spy => Effect.sync(() => spy.mockRestore())
).pipe(Effect.map(spy => () => spy.mock.calls.flat().filter(text => !/already exists with name/.test(String(text)))))

describe("the official client has the projection", () => {
  live("of a recorded session, wherever it joins, once and again", function* ({ base }) {
    const { events } = yield* record(base)
    assert.isAbove(events.length, 100)
    const complained = yield* complaints
    for (let cut = 0; cut <= events.length; cut += isLong ? 1 : 5) {
      const client = makeClient()
      const [before, after] = [events.slice(0, cut), events.slice(cut)]
      yield* Effect.promise(() => client.run(theirs => follow([], before, theirs)))
      assert.deepStrictEqual(comparable(client.agent.messages), comparable(projection(before)), `up to ${cut}`)
      yield* Effect.promise(() => client.run(theirs => follow(before, after, theirs)))
      assert.deepStrictEqual(comparable(client.agent.messages), comparable(projection(events)), `joined at ${cut}`)
    }
    assert.deepStrictEqual(complained(), [])
  })

  live(
    "of a run that it joins at any event, with the messages of then or without any",
    { simulator: { pace: "1 millis" } },
    function* ({ agUi, base }) {
      const client = clientOf(`${agUi}/echo`)
      yield* client.say("one", "run-1")
      const running = yield* Effect.fork(client.say("two words", "run-2"))
      const others: Array<ReturnType<typeof clientOf>> = []
      const joins = []
      for (let seen = client.events.length, isOver = false; !isOver; seen++) {
        const event = yield* client.until(each => client.events.indexOf(each) === seen)
        isOver = event.type === "RUN_FINISHED"
        const known = seen % 2 === 0 ? structuredClone(client.agent.messages) : []
        const other = clientOf(`${agUi}/echo`, { messages: known })
        others.push(other)
        joins.push(yield* Effect.fork(other.run({ runId: "run-2" })))
      }
      yield* Fiber.join(running)
      const ended = yield* Fiber.joinAll(joins)
      assert.isAbove(ended.length, 15)
      const { sessions } = (yield* ask(base)).json
      const { text } = yield* ask(`${base}/${sessions[0]!.id}/conversation`)
      const expected = comparable(Messages.messagesOf(JSON.parse(text) as Conversation))
      for (const { failure } of ended) assert.isUndefined(failure)
      for (const { agent } of [client, ...others]) assert.deepStrictEqual(comparable(agent.messages), expected)
    }
  )
})
