/** The state of a session: its lifecycle, its turns, and what is stored of it. */
import { Either, FastCheck as fc } from "effect"
import { describe, expect, it } from "vitest"
import type { EventBody, TurnEnd } from "../../../../src/Gateway/Protocol/Event.ts"
import { turnEnds } from "../../../../src/Gateway/Protocol/Event.ts"
import { ingest } from "../../../../src/Gateway/Sessions/Instance/InstanceLink.ts"
import * as State from "../../../../src/Gateway/Sessions/Session/SessionState.ts"
import {
  type LifecycleEvent,
  type LifecycleState,
  transitions
} from "../../../../src/Gateway/Sessions/Session/SessionState.ts"
import { times } from "../../../Scale.ts"

const numRuns = times(200)

const turn = fc.constantFrom("a", "b", "c", "d")

const started = (turnId: string): EventBody => ({ type: "turn_started", turnId })
const completed = (turnId: string): TurnEnd => ({ type: "turn_completed", turnId })
const errored = (turnId: string): TurnEnd => ({
  type: "turn_errored",
  turnId,
  code: "gone",
  message: "The instance is gone",
  retryable: true
})
const text: EventBody = { type: "text_delta", turnId: "a", text: "x" }

/** Takes in events one after another, and gathers what clients get. */
const run = (session: State.SessionState, ...bodies: ReadonlyArray<EventBody>): State.Update =>
  bodies.reduce(
    (update, body) => State.andThen(update, state => State.applyEvent(state, body)),
    State.withoutEvents(session)
  )

const running: State.SessionState = {
  ...State.initial,
  lifecycle: "active",
  instance: { key: "k", instanceId: "i" }
}

const message = (turnId: string) =>
  ({ type: "turn_started", turnId, content: `message ${turnId}`, sub: "alice" }) as const

const accept = (session: State.SessionState, turnId: string, most = State.maxTurns) =>
  State.acceptMessage(session, { turnId, content: `message ${turnId}`, sub: "alice" }, most)

const accepted = (...turnIds: ReadonlyArray<string>): State.SessionState =>
  turnIds.reduce((session, turnId) => Either.getOrThrow(accept(session, turnId)).state, running)

