import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import {
  admit,
  answered,
  at,
  initial,
  nextChange,
  type Permit,
  type State,
  defaults as settings,
  settle,
  type Verdict
} from "../../../src/Upstream/Resilience/CircuitBreakerState.ts"
import { times } from "../../Scale.ts"

const numRuns = times(300)

/** Makes a call that ends at once. */
const call = (state: State, now: number, verdict: Verdict): State => {
  const [admission, admitted] = admit(state, now, settings)
  expect(admission._tag).toBe("admitted")
  return admission._tag === "admitted" ? settle(admitted, admission.permit, verdict, now, settings) : admitted
}

const calls = (state: State, now: number, verdicts: string): State =>
  [...verdicts].reduce((state, letter) => call(state, now, letter === "f" ? "failure" : "success"), state)

const opened = (now = 0): State => calls(initial, now, "fffff")

const permitAt = (state: State, now: number): readonly [Permit, State] => {
  const [admission, after] = admit(state, now, settings)
  if (admission._tag !== "admitted") throw new Error("rejected")
  return [admission.permit, after]
}

describe("CircuitBreaker", () => {
  it("opens at five failures in a row, not at four, and a success in between resets the count", () => {
    expect(calls(initial, 0, "ffff")._tag).toBe("closed")
    expect(calls(initial, 0, "ffffsffff")._tag).toBe("closed")
    expect(opened()).toMatchObject({ _tag: "open", until: 10_000, cooldownMillis: 10_000 })
  })

  it("says when time alone changes it", () => {
    expect(nextChange(initial)).toBeUndefined()
    expect(nextChange(opened())).toBe(10_000)
    const idle = at(opened(), 10_000)
    expect(nextChange(idle)).toBeUndefined()
    expect(nextChange(admit(idle, 10_000, settings)[1])).toBeUndefined()
  })

  it("lets background calls through when half open, which take no permit and disturb no probe", () => {
    const background = (state: State, now: number, verdict: Verdict): State => {
      const [admission, after] = admit(state, now, settings, true)
      return admission._tag === "admitted" ? settle(after, admission.permit, verdict, now, settings) : after
    }
    expect(admit(opened(), 9000, settings, true)[0]).toEqual({
      _tag: "rejected",
      retryAfterMillis: 1000
    })
    const idle = at(opened(), 10_000)
    expect(admit(idle, 10_000, settings, true)[1]).toEqual(idle)
    expect(background(idle, 10_000, "success")._tag).toBe("closed")
    expect(background(idle, 10_000, "failure")).toMatchObject({ _tag: "open", until: 30_000 })
    expect(background(idle, 10_000, "abandoned")).toEqual(idle)
    const [permit, probing] = permitAt(idle, 10_000)
    for (const verdict of ["failure", "abandoned"] as const)
      expect(background(probing, 10_001, verdict)).toEqual(probing)
    expect(background(probing, 10_001, "success")._tag).toBe("closed")
    // The probe's own verdict still counts.
    expect(settle(probing, permit, "failure", 10_002, settings)._tag).toBe("open")
    const failing = Array.from({ length: 5 }).reduce<State>(state => background(state, 0, "failure"), initial)
    expect(failing._tag).toBe("open")
  })

  it("opens at half of twenty calls, not at half of nineteen nor at less than half", () => {
    expect(calls(initial, 0, "fsfsfsfsfsfsfsfsfsf")._tag).toBe("closed")
    expect(calls(initial, 0, "fsfsfsfsfsfsfsfsfsfs")._tag).toBe("open")
    expect(calls(initial, 0, "fsfsfsfsfsfsfsfsfsss")._tag).toBe("closed")
  })

  it("forgets calls that are more than 30 s old", () => {
    const early = calls(initial, 0, "ffsffsffsffs")
    expect(calls(early, 29_000, "ssssssss")._tag).toBe("closed")
    expect(calls(early, 29_000, "sfsfsfsf")._tag).toBe("open")
    expect(calls(early, 31_000, "sfsfsfsf")._tag).toBe("closed")
  })

  it("does not count abandoned calls", () => {
    let state: State = initial
    for (let i = 0; i < 100; i++) state = call(state, 0, "abandoned")
    expect(state).toEqual(initial)
    state = calls(state, 0, "ffff")
    expect(call(call(state, 0, "abandoned"), 0, "failure")._tag).toBe("open")
  })

  it("rejects while open and says for how long", () => {
    const [admission, state] = admit(opened(), 4000, settings)
    expect(admission).toEqual({ _tag: "rejected", retryAfterMillis: 6000 })
    expect(state).toEqual(opened())
    expect(at(opened(), 9999)._tag).toBe("open")
    expect(at(opened(), 10_000)._tag).toBe("half_open")
  })

  it("lets one probe through after the cooldown, and closes at its success", () => {
    const [permit, probing] = permitAt(opened(), 10_000)
    expect(probing._tag).toBe("half_open")
    // Others retry soon, and no later than the next probe.
    expect(admit(probing, 10_001, settings)[0]).toEqual({
      _tag: "rejected",
      retryAfterMillis: 1000
    })
    expect(admit(probing, 19_500, settings)[0]).toEqual({ _tag: "rejected", retryAfterMillis: 500 })
    const closed = settle(probing, permit, "success", 10_002, settings)
    expect(closed).toMatchObject({ _tag: "closed", failuresInRow: 0, calls: [] })
  })

  it("doubles the cooldown while probes fail, up to a minute, and resets it once it was closed", () => {
    let [state, now] = [opened(), 0]
    for (const cooldown of [10_000, 20_000, 40_000, 60_000, 60_000]) {
      expect(state).toMatchObject({ _tag: "open", until: now + cooldown, cooldownMillis: cooldown })
      now += cooldown
      state = call(state, now, "failure")
    }
    now += 60_000
    state = calls(call(state, now, "success"), now, "fffff")
    expect(state).toMatchObject({ _tag: "open", cooldownMillis: 10_000 })
  })

  it("gives the permit of an abandoned probe to the next call", () => {
    const [permit, probing] = permitAt(opened(), 10_000)
    const waiting = settle(probing, permit, "abandoned", 11_000, settings)
    expect(waiting).toMatchObject({ _tag: "half_open", nextProbe: undefined, cooldownMillis: 10_000 })
    const [second, again] = permitAt(waiting, 11_000)
    expect(settle(again, second, "success", 11_000, settings)._tag).toBe("closed")
  })

  it("lets another probe through after a while, and the first that is answered closes it, however late", () => {
    const [slow, probing] = permitAt(opened(), 10_000)
    expect(admit(probing, 19_999, settings)[0]._tag).toBe("rejected")
    const [second, both] = permitAt(probing, 20_000)
    expect(admit(both, 20_001, settings)[0]._tag).toBe("rejected")
    expect(settle(both, slow, "success", 80_000, settings)._tag).toBe("closed")
    const failed = settle(both, second, "failure", 21_000, settings)
    expect(failed).toMatchObject({ _tag: "open", until: 41_000, cooldownMillis: 20_000 })
    expect(settle(failed, slow, "success", 21_001, settings)).toEqual(failed)
  })

  it("closes when a probe is answered that continues; otherwise the end of a call counts", () => {
    const [permit, probing] = permitAt(opened(), 10_000)
    const closed = answered(probing, permit, 10_001)
    expect(closed._tag).toBe("closed")
    expect(settle(closed, permit, "failure", 50_000, settings)).toEqual(closed)
    let state: State = initial
    for (let count = 0; count < 5; count++) {
      const [next, admitted] = permitAt(state, 0)
      state = settle(answered(admitted, next, 1), next, "failure", 2, settings)
    }
    expect(state._tag).toBe("open")
  })

  it("ignores verdicts on calls from before a transition", () => {
    const [late, state] = permitAt(initial, 0)
    const open = calls(state, 0, "fffff")
    expect(settle(open, late, "success", 1, settings)).toEqual(open)
    expect(settle(open, late, "failure", 1, settings)).toEqual(open)
    const closed = call(open, 10_000, "success")
    expect(settle(closed, late, "failure", 10_001, settings)).toEqual(closed)
  })

  type Event =
    | { readonly _tag: "pass"; readonly millis: number }
    | { readonly _tag: "call" }
    | { readonly _tag: "end"; readonly which: number; readonly verdict: Verdict }

  const event: fc.Arbitrary<Event> = fc.oneof(
    fc.record({
      _tag: fc.constant("pass" as const),
      // A clock may be set back, too.
      millis: fc.oneof(
        fc.integer({ min: 0, max: 500 }),
        fc.constantFrom(10_000, 30_000, 60_000),
        fc.integer({ min: -2000, max: 0 })
      )
    }),
    fc.record({ _tag: fc.constant("call" as const) }),
    fc.record({
      _tag: fc.constant("end" as const),
      which: fc.nat(20),
      verdict: fc.constantFrom("failure" as const, "failure" as const, "success" as const, "abandoned" as const)
    })
  )

  const isSound = (state: State): boolean => {
    switch (state._tag) {
      case "closed":
        return (
          state.failuresInRow >= 0 &&
          state.failuresInRow < settings.consecutiveFailures &&
          state.calls.length <= settings.window.slots
        )
      case "open":
        return Number.isFinite(state.until) && [10_000, 20_000, 40_000, 60_000].includes(state.cooldownMillis)
      case "half_open":
        return [10_000, 20_000, 40_000, 60_000].includes(state.cooldownMillis)
    }
  }

  it("no sequence of events leads to an undefined state, lets a call through before the cooldown, or two while half open", () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 200 }), events => {
        let state: State = initial
        let now = 1_700_000_000_000
        const under: Array<Permit> = []
        for (const event of events) {
          const before = at(state, now)
          switch (event._tag) {
            case "pass":
              now += event.millis
              break
            case "call": {
              const [admission, after] = admit(state, now, settings)
              if (admission._tag === "admitted") {
                expect(before._tag === "open").toBe(false)
                if (before._tag === "half_open") expect(before.nextProbe ?? now).toBeLessThanOrEqual(now)
                if (state._tag === "open") expect(now).toBeGreaterThanOrEqual(state.until)
                under.push(admission.permit)
              } else {
                expect(before._tag === "closed").toBe(false)
                expect(admission.retryAfterMillis).toBeGreaterThan(0)
              }
              state = after
              break
            }
            case "end": {
              const [permit] = under.splice(event.which % Math.max(1, under.length), 1)
              if (permit === undefined) break
              state = settle(state, permit, event.verdict, now, settings)
              // Only failures open, only a success closes.
              if (event.verdict === "abandoned") expect(state._tag).toBe(before._tag)
              if (before._tag !== "closed" && state._tag === "closed") expect(event.verdict).toBe("success")
              if (before._tag === "half_open" && state._tag === "open") expect(event.verdict).toBe("failure")
              break
            }
          }
          expect(isSound(state)).toBe(true)
        }
      }),
      { numRuns }
    )
  })

  it("whatever happened, it closes again once the upstream answers", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(0, 1000, 10_000, 60_000), { maxLength: 30 }), waits => {
        let [state, now] = [opened(), 0]
        for (const wait of waits) {
          now += wait
          const [admission, after] = admit(state, now, settings)
          state = after
          if (admission._tag === "admitted" && wait !== 1000) {
            state = settle(state, admission.permit, "failure", now, settings)
          }
        }
        // Longer than any deadline and cooldown together.
        expect(call(state, now + 90_000, "success")._tag).toBe("closed")
      }),
      { numRuns }
    )
  })
})
