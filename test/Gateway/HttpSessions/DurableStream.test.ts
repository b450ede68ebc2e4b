/** Offsets, cursors and control events of the Durable Streams protocol. */
import { assert, describe, it } from "@effect/vitest"
import { Either } from "effect"
import * as fc from "fast-check"
import * as DurableStream from "../../../src/Gateway/HttpSessions/DurableStream.ts"

const position = fc.record({
  epoch: fc.oneof(fc.stringMatching(/^[0-9a-f]{32}$/), fc.constant("e_1"), fc.constant("a b/ü?&")),
  seq: fc.nat({ max: Number.MAX_SAFE_INTEGER })
})

describe("offsets", () => {
  it("return the position that they were made of, sort as the events do, and have no reserved characters", () => {
    fc.assert(
      fc.property(position, fc.nat(), (at, other) => {
        const offset = DurableStream.offsetOf(at)
        assert.deepStrictEqual(DurableStream.startOf(offset), Either.right(at))
        assert.notMatch(offset, /[,&=?/]/)
        const later = DurableStream.offsetOf({ ...at, seq: other })
        assert.strictEqual(offset < later, at.seq < other)
      })
    )
  })

  it("may be the two words of the protocol, and nothing else that the service has not made", () => {
    assert.deepStrictEqual(DurableStream.startOf(undefined), Either.right("first"))
    assert.deepStrictEqual(DurableStream.startOf("-1"), Either.right("first"))
    assert.deepStrictEqual(DurableStream.startOf("now"), Either.right("now"))
    const wrong = [
      "",
      "0",
      "-2",
      "12_e",
      "0000000000000001",
      "0000000000000001_",
      "9999999999999999_e",
      "0000000000000001_%",
      "0000000000000001_a/b"
    ]
    for (const offset of wrong) assert.isTrue(Either.isLeft(DurableStream.startOf(offset)), offset)
  })
})

describe("cursors", () => {
  const now = Date.UTC(2024, 9, 9, 0, 1)
  const at = (client: string | undefined, random = 0, time = now) =>
    new DurableStream.Cursor(time, client, () => random).at(time)

  it("are the number of the interval of 20 seconds, and always greater than that of the client", () => {
    assert.deepStrictEqual(
      [at(undefined), at("2"), at("3"), at("3", 0.999), at("nonsense"), at(undefined, 0, 0)],
      ["3", "3", "4", "183", "3", "0"]
    )
  })

  it("never decrease during a stream", () => {
    const cursor = new DurableStream.Cursor(now, "3", () => 0.01)
    assert.deepStrictEqual(
      [0, 20_000, 40_000, 60_000].map(later => cursor.at(now + later)),
      ["5", "5", "5", "6"]
    )
  })
})

describe("answers", () => {
  const offset = "0000000000000007_e"

  it("have the end of the read in their headers and in their control events", () => {
    const partial = { offset, isUpToDate: false, isClosed: false }
    assert.deepStrictEqual(DurableStream.headersOf(partial), { "stream-next-offset": offset })
    const live = { offset, isUpToDate: true, isClosed: false, cursor: "5" }
    assert.deepStrictEqual(DurableStream.headersOf(live), {
      "stream-next-offset": offset,
      "stream-up-to-date": "true",
      "stream-cursor": "5"
    })
    const control = `{"streamNextOffset":"${offset}","streamCursor":"5","upToDate":true}`
    assert.strictEqual(DurableStream.controlEvent(live), `event: control\ndata: ${control}\n\n`)
    const closed = `{"streamNextOffset":"${offset}","upToDate":true,"streamClosed":true}`
    assert.strictEqual(DurableStream.controlEvent({ ...live, isClosed: true }), `event: control\ndata: ${closed}\n\n`)
  })

  it("are JSON whatever the epoch is", () => {
    fc.assert(
      fc.property(position, at => {
        const offset = DurableStream.offsetOf(at)
        const control = DurableStream.controlEvent({ offset, isUpToDate: true, isClosed: false, cursor: "5" })
        const [, json] = /^event: control\ndata: (.*)\n\n$/.exec(control)!
        assert.strictEqual(JSON.parse(json!).streamNextOffset, offset)
      })
    )
  })

  it("have a tag that changes with their range and when the stream is closed", () => {
    const end = { offset, isUpToDate: true, isClosed: false }
    const tags = [
      DurableStream.etagOf("0000000000000000_e", end),
      DurableStream.etagOf("0000000000000001_e", end),
      DurableStream.etagOf("0000000000000000_e", { ...end, offset: "0000000000000008_e" }),
      DurableStream.etagOf("0000000000000000_e", { ...end, isClosed: true })
    ]
    assert.strictEqual(new Set(tags).size, tags.length)
  })

  it("have the events as a JSON array, also in a stream", () => {
    const events = ['{"a":1}', '{"b":"\u00e4"}'].map(text => ({ data: Buffer.from(text) }))
    assert.strictEqual(DurableStream.arrayOf(events).toString(), '[{"a":1},{"b":"\u00e4"}]')
    assert.strictEqual(DurableStream.arrayOf([]).toString(), "[]")
    const end = { offset, isUpToDate: false, isClosed: false }
    const control = DurableStream.controlEvent(end)
    const text = DurableStream.eventsOf(events, end).toString()
    assert.strictEqual(text, `event: data\ndata: [{"a":1},{"b":"\u00e4"}]\n\n${control}`)
    assert.strictEqual(DurableStream.eventsOf([], end).toString(), control)
  })
})
