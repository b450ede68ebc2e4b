/** Logs that were replaced, trimmed, or cannot be read. */
import { describe, expect } from "@effect/vitest"
import { Effect, TestClock } from "effect"
import { check, connect, epochNow, Probe, put, serve, until, untilFollowers } from "./Harness.ts"

describe("ChangeFeed.webSocket, failures of the log", () => {
  check("reports a log that ends before `after` at once, and continues from its end", function* () {
    const served = yield* serve
    yield* put("a", 1, 2)
    const client = yield* connect(served, "after=50")
    expect(yield* client.message(0)).toEqual({ type: "changes", changes: [], lastSeq: 2, epoch: yield* epochNow })
    yield* put("a", 3)
    expect(yield* client.message(1)).toMatchObject({ changes: [{ seq: 3 }], lastSeq: 3 })
  })

  check("notices at the next read that the log was replaced by a shorter one while it could not be read", function* () {
    const probe = yield* Probe
    const served = yield* serve
    yield* put("a", 1, 2, 3)
    const client = yield* connect(served, "after=3")
    probe.isUnavailable = true
    const { reads } = probe
    yield* put("a", 4)
    yield* until(() => probe.reads > reads)
    yield* probe.restore
    yield* put("a", 1)
    probe.isUnavailable = false
    yield* TestClock.adjust("2 seconds")
    expect(yield* client.message(0)).toMatchObject({ changes: [], lastSeq: 1 })
  })

  check("does not poll the store for a reader at the end of a log that was reset", function* () {
    const probe = yield* Probe
    const served = yield* serve
    yield* put("a", 1, 2, 3)
    yield* connect(served, "")
    yield* probe.restore
    yield* put("a", 1)
    const client = yield* connect(served, "after=1")
    let turns = 0
    yield* until(() => ++turns === 300)
    const settled = probe.reads
    yield* until(() => ++turns === 600)
    expect(probe.reads).toBe(settled)
    yield* put("a", 2)
    expect(yield* client.message(0)).toMatchObject({ changes: [{ seq: 2 }], lastSeq: 2 })
  })

  check("closes a reader that falls out of the history with 4010", function* () {
    const probe = yield* Probe
    const served = yield* serve
    const client = yield* connect(served, "")
    yield* untilFollowers(1)
    probe.trimmedSeq = 5
    yield* put("a", 1)
    expect(yield* client.code).toBe(4010)
  })

  check("accepts a reader with the epoch of another log, sends the current epoch, and closes with 4010", function* () {
    const probe = yield* Probe
    const served = yield* serve
    yield* put("a", 1, 2, 3)
    const epoch = yield* epochNow
    for (const trimmedSeq of [0, 2]) {
      probe.trimmedSeq = trimmedSeq
      for (const after of [0, 3, 99]) {
        const client = yield* connect(served, `epoch=other&after=${after}`)
        expect(yield* client.code).toBe(4010)
        expect(client.messages).toEqual([{ type: "reset", epoch, lastSeq: 3 }])
      }
    }
    yield* untilFollowers(0)
    const known = yield* connect(served, `epoch=${epoch}&after=2`)
    expect(yield* known.message(0)).toMatchObject({ changes: [{ seq: 3 }], epoch })
    yield* connect(served, `epoch=${epoch}&after=1`)
    expect(served.refusals).toEqual(["HistoryTrimmed"])
  })

  for (const [title, values] of [
    ["is shorter", [1]],
    ["is as long", [1, 2, 3]],
    ["has come further", [1, 2, 3, 4, 5]]
  ] as const) {
    check(`notifies readers that the log was replaced by one that ${title}, if they know the old one`, function* () {
      const probe = yield* Probe
      const served = yield* serve
      yield* put("a", 1, 2, 3)
      const old = yield* epochNow
      const knowing = yield* Effect.forEach([`after=3`, `after=0`, `after=3&tenant=none`], search =>
        connect(served, `${search}&epoch=${old}`)
      )
      const other = yield* connect(served, "after=3&tenant=b")
      yield* untilFollowers(4)
      yield* until(() => knowing[1]!.changes.length === 3)
      yield* probe.restore
      yield* put("a", ...values)
      yield* TestClock.adjust("15 seconds")
      const epoch = yield* epochNow
      expect(epoch).not.toBe(old)
      for (const client of knowing) {
        expect(yield* client.code).toBe(4010)
        expect(client.messages.at(-1)).toEqual({ type: "reset", epoch, lastSeq: values.length })
      }
      yield* put("b", 1)
      yield* until(() => other.changes.length === 1)
      expect(other.messages.at(-1)).toMatchObject({ changes: [{ seq: values.length + 1 }], epoch })
    })
  }

  check("notifies a lagging reader of the new log", function* () {
    const probe = yield* Probe
    const served = yield* serve
    yield* put("a", ...Array.from({ length: 20 }, (_, i) => i))
    const old = yield* epochNow
    const client = yield* connect(served, `limit=1&epoch=${old}`)
    yield* client.message(0)
    yield* probe.restore
    yield* put("a", ...Array.from({ length: 30 }, (_, i) => i))
    yield* TestClock.adjust("15 seconds")
    expect(yield* client.code).toBe(4010)
    expect(client.messages.at(-1)).toMatchObject({ type: "reset", epoch: yield* epochNow })
    expect(client.changes).toEqual(client.changes.map((_, i) => i + 1))
    for (const { epoch } of client.messages.slice(0, -1)) expect(epoch).toBe(old)
  })

  check("continues when the store is back", function* () {
    const probe = yield* Probe
    const served = yield* serve
    const client = yield* connect(served, "")
    const reads = probe.reads
    probe.isUnavailable = true
    yield* put("a", 1)
    yield* until(() => probe.reads > reads)
    yield* TestClock.adjust("16 seconds")
    expect(yield* client.message(0)).toMatchObject({ type: "heartbeat", lastSeq: 0 })
    probe.isUnavailable = false
    yield* TestClock.adjust("2 seconds")
    yield* until(() => client.changes.length === 1)
  })

  check("closes readers that need an unreadable record with 1011, and continues with all others", function* () {
    const served = yield* serve
    const probe = yield* Probe
    yield* put("a", 1)
    const live = yield* Effect.forEach(["", "tenant=a", "tenant=b"], query => connect(served, query))
    yield* until(() => live.slice(0, 2).every(client => client.changes.length === 1))
    yield* untilFollowers(3)
    probe.unreadableSeq = 3
    yield* put("b", 2, 3, 4)
    yield* put("a", 5)
    yield* until(() => live.filter(client => client.closed?.code === 1011).length === 2)
    yield* until(() => live[1]!.changes.length === 2)
    expect(live.map(({ changes }) => changes)).toEqual([[1, 2], [1, 5], [2]])
    const late = yield* connect(served, "after=3")
    yield* put("a", 6)
    yield* until(() => live[1]!.changes.length === 3 && late.changes.length === 3)
    expect([live[1]!.changes, late.changes]).toEqual([
      [1, 5, 6],
      [4, 5, 6]
    ])
    expect([live[1]!.closed, late.closed]).toEqual([undefined, undefined])
  })
})
