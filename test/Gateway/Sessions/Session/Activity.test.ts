/** What lists show of a session's activity, as a fold of its updates. */

import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import type { EventBody } from "../../../../src/Gateway/Protocol/Event.ts"
import type { Activity as Shown } from "../../../../src/Gateway/SessionEvents.ts"
import * as Activity from "../../../../src/Gateway/Sessions/Session/Activity.ts"
import * as State from "../../../../src/Gateway/Sessions/Session/SessionState.ts"
import * as Titles from "../../../../src/Gateway/Sessions/Session/Titles.ts"
import { times } from "../../../Scale.ts"

const idle: Shown = { running: false, waiting: false, failed: false }

const active: State.SessionState = { ...State.initial, lifecycle: "active", instance: { key: "k", instanceId: "i" } }

type Step = EventBody | ((state: State.SessionState) => State.Update)

/** The activity after each step, of a session that is active at first. */
const shownAfter = (steps: ReadonlyArray<Step>, stored = idle): ReadonlyArray<Shown> => {
  let activity = Activity.initial(stored)
  let state = active
  return steps.map(step => {
    const update = typeof step === "function" ? step(state) : State.applyEvent(state, step)
    activity = Activity.after(activity, update)
    state = update.state
    return activity.shown
  })
}

const started = (turnId: string): EventBody => ({ type: "turn_started", turnId })
const completed = (turnId: string): EventBody => ({ type: "turn_completed", turnId })
const errored: EventBody = { type: "turn_errored", turnId: "t1", code: "c", message: "m", retryable: false }
const asked = (requestId: string, turnId?: string): EventBody => ({
  ...{ type: "question_requested", requestId, question: "?" },
  ...(turnId === undefined ? {} : { turnId })
})
const resolved = (requestId: string): EventBody => ({ type: "approval_resolved", requestId, approved: true })
const approval = (requestId: string, turnId: string): EventBody => ({
  ...{ type: "approval_requested", requestId, turnId, action: "run" }
})
const on =
  (...events: ReadonlyArray<State.LifecycleEvent>) =>
  (state: State.SessionState): State.Update =>
    events.reduce(
      (update, event) => State.andThen(update, state => State.transition(state, event)),
      State.withoutEvents(state)
    )

