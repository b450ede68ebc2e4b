import { describe, expect, it, vi } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import { GrowingBytes } from "../../src/base/UnfinishedMessage.ts"
import { times } from "../Scale.ts"

const numRuns = times(100)

describe("bytes that arrive in pieces", () => {
  it("are read as they were written, however they are split", () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 9000 }), { maxLength: 12 }), pieces => {
        const whole = Buffer.concat(pieces)
        const bytes = new GrowingBytes(whole.length)
        for (const piece of pieces) {
          bytes.add(piece)
          piece.slice().fill(0)
        }
        expect(bytes.length).toBe(whole.length)
        expect(whole.equals(bytes.take())).toBe(true)
        expect(bytes.length).toBe(0)
      }),
      { numRuns }
    )
  })

  it("are copied into few buffers, none larger than the limit", () => {
    const most = 1_000_000
    const allocate = vi.spyOn(Buffer, "allocUnsafeSlow")
    try {
      const bytes = new GrowingBytes(most)
      const piece = Uint8Array.of(7)
      for (let count = 0; count < most; count++) bytes.add(piece)
      const sizes = allocate.mock.calls.map(([size]) => size)
      expect(sizes.length).toBeLessThan(12)
      expect(Math.max(...sizes)).toBe(most)
      expect(bytes.take().every(byte => byte === 7)).toBe(true)
    } finally {
      allocate.mockRestore()
    }
  })

  it("are not copied where there is one piece, which is never written to", () => {
    const first = Buffer.from("one")
    const alone = new GrowingBytes(10)
    alone.add(first)
    expect(alone.take()).toEqual(first)
    const pool = Buffer.from("one and what is behind it")
    const more = new GrowingBytes(10)
    more.add(pool.subarray(0, 3))
    more.add(Buffer.from("two"))
    expect(more.take().toString()).toBe("onetwo")
    expect(pool.toString()).toBe("one and what is behind it")
  })

  it("may be empty", () => {
    const bytes = new GrowingBytes(10)
    expect(bytes.take()).toHaveLength(0)
    bytes.add(new Uint8Array(0))
    expect(bytes.take()).toHaveLength(0)
  })
})
