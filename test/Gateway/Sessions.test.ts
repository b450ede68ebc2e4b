import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { alice, endsOf, history, listen, make, mallory, statesOf, typesOf } from "./Fixture.ts"

describe("Sessions", () => {
  it.scopedLive("a message brings the session up, and its turn comes as events with dense numbers", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const listener = yield* listen(sessions, id)
      const turnId = yield* sessions.send(alice, id, "hello there")
      yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
      expect(statesOf(listener.events)).toEqual(["activating", "active"])
      expect(listener.events.map(({ seq }) => seq)).toEqual(listener.events.map((_, index) => index + 1))
      expect(endsOf(listener.events)).toEqual({ [turnId]: ["turn_completed"] })
      const text = listener.events.flatMap(event => (event.type === "text_delta" ? [event.text] : [])).join("")
      expect(text).toBe("echo: hello there")
      expect(yield* history(listener.subscription)).toEqual(listener.events)
      const session = yield* sessions.get(alice, id)
      expect(session).toMatchObject({ state: "active", headSeq: listener.events.length, tenant: "acme" })
      expect((yield* simulator.state).instances.map(({ id }) => id)).toEqual([session.instanceId])
      yield* sessions.stop(alice, id)
      expect((yield* simulator.state).instances).toEqual([])
      expect(typesOf(listener.events)).toContain("usage_context")
    })
  )

  it.scopedLive("another tenant finds nothing", () =>
    Effect.gen(function* () {
      const { start } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      expect(yield* Effect.flip(sessions.get(mallory, id))).toMatchObject({ _tag: "SessionNotFound" })
      expect(yield* sessions.list(mallory)).toEqual([])
      expect(yield* sessions.list(alice)).toHaveLength(1)
    })
  )
})
