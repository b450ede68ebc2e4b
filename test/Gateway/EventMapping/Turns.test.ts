import { FastCheck as fc, Option } from "effect"
import { describe, expect, it } from "vitest"
import * as Turns from "../../../src/Gateway/EventMapping/Turns.ts"
import type { EventBody, TurnEnd } from "../../../src/Gateway/Protocol/Event.ts"
import { turnEnds } from "../../../src/Gateway/Protocol/Event.ts"

const numRuns = 300 * Number(process.env.SOAK ?? 1)

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
const run = (turns: Turns.Turns, ...bodies: ReadonlyArray<EventBody>): Turns.Update =>
  bodies.reduce<Turns.Update>(
    (before, body) => {
      const { turns, events } = Turns.apply(before.turns, body)
      return { turns, events: [...before.events, ...events] }
    },
    { turns, events: [] }
  )

const message = (turnId: string) =>
  ({ type: "turn_started", turnId, content: `message ${turnId}`, sub: "alice" }) as const

const accept = (turns: Turns.Turns, turnId: string) => Turns.accept(turns, message(turnId))

const accepted = (...turnIds: ReadonlyArray<string>): Turns.Turns =>
  turnIds.reduce((turns, turnId) => Option.getOrThrow(accept(turns, turnId)).turns, Turns.none)

/** As an earlier version has left it: its start is not told yet. */
const early = (turnId: string): Turns.Turns => ({ ...Turns.none, open: new Map([[turnId, "accepted"]]) })

describe("turns", () => {
  it("begin and end once", () => {
    const { turns, events } = run(
      accepted("a"),
      started("a"),
      started("a"),
      text,
      completed("a"),
      errored("a"),
      started("a"),
      completed("a")
    )
    expect(events).toStrictEqual([text, completed("a")])
    expect(turns.open.size).toBe(0)
  })

  it("of a client's message are told with what was written, and not again when the agent begins", () => {
    const { turns, events } = Option.getOrThrow(accept(Turns.none, "a"))
    expect(events).toStrictEqual([message("a")])
    expect(Turns.isPending(turns, "a")).toBe(true)
    const begun = Turns.apply(turns, started("a"))
    expect(begun.events).toStrictEqual([])
    expect(Turns.isPending(begun.turns, "a")).toBe(false)
  })

  it("that the agent has not begun end by themselves", () => {
    const { turns } = run(accepted("a", "b", "c"), started("a"))
    const ended = Turns.endPending(turns, ["a", "b", "x"], errored)
    expect(ended.events).toStrictEqual([errored("b")])
    expect([...ended.turns.open.keys()]).toStrictEqual(["a", "c"])
  })

  it("of the agent's own accord begin and end as well", () => {
    expect(run(Turns.none, started("a"), completed("a")).events).toStrictEqual([started("a"), completed("a")])
  })

  it("that nobody knows do not end", () => {
    expect(run(Turns.none, completed("a"), errored("a"))).toStrictEqual({ turns: Turns.none, events: [] })
  })

  it("that end before their start was told have it told", () => {
    expect(run(early("a"), completed("a")).events).toStrictEqual([started("a"), completed("a")])
    expect(run(early("a"), started("a"), completed("a")).events).toStrictEqual([started("a"), completed("a")])
  })

  it("let pass what comes after their end", () => {
    expect(run(Turns.none, started("a"), completed("a"), text).events).toStrictEqual([
      started("a"),
      completed("a"),
      text
    ])
  })

  it("end all together, in the order in which they came", () => {
    const { turns } = run(accepted("a", "b", "c"), started("b"), started("c"), completed("c"))
    const ended = Turns.endAll(turns, errored)
    expect(ended.events).toStrictEqual([errored("a"), errored("b")])
    expect(ended.turns.open.size).toBe(0)
    expect(Turns.endAll(ended.turns, errored).events).toStrictEqual([])
  })

  it("are not taken up twice", () => {
    expect(accept(accepted("a"), "a")).toStrictEqual(Option.none())
    expect(accept(run(accepted("a"), completed("a")).turns, "a")).toStrictEqual(Option.none())
  })

  it("are worked at in the order in which they came", () => {
    const waiting = accepted("a", "b")
    expect(Turns.current(Turns.none)).toBeUndefined()
    expect(Turns.current(waiting)).toBe("a")
    expect(Turns.current(run(waiting, started("b")).turns)).toBe("b")
    expect(Turns.current(run(waiting, started("a"), started("c")).turns)).toBe("c")
    expect(Turns.current(run(waiting, started("a"), completed("a")).turns)).toBe("b")
  })

  it("keep within their bounds", () => {
    const ids = Array.from({ length: Turns.most }, (_, i) => `t${i}`)
    const full = accepted(...ids)
    expect(accept(full, "more")).toStrictEqual(Option.none())
    expect(run(full, started("more"), completed("more")).events).toStrictEqual([])
    const after = run(Turns.none, ...[...ids, "more"].flatMap(id => [started(id), completed(id)])).turns
    expect(after.ended.size).toBe(Turns.most)
    expect(after.ended.has("more")).toBe(true)
  })

  it("are known again from what was stored", () => {
    const bodies = [started("a"), started("b"), completed("a"), text]
    const { turns } = run(Turns.none, ...bodies)
    expect([...turns.open.keys()]).toStrictEqual(["b"])
  })

  it("have one start and then one end each, whatever comes and whenever all ends", () => {
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
        let turns = Turns.none
        const told: Array<EventBody> = []
        const known = new Set<string>()
        const take = (update: Turns.Update) => {
          turns = update.turns
          told.push(...update.events)
        }
        for (const { do: what, id } of actions) {
          if (what === "accept" || what === "start") known.add(id)
          if (what === "accept") Option.map(accept(turns, id), take)
          else if (what === "unsent") take(Turns.endPending(turns, [id], errored))
          else if (what === "start") take(Turns.apply(turns, started(id)))
          else if (what === "complete") take(Turns.apply(turns, completed(id)))
          else if (what === "fail") take(Turns.apply(turns, errored(id)))
          else take(Turns.endAll(turns, errored))
        }
        take(Turns.endAll(turns, errored))
        const ends: ReadonlyArray<string> = turnEnds
        for (const id of known) {
          const kinds = told.filter(body => "turnId" in body && body.turnId === id).map(({ type }) => type)
          expect(kinds).toHaveLength(2)
          expect(kinds[0]).toBe("turn_started")
          expect(ends).toContain(kinds[1])
        }
        expect(told.every(body => "turnId" in body && known.has(String(body.turnId)))).toBe(true)
      }),
      { numRuns }
    )
  })
})
