import { expect, it } from "@effect/vitest"
import { Gathering } from "../../../src/Storage/Postgres/Gathering.ts"

/** Commits groups one after the other, each of which could have its turn `turn` milliseconds after it can be sent. */
const play = (turns: ReadonlyArray<number>, pause = 0): ReadonlyArray<number> => {
  let now = 1000
  const gathering = new Gathering(() => now)
  return turns.map(turn => {
    const gathered = gathering.begin()
    now += gathered
    gathering.sent()
    const waited = Math.max(0, turn - gathered)
    now += waited
    gathering.waited(waited)
    now += pause
    return gathered
  })
}

it("a node that waits for nobody gathers nothing", () => {
  expect(play(Array.from({ length: 20 }, () => 0.4))).toEqual(Array.from({ length: 20 }, () => 0))
})

it("half of a wait that lasts is spent gathering, and no group is late for its turn", () => {
  const gathered = play(Array.from({ length: 40 }, () => 6))
  expect(gathered[0]).toBe(0)
  expect(gathered.slice(20)).toEqual(Array.from({ length: 20 }, () => 2))
})

it("however long others take, a group is gathered for a few milliseconds at most", () => {
  expect(
    Math.max(
      ...play(
        Array.from({ length: 40 }, () => 1500),
        0
      )
    )
  ).toBeLessThanOrEqual(5)
})

it("it ends soon when others stop, and what is old does not count", () => {
  const stopped = play([...Array.from({ length: 40 }, () => 8), ...Array.from({ length: 20 }, () => 0)])
  expect(stopped[40]).toBeGreaterThan(0)
  expect(stopped.slice(50)).toEqual(Array.from({ length: 10 }, () => 0))
  expect(
    play(
      Array.from({ length: 40 }, () => 8),
      200
    )
  ).toEqual(Array.from({ length: 40 }, () => 0))
})
