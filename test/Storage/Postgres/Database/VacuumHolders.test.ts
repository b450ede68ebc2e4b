/** How long vacuum was held back, by the answers of the server. */
import { describe, expect, it } from "vitest"
import { HeldBack } from "../../../../src/Storage/Postgres/Database/VacuumHolders.ts"

const minute = 60_000

describe("HeldBack", () => {
  it("is the age of the oldest transaction if the server returns it", () => {
    const held = new HeldBack()
    const found = held.update([["session", 90, "700", 12]], 5000)
    expect(Object.fromEntries(found)).toEqual({ session: 90, prepared: 0, slot: 0, standby: 0 })
    expect(held.update([["session", 20, "750", 3]], 5000 + minute).get("session")).toBe(20)
  })

  it("counts from when the same id was first seen if the server does not return the age", () => {
    const held = new HeldBack()
    const slot = (xid: string, minutes: number) => held.update([["slot", null, xid, 5]], minutes * minute).get("slot")
    expect([slot("700", 10), slot("700", 11), slot("700", 12), slot("720", 13), slot("720", 14)]).toEqual([
      0, 60, 120, 0, 60
    ])
    expect(held.update([], 15 * minute).get("slot")).toBe(0)
    expect(slot("720", 16)).toBe(0)
  })

  it("distinguishes the kinds of holders", () => {
    const held = new HeldBack()
    held.update([["slot", null, "700", 5]], 0)
    const found = held.update(
      [
        ["slot", null, "700", 9],
        ["standby", null, "700", 9],
        ["prepared", 7, "702", 7]
      ],
      minute
    )
    expect(Object.fromEntries(found)).toEqual({ session: 0, prepared: 7, slot: 60, standby: 0 })
  })

  it("is nothing while no newer id was given out, as new snapshots have the same one then", () => {
    const held = new HeldBack()
    expect(held.update([["standby", null, "700", 0]], 0).get("standby")).toBe(0)
    expect(held.update([["standby", null, "700", 0]], minute).get("standby")).toBe(0)
    expect(held.update([["standby", null, "700", 4]], 2 * minute).get("standby")).toBe(0)
    expect(held.update([["standby", null, "700", 4]], 3 * minute).get("standby")).toBe(60)
  })

  it("is not below 0, whatever the clock of the server does", () => {
    expect(new HeldBack().update([["session", -3, "700", 0]], 0).get("session")).toBe(0)
    expect(new HeldBack().update([["session", -3, "700", 1]], 0).get("session")).toBe(0)
  })
})
