import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import * as ServerSentEvents from "../../src/Upstream/ServerSentEvents.ts"
import { times } from "../Scale.ts"

const read = (...pieces: ReadonlyArray<string>) => {
  const reader = ServerSentEvents.reader()
  return pieces.flatMap(piece => reader.push(piece))
}

const message = (data: string, name = "message") => ({ name, data })

describe("ServerSentEvents", () => {
  it("reads lines of data, names, comments and unknown fields", () => {
    expect(read("data: a\n\n")).toEqual([message("a")])
    expect(read("data:a\ndata: b\ndata\n\n")).toEqual([message("a\nb\n")])
    expect(read(": comment\nid: 7\nretry: 5\nevent: error\ndata:  two spaces\n\n")).toEqual([
      message(" two spaces", "error")
    ])
    expect(read("event: lonely\n\ndata: next\n\n")).toEqual([message("next")])
    expect(read("data: unfinished\n")).toEqual([])
  })

  it("takes any line ending, also one that is cut in two", () => {
    expect(read("data: a\r\n\r\ndata: b\r\rdata: c\n\n")).toEqual([message("a"), message("b"), message("c")])
    expect(read("data: a\r", "\n\r", "\n")).toEqual([message("a")])
    expect(read("data: a\r", "", "\ndata: b\r\n\r\n")).toEqual([message("a\nb")])
  })

  it("leaves out an event that is too long, in one piece or many, and reads on", () => {
    const long = `data: ${"x".repeat(100)}\ndata: more\n\n`
    const left = { name: "message", data: "", isTooLong: true }
    const text = `data: a\n\n${long}data: b\n\n:${"y".repeat(100)}\n\ndata: c\n\n`
    for (const size of [1, 7, 30, 1000]) {
      const reader = ServerSentEvents.reader(50)
      const pieces = text.match(new RegExp(`[^]{1,${size}}`, "g")) ?? []
      const events = pieces.flatMap(piece => {
        const read = reader.push(piece)
        expect(reader.unfinished()).toBeLessThanOrEqual(50)
        return read
      })
      expect(events).toEqual([message("a"), left, message("b"), message("c")])
    }
  })

  it("gives at the end what the end cut off", () => {
    const reader = ServerSentEvents.reader()
    expect(reader.push("data: [DONE]")).toEqual([])
    expect(reader.end()).toEqual([{ ...message("[DONE]"), isCut: true }])
    expect(reader.end()).toEqual([])
  })

  it("reports an event that does not come to an end as soon as it is too long, and once", () => {
    const reader = ServerSentEvents.reader()
    const half = `data: ${"x".repeat(ServerSentEvents.longestEvent / 2)}`
    const left = { name: "message", data: "", isTooLong: true }
    expect(reader.push(`${half}\n`)).toEqual([])
    expect(reader.push(half)).toEqual([left])
    expect([...reader.push(half), ...reader.push("\ndata: b\n\ndata: c\n\n")]).toEqual([message("c")])
    const lines = ServerSentEvents.reader()
    expect(Array.from({ length: 20 }, () => lines.push("data: \n".repeat(100_000))).flat()).toEqual([left])
  })

  it("gives the same events wherever the text is cut", () => {
    const line = fc.oneof(
      fc.constantFrom("", "", ": comment", "event: x", "data", "data:", "data: a", "data:b:c", "other: d"),
      fc.string({ unit: "grapheme", maxLength: 10 }).filter(text => !/[\r\n]/.test(text))
    )
    const text = fc
      .array(fc.tuple(line, fc.constantFrom("\n", "\r\n", "\r")), { maxLength: 30 })
      .map(lines => lines.flat().join(""))
    fc.assert(
      fc.property(text, fc.array(fc.nat(), { maxLength: 20 }), (text, cuts) => {
        const places = cuts.map(cut => cut % (text.length + 1)).sort((a, b) => a - b)
        const pieces = [0, ...places].map((from, i) => text.slice(from, places[i] ?? text.length))
        expect(pieces.join("")).toBe(text)
        expect(read(...pieces)).toEqual(read(text))
      }),
      { numRuns: times(500) }
    )
  })
})