describe("The activity of a session", () => {
  it("is running from the start of a turn to the end of the last open one", () => {
    const steps = [started("t1"), started("t2"), completed("t1"), completed("t1"), completed("t2")]
    expect(shownAfter(steps).map(({ running }) => running)).toEqual([true, true, true, true, false])
  })

  it("waits while a request of a turn or of none is pending, until it is resolved or its turn ends", () => {
    const waiting = (...steps: ReadonlyArray<Step>) => shownAfter(steps).map(({ waiting }) => waiting)
    expect(waiting(started("t1"), asked("q1", "t1"), approval("a1", "t1"), resolved("q1"), resolved("a1"))).toEqual([
      ...[false, true, true, true, false]
    ])
    expect(waiting(started("t1"), asked("q1", "t1"), completed("t1"))).toEqual([false, true, false])
    expect(waiting(started("t1"), asked("q1"), completed("t1"), resolved("q1"))).toEqual([false, true, true, false])
    // A request that comes after the end of its turn is not waited for.
    expect(waiting(started("t1"), completed("t1"), asked("q1", "t1"))).toEqual([false, false, false])
    // The end of the instance ends all requests.
    expect(waiting(asked("q1"), on("ended"))).toEqual([true, false])
    expect(waiting(asked("q1"), on("disconnected"), on("reconnected"))).toEqual([true, true, true])
  })

  it("is bounded in the requests that it keeps", () => {
    const steps = Array.from({ length: 3000 }, (_, index) => asked(`q${index}`))
    let activity = Activity.initial(idle)
    for (const step of steps) activity = Activity.after(activity, State.applyEvent(active, step))
    expect(activity.pending.size).toBe(1024)
    expect(activity.pending.has("q2999")).toBe(true)
  })

  it("has failed after the failure of a turn or of the session, until the next turn or start", () => {
    const failed = (...steps: ReadonlyArray<Step>) => shownAfter(steps).map(({ failed }) => failed)
    expect(failed(started("t1"), errored, started("t2"), completed("t2"))).toEqual([false, true, false, false])
    expect(failed(on("failed"), on("activate"), on("activated"))).toEqual([true, false, false])
    expect(failed(on("failed"), on("deactivate", "deactivated"))).toEqual([true, true])
    // Neither a lost connection nor a report of the instance ends a failure.
    expect(failed(started("t1"), errored, on("disconnected"), on("reconnected"))).toEqual([false, true, true, true])
    const report = (state: State.SessionState) =>
      State.applyReport(state, { type: "session_state", state: "activating", reason: "r" })
    expect(failed(started("t1"), errored, report)).toEqual([false, true, true])
  })

  it("after a crash is what the recovery of the turns leaves", () => {
    const stored = { running: true, waiting: true, failed: false }
    const recovering = (state: State.SessionState) =>
      State.recover({ ...state, turns: { open: new Map([["t1", "started"]]), ended: new Set() } })
    expect(shownAfter([recovering], stored)).toEqual([{ ...idle, failed: true }])
    // Without an event too.
    const quietly = (state: State.SessionState) => State.withoutEvents({ ...state, lifecycle: "inactive" })
    expect(shownAfter([quietly], { ...stored, failed: true })).toEqual([{ ...idle, failed: true }])
  })

  it("is the same object after an event that changes neither it nor the time", () => {
    const before = Activity.initial(idle)
    const of = (body: EventBody) => Activity.after(before, State.applyEvent(active, body))
    expect(of({ type: "text_delta", text: "x" })).toBe(before)
    expect(of({ type: "tool_result", callId: "c" })).toBe(before)
    // A second request changes nothing but the time.
    expect(of(resolved("unknown"))).not.toBe(before)
  })
})

const numRuns = times(100)

describe("Titles", () => {
  it("are the first words of a message, within a line", () => {
    expect(Titles.titleOf("  Hello \n there ")).toBe("Hello there")
    expect(Titles.titleOf("x".repeat(200))).toBe(`${"x".repeat(60)}…`)
    expect(Titles.titleOf(`${"word ".repeat(30)}`)).toMatch(/^(word ){8,11}word…?$/)
    fc.assert(
      fc.property(fc.fullUnicodeString({ maxLength: 300 }), text => {
        const title = Titles.titleOf(text)
        expect(title.length).toBeLessThanOrEqual(61)
        expect(title.isWellFormed()).toBe(true)
        expect(title).not.toMatch(/[\r\n]/)
      }),
      { numRuns }
    )
  })

  it("are taken from a model's answer as far as that is one", () => {
    expect(Titles.fromAnswer('"Tides and the Moon"\n\nHope that helps!')).toBe("Tides and the Moon")
    expect(Titles.fromAnswer("## **Tides**")).toBe("Tides")
    expect(Titles.fromAnswer(" \n")).toBeUndefined()
  })

  it("are made of the beginning of a text, however long and odd it is", () => {
    // With one look back for each blank these would take hours.
    const blanks = " ".repeat(4_000_000)
    expect(Titles.fromAnswer(`"Tides${blanks}and the Moon"`)).toBe("Tides")
    expect(Titles.fromAnswer(`${blanks}Tides${blanks}`)).toBe("Tides")
    expect(Titles.fromAnswer(`a${"*".repeat(4_000_000)}b`)).toBe("a")
    expect(Titles.fromAnswer(`a${"*".repeat(100)}b`)).toBe(`a${"*".repeat(59)}…`)
    expect(Titles.titleOf(`a${blanks}b`)).toBe("a")
    expect(Titles.titleOf(`${"a".repeat(59)}😀b`)).toBe(`${"a".repeat(59)}…`)
    expect(Titles.titleOf(`a${" ".repeat(998)}😀`)).toBe("a")
    expect(Titles.titleOf("\ud83d")).toBe("\ufffd")
  })
})
