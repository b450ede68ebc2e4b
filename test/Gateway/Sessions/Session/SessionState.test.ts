/** Updates of a session's state, and what is stored of it. */
import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import type { EventBody } from "../../../../src/Gateway/Protocol/Event.ts"
import * as State from "../../../../src/Gateway/Sessions/Session/SessionState.ts"
import { times } from "../../../Scale.ts"

const numRuns = times(100)

const running: State.SessionState = {
  ...State.initial,
  lifecycle: "active",
  instance: { key: "k", instanceId: "i" }
}

const stop: State.PendingStop = { key: "i", instanceId: "i", refusals: 0 }

const accepted = (...turnIds: ReadonlyArray<string>): State.SessionState => ({
  ...running,
  turns: { ...State.initial.turns, open: new Map(turnIds.map(turnId => [turnId, "announced"])) }
})

const typesOf = (events: ReadonlyArray<EventBody>) => events.map(({ type }) => type)

describe("The state of a session", () => {
  it("after a restart any state is inactive, and each open turn has ended", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...(["inactive", "activating", "active", "reconnecting", "deactivating", "error"] as const)),
        fc.uniqueArray(fc.string({ minLength: 1 }), { maxLength: 5 }),
        fc.uniqueArray(fc.string({ minLength: 1 }), { maxLength: 3 }),
        fc.option(fc.record({ agentType: fc.string() })),
        (lifecycle, turnIds, keys, request) => {
          const pendingStops = keys.map((key, index) => ({
            key,
            instanceId: index === 0 ? null : key,
            refusals: index
          }))
          const before = { ...accepted(...turnIds), lifecycle, pendingStops, ...(request === null ? {} : { request }) }
          const kept = Either.getOrThrow(State.decodeRecovery(lifecycle, State.encodeRecovery(before)))
          expect(kept.instance).toEqual(before.instance)
          expect(kept.pendingStops).toEqual(pendingStops)
          expect(kept.request).toEqual(before.request)
          const { state, events } = State.recover(kept)
          expect(["inactive", "error"]).toContain(state.lifecycle)
          expect(state.turns.open.size).toBe(0)
          expect(state.instance).toBeNull()
          expect(state.pendingStops).toEqual([...pendingStops, { ...before.instance, refusals: 0 }])
          expect(typesOf(events).filter(type => type === "turn_errored")).toHaveLength(turnIds.length)
          expect(State.recover(state).events).toEqual([])
        }
      ),
      { numRuns }
    )
  })

  it("accepts a message only if it is active and has room, and publishes its content", () => {
    const message = { turnId: "t", content: "hello", sub: "alice" }
    const update = Either.getOrThrow(State.acceptMessage(running, message, 1))
    expect(update.events).toEqual([{ type: "turn_started", ...message }])
    expect(State.acceptMessage(update.state, { ...message, turnId: "u" }, 1)).toEqual(
      Either.left({ is: "full", open: 1 })
    )
    expect(State.acceptMessage({ ...running, lifecycle: "error" }, message, 1)).toEqual(
      Either.left({ is: "not_running" })
    )
    const kept = Either.getOrThrow(State.decodeRecovery("active", State.encodeRecovery(update.state)))
    expect(typesOf(State.recover(kept).events)).toEqual(["turn_errored", "session_state"])
  })

  it("stores nothing if there is nothing to recover", () => {
    expect(State.encodeRecovery(State.initial)).toBeNull()
    expect(State.encodeRecovery(running)).not.toBeNull()
    expect(State.encodeRecovery({ ...accepted("t"), instance: null })).not.toBeNull()
    expect(State.encodeRecovery({ ...State.initial, pendingStops: [stop] })).not.toBeNull()
    expect(Either.isLeft(State.decodeRecovery("active", "{}"))).toBe(true)
  })
})
