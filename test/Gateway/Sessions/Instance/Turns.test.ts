import { Either, FastCheck as fc } from "effect"
import { describe, expect, it } from "vitest"
import type { EventBody, TurnEnd } from "../../../../src/Gateway/Protocol/Event.ts"
import { turnEnds } from "../../../../src/Gateway/Protocol/Event.ts"
import * as State from "../../../../src/Gateway/Sessions/Session/SessionState.ts"
import { times } from "../../../Scale.ts"

const numRuns = times(300)

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

const running: State.SessionState = { ...State.initial, lifecycle: "active" }

const message = (turnId: string) =>
  ({ type: "turn_started", turnId, content: `message ${turnId}`, sub: "alice" }) as const

const accept = (session: State.SessionState, turnId: string) =>
  State.acceptMessage(session, { turnId, content: `message ${turnId}`, sub: "alice" }, State.maxTurns)

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

  it("are not started twice", () => {
    expect(accept(accepted("a"), "a")).toMatchObject({ left: { is: "full" } })
    expect(accept(run(accepted("a"), completed("a")).state, "a")).toMatchObject({ left: { is: "full" } })
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
    expect(accept(full, "more")).toMatchObject({ left: { is: "full" } })
    expect(run(full, started("more"), completed("more")).events).toStrictEqual([])
    const after = run(running, ...[...ids, "more"].flatMap(id => [started(id), completed(id)])).state
    expect(after.turns.ended.size).toBe(State.maxTurns)
    expect(after.turns.ended.has("more")).toBe(true)
  })

  it("have one start and then one end each, for any events", () => {
    const id = fc.constantFrom("a", "b", "c", "d")
    const action = fc.oneof(
      fc.record({ do: fc.constant("accept" as const), id }),
      fc.record({ do: fc.constant("start" as const), id }),
      fc.record({ do: fc.constant("complete" as const), id }),
      fc.record({ do: fc.constant("fail" as const), id }),
      fc.record({ do: fc.constant("unsent" as const), id }),
      fc.record({ do: fc.constant("lose" as const), id })
    )
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
