import { describe, expect, it } from "@effect/vitest"
import { Gathering } from "../../src/Storage/Gathering.ts"

/** Milliseconds. */
const commit = 4

describe("Gathering", () => {
  it("two halves of writers that return within the time of a commit are gathered into one group", () => {
    const gathering = new Gathering(5)
    gathering.answered(8, 8, commit)
    for (let group = 0; group < 100; group++) {
      expect(gathering.expected).toBe(16)
      gathering.taken(16, { there: group === 0 ? 8 : 1, millis: commit })
      gathering.answered(16, 0, commit)
    }
  })

  it("the limit follows the average time of a commit, up to a bound", () => {
    const gathering = new Gathering(5)
    expect(gathering.limit).toBe(0)
    gathering.answered(1, 0, 2)
    expect(gathering.limit).toBe(4)
    gathering.answered(1, 0, 100)
    expect(gathering.limit).toBe(5)
  })

  it("where nobody returns in time, fewer and fewer groups wait", () => {
    const gathering = new Gathering(5)
    const waits: Array<number> = []
    for (let group = 0; group < 200; group++) {
      gathering.answered(8, 3, commit)
      if (gathering.expected === 3) continue
      waits.push(group)
      gathering.taken(3, { there: 3, millis: 5 })
    }
    expect(waits).toEqual([0, 2, 5, 10, 19, 36, 69, 102, 135, 168])
  })

  it("so it is where those who come are fewer than those who wait for them", () => {
    const gathering = new Gathering(5)
    gathering.answered(8, 8, commit)
    gathering.taken(12, { there: 8, millis: 5 })
    // 4 were spared a commit of 4 ms, and 8 have waited for 5 ms.
    gathering.answered(12, 2, commit)
    expect(gathering.expected).toBe(2)
  })

  it("where most return, as many are waited for as have come, until all are tried again", () => {
    const gathering = new Gathering(5)
    gathering.answered(64, 0, commit)
    gathering.taken(60, { there: 1, millis: 5 })
    gathering.answered(60, 4, commit)
    expect(gathering.expected).toBe(4 + 59)
    gathering.taken(63, { there: 5, millis: 1 })
    gathering.answered(63, 1, commit)
    expect(gathering.expected).toBe(64)
    // It fails again, so that two groups wait for fewer.
    gathering.taken(61, { there: 2, millis: 5 })
    for (const expected of [59, 59, 62]) {
      gathering.answered(62, 0, commit)
      expect(gathering.expected).toBe(expected)
    }
  })

  it("once all have returned, a failure counts as the first one again", () => {
    const gathering = new Gathering(5)
    const fail = () => gathering.taken(1, { there: 1, millis: 5 })
    const next = () => {
      gathering.answered(2, 1, commit)
      return gathering.expected
    }
    for (const pause of [1, 2, 4]) {
      expect(next()).toBe(3)
      fail()
      for (let group = 0; group < pause; group++) expect(next()).toBe(1)
    }
    expect(next()).toBe(3)
    gathering.taken(3, { there: 1, millis: 1 })
    expect(next()).toBe(3)
    fail()
    expect([next(), next()]).toEqual([1, 3])
  })

  it("a wait that brings nothing into a full group has not paid", () => {
    const gathering = new Gathering(5)
    gathering.answered(1, 1, commit)
    gathering.taken(1, { there: 1, millis: 1 })
    gathering.answered(1, 1, commit)
    expect(gathering.expected).toBe(1)
  })
})
