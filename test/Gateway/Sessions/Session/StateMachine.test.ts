/** The lifecycle of a session: its table, and that nothing else moves a session. */
import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import { ingest } from "../../../../src/Gateway/Sessions/Instance/InstanceLink.ts"
import * as State from "../../../../src/Gateway/Sessions/Session/SessionState.ts"
import {
  type LifecycleEvent,
  type LifecycleState,
  transitions
} from "../../../../src/Gateway/Sessions/Session/SessionState.ts"
import { times } from "../../../Scale.ts"

const numRuns = times(100)

const states = ["inactive", "activating", "active", "reconnecting", "deactivating", "error"] as const

const events = [
  "activate",
  "activated",
  "deactivate",
  "deactivated",
  "disconnected",
  "reconnected",
  "ended",
  "failed",
  "recovered"
] as const satisfies ReadonlyArray<LifecycleEvent>

const turnId = fc.constantFrom("a", "b", "c")

const platformTypes = [
  "instance.starting",
  "instance.ready",
  "instance.stopping",
  "instance.stopped",
  "instance.failed",
  "turn.started",
  "turn.completed",
  "error",
  "unheard.of"
]

/** What may happen to a session, and the lifecycle events that it may consist of. */
const operations: ReadonlyArray<
  fc.Arbitrary<{
    readonly may: ReadonlyArray<LifecycleEvent>
    readonly apply: (state: State.SessionState) => State.Update
  }>
> = [
  fc.constantFrom(...events).map(event => ({ may: [event], apply: state => State.transition(state, event, "why") })),
  fc.constant({ may: ["recovered" as const], apply: State.recover }),
  fc.constant({ may: [], apply: state => State.withoutEvents(State.releaseInstance(state)) }),
  fc.constant({ may: [], apply: state => State.withoutEvents(State.setInstanceId(state, "k", "i")) }),
  fc.constant({ may: [], apply: state => State.withoutEvents(State.removeInstance(state, "k")) }),
  fc.constant({ may: [], apply: state => State.endTurns(state, State.interrupted("why")) }),
  turnId.map(turnId => ({
    may: [],
    apply: state =>
      Either.getOrElse(State.acceptMessage(state, { turnId, content: "hello", sub: "alice" }, 2), () =>
        State.withoutEvents(state)
      )
  })),
  fc.record({ type: fc.constantFrom(...platformTypes), turnId }).map(({ type, turnId }) => ({
    may: ["ended", "failed"],
    apply: state => ingest(state, [{ id: undefined, type, timestamp: undefined, payload: { type, turnId } }]).update
  }))
]

describe("The lifecycle of a session", () => {
  it("follows the table", () => {
    const expected: Readonly<Record<LifecycleState, string>> = {
      inactive: "activating - - - - - - - -",
      activating: "activating active deactivating - - - - error inactive",
      active: "activating - deactivating - reconnecting - inactive error inactive",
      reconnecting: "activating - deactivating - - active inactive error inactive",
      deactivating: "activating - - inactive - - - - inactive",
      error: "activating - deactivating - - - - - -"
    }
    for (const state of states) {
      expect(events.map(event => transitions[state][event] ?? "-").join(" ")).toBe(expected[state])
    }
  })

  it("is published with each transition, and an event without an entry is ignored", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...events)), happening => {
        let state = State.initial
        for (const event of happening) {
          const update = State.transition(state, event)
          const after = transitions[state.lifecycle][event]
          expect(update.events).toEqual(after === undefined ? [] : [{ type: "session_state", state: after }])
          expect(update.state.lifecycle).toBe(after ?? state.lifecycle)
          state = update.state
        }
      }),
      { numRuns }
    )
  })

  it("takes only transitions of the table, whatever happens to the session", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...states),
        fc.array(fc.oneof(...operations), { maxLength: 30 }),
        (from, happening) => {
          let state: State.SessionState = {
            ...State.initial,
            lifecycle: from,
            instance: { key: "k", instanceId: null }
          }
          for (const { apply, may } of happening) {
            const update = apply(state)
            const reachable = may.map(event => transitions[state.lifecycle][event])
            if (update.state.lifecycle !== state.lifecycle) expect(reachable).toContain(update.state.lifecycle)
            state = update.state
          }
        }
      ),
      { numRuns }
    )
  })
})