describe("turns", () => {
  it("of a client's message are published with its content, and not again when the agent starts", () => {
    const { state, events } = Either.getOrThrow(accept(running, "a"))
    expect(events).toStrictEqual([message("a")])
    expect(State.isPending(state, "a")).toBe(true)
    const begun = State.applyEvent(state, started("a"))
    expect(begun.events).toStrictEqual([])
    expect(State.isPending(begun.state, "a")).toBe(false)
  })

  it("that the agent has not started end without it", () => {
    const { state } = run(accepted("a", "b", "c"), started("a"))
    const ended = State.endPendingTurns(state, ["a", "b", "x"], errored)
    expect(ended.events).toStrictEqual([errored("b")])
    expect([...ended.state.turns.open.keys()]).toStrictEqual(["a", "c"])
  })

  it("let later events pass", () => {
    expect(run(running, started("a"), completed("a"), text).events).toStrictEqual([started("a"), completed("a"), text])
  })

  it("end together, in order", () => {
    const { state } = run(accepted("a", "b", "c"), started("b"), started("c"), completed("c"))
    const ended = State.endTurns(state, errored)
    expect(ended.events).toStrictEqual([errored("a"), errored("b")])
    expect(ended.state.turns.open.size).toBe(0)
    expect(State.endTurns(ended.state, errored).events).toStrictEqual([])
  })

  it("are processed in order", () => {
    const waiting = accepted("a", "b")
    expect(State.currentTurn(running)).toBeUndefined()
    expect(State.currentTurn(waiting)).toBe("a")
    expect(State.currentTurn(run(waiting, started("b")).state)).toBe("b")
    expect(State.currentTurn(run(waiting, started("a"), started("c")).state)).toBe("c")
    expect(State.currentTurn(run(waiting, started("a"), completed("a")).state)).toBe("b")
  })

  it("keep within their bounds", () => {
    const ids = Array.from({ length: State.maxTurns }, (_, i) => `t${i}`)
    const full = accepted(...ids)
    expect(accept(full, "more")).toEqual(Either.left({ is: "full", open: State.maxTurns }))
    expect(accept({ ...running, lifecycle: "error" }, "more")).toEqual(Either.left({ is: "not_running" }))
    expect(run(full, started("more"), completed("more")).events).toStrictEqual([])
    const after = run(running, ...[...ids, "more"].flatMap(id => [started(id), completed(id)])).state
    expect(after.turns.ended.size).toBe(State.maxTurns)
    expect(after.turns.ended.has("more")).toBe(true)
  })

  it("have one start and then one end each, for any events", () => {
    const action = fc.record({ do: fc.constantFrom("accept", "start", "complete", "fail", "unsent", "lose"), id: turn })
    fc.assert(
      fc.property(fc.array(action, { maxLength: 60 }), actions => {
        let state = running
        const published: Array<EventBody> = []
        const known = new Set<string>()
        const take = (update: State.Update) => {
          state = update.state
          published.push(...update.events)
        }
        for (const { do: what, id } of actions) {
          if (what === "accept" || what === "start") known.add(id)
          if (what === "accept") Either.map(accept(state, id), take)
          else if (what === "unsent") take(State.endPendingTurns(state, [id], errored))
          else if (what === "start") take(State.applyEvent(state, started(id)))
          else if (what === "complete") take(State.applyEvent(state, completed(id)))
          else if (what === "fail") take(State.applyEvent(state, errored(id)))
          else take(State.endTurns(state, errored))
        }
        take(State.endTurns(state, errored))
        const ends: ReadonlyArray<string> = turnEnds
        for (const id of known) {
          const kinds = published.filter(body => "turnId" in body && body.turnId === id).map(({ type }) => type)
          expect(kinds).toHaveLength(2)
          expect(kinds[0]).toBe("turn_started")
          expect(ends).toContain(kinds[1])
        }
        expect(published.every(body => "turnId" in body && known.has(String(body.turnId)))).toBe(true)
      }),
      { numRuns }
    )
  })
})

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
  fc.constantFrom(...events).map(event => ({
    may: [event],
    apply: before => {
      const update = State.transition(before, event)
      // It is published, and an event without an entry is ignored.
      const after = transitions[before.lifecycle][event]
      expect(update.events).toEqual(after === undefined ? [] : [{ type: "session_state", state: after }])
      expect(update.state.lifecycle).toBe(after ?? before.lifecycle)
      return update
    }
  })),
  fc.constant({ may: ["recovered" as const], apply: State.recover }),
  fc.constant({ may: [], apply: state => State.withoutEvents(State.releaseInstance(state)) }),
  fc.constant({ may: [], apply: state => State.withoutEvents(State.setInstanceId(state, "k", "i")) }),
  fc.constant({ may: [], apply: state => State.withoutEvents(State.removeInstance(state, "k")) }),
  fc.constant({ may: [], apply: state => State.endTurns(state, State.interrupted("why")) }),
  turn.map(turnId => ({
    may: [],
    apply: state => Either.getOrElse(accept(state, turnId, 2), () => State.withoutEvents(state))
  })),
  fc.record({ type: fc.constantFrom(...platformTypes), turnId: turn }).map(({ type, turnId }) => ({
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

const stop: State.PendingStop = { key: "i", instanceId: "i", refusals: 0 }

describe("What is stored of a session", () => {
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
          expect(events.filter(({ type }) => type === "turn_errored")).toHaveLength(turnIds.length)
          expect(State.recover(state).events).toEqual([])
        }
      ),
      { numRuns }
    )
  })

  it("stores nothing if there is nothing to recover", () => {
    expect(State.encodeRecovery(State.initial)).toBeNull()
    expect(State.encodeRecovery(running)).not.toBeNull()
    expect(State.encodeRecovery({ ...accepted("t"), instance: null })).not.toBeNull()
    expect(State.encodeRecovery({ ...State.initial, pendingStops: [stop] })).not.toBeNull()
    expect(Either.isLeft(State.decodeRecovery("active", "{}"))).toBe(true)
  })
})
