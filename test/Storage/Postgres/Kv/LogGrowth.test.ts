import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { LogGrowth } from "../../../../src/Storage/Postgres/Kv/LogGrowth.ts"

const check = (growth: LogGrowth, lastSeq: number, epoch = "e") =>
  Effect.map(growth.check(Effect.succeed({ epoch, lastSeq })), ({ isCut }) => isCut)

describe("the growth of the log", () => {
  it.effect("is missed in a log that was cut and has grown again by a group of this node", () =>
    Effect.gen(function* () {
      const growth = new LogGrowth()
      growth.sending()
      growth.committed(1, 0)
      // Two changes of another node, which are then lost.
      expect(yield* check(growth, 3)).toBe(false)
      growth.sending()
      growth.committed(3, 1)
      expect(yield* check(growth, 3)).toBe(true)
      expect(yield* check(growth, 3, "renewed")).toBe(false)
      growth.sending()
      growth.committed(4, 3)
      expect(yield* check(growth, 4, "renewed")).toBe(false)
    })
  )

  it.effect("is not missed because of what others commit while a group is sent", () =>
    Effect.gen(function* () {
      const growth = new LogGrowth()
      expect(yield* check(growth, 5)).toBe(false)
      growth.sending()
      // The answer of the group comes after a read that has seen later changes.
      expect(yield* check(growth, 9)).toBe(false)
      growth.committed(6, 5)
      expect(yield* check(growth, 9)).toBe(false)
    })
  )

  it.effect("is not missed after a new epoch, which may begin while a group is sent", () =>
    Effect.gen(function* () {
      const growth = new LogGrowth()
      expect(yield* check(growth, 5)).toBe(false)
      growth.sending()
      expect(yield* check(growth, 2, "other")).toBe(false)
      growth.committed(3, 2)
      expect(yield* check(growth, 3, "other")).toBe(false)
    })
  )
})
