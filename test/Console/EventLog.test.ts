/** What the console keeps of a session's events, and how they are searched. */
import { assert, describe, it } from "@effect/vitest"
import { EventLog, EventSearch } from "../../src/Console/Sessions/EventLog.ts"
import type { SessionEvent } from "../../src/exports/client.ts"

const eventOf = (seq: number, text = ""): SessionEvent => ({
  sessionId: "s",
  seq,
  timestamp: seq,
  traceId: "t",
  type: "text_delta",
  text
})

const logOf = (count: number, bounds?: ConstructorParameters<typeof EventLog>[0], text = "") => {
  const log = new EventLog(bounds)
  for (let seq = 1; seq <= count; seq++) log.add(eventOf(seq, text))
  return log
}

const searchAll = (search: EventSearch, log: EventLog) => {
  let portions = 1
  while (!search.search(log.events)) portions++
  return portions
}

const seqs = (events: ReadonlyArray<SessionEvent>) => events.map(({ seq }) => seq)

describe("EventLog", () => {
  it("keeps the newest events, up to a number", () => {
    const { events } = logOf(1000, { events: 100, characters: 1e6 })
    assert.isAtMost(events.length, 100)
    assert.isAtLeast(events.length, 90)
    assert.strictEqual(events.at(-1)?.seq, 1000)
    assert.strictEqual(events[0]?.seq, 1001 - events.length)
  })

  it("keeps the newest events, up to a number of characters, and one whatever its size", () => {
    const log = logOf(100, { events: 1e6, characters: 50_000 }, "x".repeat(1000))
    assert.isAtMost(log.events.length, 50)
    assert.isAtLeast(log.events.length, 40)
    log.add(eventOf(101, "x".repeat(100_000)))
    assert.deepStrictEqual(seqs(log.events), [101])
    log.add(eventOf(102))
    assert.deepStrictEqual(seqs(log.events), [102])
  })
})

describe("EventLog, read backwards", () => {
  const between = (from: number, to: number) =>
    Array.from({ length: to - from + 1 }, (_, index) => eventOf(from + index, (from + index) % 3 === 0 ? "yes" : "no"))

  it("has older events before the others while they have room and follow each other", () => {
    const log = new EventLog({ events: 100, characters: 1e6 })
    assert.isTrue(log.prepend(between(81, 90)))
    log.add(eventOf(91))
    assert.isTrue(log.prepend(between(41, 80)))
    assert.isTrue(log.prepend([]))
    assert.isFalse(log.prepend(between(30, 39)))
    assert.isFalse(log.prepend(between(1, 41)))
    assert.isFalse(log.prepend(between(1, 40).map(event => ({ ...event, text: "x".repeat(1e5) }))))
    assert.deepStrictEqual(seqs(log.events), seqs(between(41, 91)))
    assert.isFalse(new EventLog({ events: 10, characters: 1e6 }).prepend(between(1, 11)))
  })

  it("is searched in both directions", () => {
    const log = new EventLog()
    log.prepend(between(9001, 9100))
    const search = new EventSearch("yes")
    assert.isTrue(search.search(log.events))
    for (let from = 8001; from > 0; from -= 1000) {
      log.prepend(between(from, from + 999))
      if (from % 4000 === 1) searchAll(search, log)
      log.add(eventOf(log.events.at(-1)!.seq + 1, "yes"))
    }
    searchAll(search, log)
    const expected = log.events.filter(event => event.type === "text_delta" && event.text === "yes")
    assert.deepStrictEqual(seqs(search.found), seqs(expected))
  })
})

describe("EventSearch", () => {
  it("finds by type and by content, in any case, in portions", () => {
    const log = logOf(10_000)
    log.add(eventOf(10_001, "a Needle here"))
    const search = new EventSearch("NEEDLE")
    assert.isAbove(searchAll(search, log), 1)
    assert.deepStrictEqual(seqs(search.found), [10_001])
    const byType = new EventSearch("text_delta")
    searchAll(byType, log)
    assert.strictEqual(byType.found.length, 10_001)
    // The envelope is no content.
    const byEnvelope = new EventSearch("sessionid")
    searchAll(byEnvelope, log)
    assert.deepStrictEqual(byEnvelope.found, [])
  })

  it("continues with new events, and removes those that are no longer kept", () => {
    const log = logOf(100, { events: 100, characters: 1e6 }, "yes")
    const search = new EventSearch("yes")
    searchAll(search, log)
    assert.deepStrictEqual(seqs(search.found), seqs(log.events))
    for (let seq = 101; seq <= 350; seq++) {
      log.add(eventOf(seq, seq % 2 === 0 ? "yes" : "no"))
      if (seq % 40 === 0) searchAll(search, log)
    }
    searchAll(search, log)
    const expected = log.events.filter(event => event.type === "text_delta" && event.text === "yes")
    assert.deepStrictEqual(seqs(search.found), seqs(expected))
  })
})
