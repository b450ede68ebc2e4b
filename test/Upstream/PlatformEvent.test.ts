import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import * as PlatformEvent from "../../src/Upstream/PlatformEvent.ts"
import { times } from "../Scale.ts"

describe("PlatformEvent", () => {
  it("reads the envelope and keeps all the rest", () => {
    const frame = '{"id":"e1","type":"message.delta","timestamp":5,"text":"hi","__proto__":{"a":1}}'
    const event = Either.getOrThrow(PlatformEvent.fromFrame(frame))
    expect(event).toMatchObject({ id: "e1", type: "message.delta", timestamp: 5 })
    expect(JSON.stringify(event.payload)).toBe(frame)
    expect(Object.getPrototypeOf(event.payload)).toBe(Object.prototype)
  })

  it("does without an id and a timestamp, or with odd ones", () => {
    const read = (frame: unknown) => Either.getOrThrow(PlatformEvent.fromFrame(JSON.stringify(frame)))
    expect(read({ type: "x" })).toMatchObject({ id: undefined, timestamp: undefined })
    expect(read({ type: "x", id: 7, timestamp: "2024-05-01T00:00:00Z" })).toMatchObject({
      id: "7",
      timestamp: Date.UTC(2024, 4, 1)
    })
    expect(read({ type: "x", id: {}, timestamp: "soon" })).toMatchObject({ id: undefined, timestamp: undefined })
    expect(read({ type: "x", id: "", timestamp: null })).toMatchObject({ id: undefined, timestamp: undefined })
  })

  it("reports why a frame is not an event", () => {
    expect(PlatformEvent.fromFrame("{")).toEqual(Either.left("is not JSON"))
    for (const frame of ["1", "null", "[]", '"x"'])
      expect(PlatformEvent.fromFrame(frame)).toEqual(Either.left("is not an object"))
    for (const type of [undefined, "", 5, "x".repeat(257)]) {
      expect(PlatformEvent.fromFrame(JSON.stringify({ type }))).toEqual(Either.left("is without a type"))
    }
  })

  it("never throws, whatever arrives", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json()), frame => {
        const event = PlatformEvent.fromFrame(frame)
        if (Either.isRight(event)) expect(JSON.parse(frame).type).toBe(event.right.type)
      }),
      { numRuns: times(300) }
    )
  })
})
