/** Subscriptions of the client of sessions, with a gateway that does what the test says. */
import { describe, expect, it } from "vitest"
import { BadRequest, type Position, RequestRefused } from "../../src/Client/Client.ts"
import { passUntil, range, turns, until } from "./Harness.ts"
import { Received, withGateway } from "./ScriptedGateway.ts"

const at = (seq: number, epoch = "e1"): Position => ({ epoch, seq })

/** What a `subscribe` asked for. */
const asked = ({ afterSeq, epoch }: Record<string, unknown>) => [afterSeq, epoch]

describe("a subscriber", () => {
  it("receives earlier and later events, and continues over another connection", () =>
    withGateway(async gateway => {
      const received = new Received(gateway.client().subscribe("s"))
      const first = await gateway.requested("subscribe")
      expect(asked(first.frames[0]!)).toEqual([undefined, undefined])
      first.subscribed(2)
      first.events([1, 2, 3])
      await until(() => received.updates.length === 4)
      expect(received.story).toEqual([1, 2, "synced", 3])
      expect(received.updates[2]).toMatchObject({ session: { id: "s" }, position: at(2) })
      expect(received.updates[3]).toMatchObject({ event: { type: "text_delta", sessionId: "s" }, position: at(3) })
      first.socket.terminate()
      await gateway.connected(2)
      const second = await gateway.requested("subscribe", 2)
      expect(asked(second.frames[0]!)).toEqual([3, "e1"])
      second.subscribed(4)
      // What it knows comes again, and what it never asked for.
      second.events([2, 3, 4, 4, 5])
      second.send({ type: "text_delta", sessionId: "other", seq: 6 })
      await until(() => received.updates.length === 6)
      expect(received.story).toEqual([1, 2, "synced", 3, 4, 5])
    }))

  it("receives an update if the history was replaced, and if a part of it is no longer kept", () =>
    withGateway(async gateway => {
      const received = new Received(gateway.client().subscribe("s", { after: at(3) }))
      const first = await gateway.requested("subscribe")
      first.subscribed(9, { recovered: false })
      first.events([8, 9])
      await until(() => received.updates.length === 4)
      expect(received.story).toEqual(["trimmed", 8, 9, "synced"])
      expect(received.updates[0]).toEqual({ type: "trimmed", after: 3 })
      first.socket.terminate()
      await gateway.connected(2)
      const second = await gateway.requested("subscribe", 2)
      expect(asked(second.frames[0]!)).toEqual([9, "e1"])
      second.subscribed(2, { epoch: "e2", recovered: false })
      second.events([1, 2, 3])
      await until(() => received.updates.length === 9)
      expect(received.story.slice(4)).toEqual(["reset", 1, 2, "synced", 3])
      expect(received.updates[4]).toEqual({ type: "reset", epoch: "e2" })
      expect(received.updates[8]).toMatchObject({ position: at(3, "e2") })
    }))

  it("starts again if the gateway no longer knows its position", () =>
    withGateway(async gateway => {
      const received = new Received(gateway.client().subscribe("s", { after: at(7) }))
      const accepted = await gateway.requested("subscribe")
      accepted.refuse("subscribe", "bad_request")
      await until(() => accepted.frames.length === 2)
      expect(asked(accepted.frames[1]!)).toEqual([undefined, undefined])
      accepted.subscribed(1)
      accepted.events([1, 2])
      await until(() => received.updates.length === 4)
      expect(received.story).toEqual(["reset", 1, "synced", 2])
    }))

  it("takes another connection where an event is missing", () =>
    withGateway(async gateway => {
      const received = new Received(gateway.client().subscribe("s"))
      const first = await gateway.requested("subscribe")
      first.subscribed(1)
      first.events([1, 3])
      await gateway.connected(2)
      const second = await gateway.requested("subscribe", 2)
      expect(asked(second.frames[0]!)).toEqual([1, "e1"])
      second.subscribed(3)
      second.events([2, 3])
      await until(() => received.updates.length === 4)
      expect(received.story).toEqual([1, "synced", 2, 3])
    }))

  it("ends where it is refused or the session is deleted, and waits where that passes", () =>
    withGateway(async (gateway, sessions) => {
      const refused = new Received(sessions.subscribe("s"))
      const accepted = await gateway.requested("subscribe")
      accepted.refuse("subscribe", "not_found")
      await refused.done
      expect(refused.ended?.error).toMatchObject({ _tag: "RequestRefused", code: "not_found" })

      const received = new Received(sessions.subscribe("s"))
      await until(() => accepted.frames.length === 2)
      accepted.refuse("subscribe", "rate_limited", true)
      await passUntil(gateway.clock, () => accepted.frames.length === 3)
      accepted.subscribed(1)
      accepted.events([1])
      await until(() => received.updates.length === 2)
      const ending = { type: "error", sessionId: "s" }
      const error = { code: "internal", message: "unreadable", retryable: true, traceId: "t" }
      accepted.send({ ...ending, error })
      await passUntil(gateway.clock, () => accepted.frames.length === 4)
      expect(asked(accepted.frames[3]!)).toEqual([1, "e1"])
      accepted.subscribed(1)
      accepted.events([2])
      await until(() => received.updates.length === 3)
      accepted.send({ ...ending, error: { ...error, code: "not_found", retryable: false } })
      await received.done
      expect(received.story).toEqual([1, "synced", 2])
      expect(received.ended?.error).toBeInstanceOf(RequestRefused)
      expect(gateway.connections.length).toBe(1)
    }))

  it("leaves the session when it stops reading, also amid a wait", () =>
    withGateway(async (gateway, sessions) => {
      const reader = sessions.subscribe("s")[Symbol.asyncIterator]()
      const next = reader.next()
      const accepted = await gateway.requested("subscribe")
      accepted.subscribed(1)
      accepted.events([1])
      expect(await next).toMatchObject({ value: { event: { seq: 1 } } })
      await reader.next()
      const pending = reader.next()
      expect(await reader.return?.()).toEqual({ done: true, value: undefined })
      expect(await pending).toEqual({ done: true, value: undefined })
      await until(() => accepted.ofType("unsubscribe").length === 1)
      const ending = new AbortController()
      const received = new Received(sessions.subscribe("s", { signal: ending.signal }))
      await until(() => accepted.ofType("subscribe").length === 2)
      const reason = new Error("enough")
      ending.abort(reason)
      await received.done
      expect(received.ended?.error).toBe(reason)
      sessions.close()
      await until(() => gateway.clock.timers === 0)
    }))

  it("does not reopen a connection that nothing else needs", () =>
    withGateway(async gateway => {
      const reader = gateway.client().subscribe("s")[Symbol.asyncIterator]()
      void reader.next().catch(() => {})
      const accepted = await gateway.requested("subscribe")
      await reader.return?.()
      accepted.subscribed(0)
      await until(() => accepted.ofType("unsubscribe").length === 1)
      accepted.answer("unsubscribe", { type: "unsubscribed", sessionId: "s" })
      await turns(100)
      accepted.socket.terminate()
      await until(() => gateway.statuses.length === 2)
      gateway.clock.advance(60_000)
      await turns(100)
      expect([gateway.connections.length, gateway.clock.timers]).toEqual([1, 0])
    }))
})

describe("a subscriber that falls behind", () => {
  const text = "x".repeat(50_000)

  it("gets what was left out when it has caught up, and holds no more bytes than it may", () =>
    withGateway(async gateway => {
      const sessions = gateway.client({ maxQueuedBytes: 1_000_000 })
      const reader = sessions.subscribe("s")[Symbol.asyncIterator]()
      const first = reader.next()
      const accepted = await gateway.requested("subscribe")
      accepted.subscribed(0)
      expect(await first).toMatchObject({ value: { type: "synced" } })
      accepted.events(range(1, 100), text)
      // 100,000 bytes each: the client unsubscribes.
      await until(() => accepted.ofType("unsubscribe").length === 1)
      accepted.answer("unsubscribe", { type: "unsubscribed", sessionId: "s" })
      const seqs: Array<number> = []
      const read = async () => {
        const { value } = await reader.next()
        if (value?.type === "event") seqs.push(value.event.seq)
      }
      for (let count = 0; count < 9; count++) await read()
      expect(seqs).toEqual(range(1, 9))
      expect(accepted.ofType("subscribe").length).toBe(1)
      const tenth = read()
      await until(() => accepted.ofType("subscribe").length === 2)
      expect(asked(accepted.ofType("subscribe")[1]!)).toEqual([9, "e1"])
      accepted.subscribed(100)
      accepted.events([10, 11])
      await tenth
      await read()
      expect(seqs).toEqual(range(1, 11))
    }))

  it("receives an event that exceeds its limit", () =>
    withGateway(async gateway => {
      const received = new Received(gateway.client({ maxQueuedBytes: 1000 }).subscribe("s"))
      const accepted = await gateway.requested("subscribe")
      accepted.subscribed(1)
      accepted.events([1], text)
      await until(() => received.updates.length === 2)
      expect(received.story).toEqual([1, "synced"])
    }))

  it("holds up no other", () =>
    withGateway(async gateway => {
      const sessions = gateway.client({ maxQueuedBytes: 250_000 })
      const slow = sessions.subscribe("s")[Symbol.asyncIterator]()
      const first = slow.next()
      const accepted = await gateway.requested("subscribe")
      accepted.subscribed(0)
      await first
      const quick = new Received(sessions.subscribe("s"))
      await until(() => accepted.frames.length === 2)
      accepted.subscribed(0)
      for (const seq of range(1, 20)) {
        accepted.events([seq], text)
        await until(() => quick.seqs.length === seq)
      }
      expect(quick.seqs).toEqual(range(1, 20))
      expect(accepted.ofType("unsubscribe")).toEqual([])
      for (const seq of [1, 2]) expect(await slow.next()).toMatchObject({ value: { event: { seq } } })
      const third = slow.next()
      await until(() => accepted.ofType("subscribe").length === 3)
      expect(asked(accepted.ofType("subscribe")[2]!)).toEqual([2, "e1"])
      accepted.subscribed(20)
      accepted.events(range(3, 21), "")
      expect(await third).toMatchObject({ value: { event: { seq: 3 } } })
      for (const seq of range(4, 21)) expect(await slow.next()).toMatchObject({ value: { event: { seq } } })
      await until(() => quick.seqs.length === 21)
      expect(quick.seqs).toEqual(range(1, 21))
    }))
})

describe("several subscribers to one session", () => {
  it("share one subscription, each from its own position", () =>
    withGateway(async (gateway, sessions) => {
      const one = new Received(sessions.subscribe("s", { after: at(5) }))
      const accepted = await gateway.requested("subscribe")
      accepted.subscribed(5)
      accepted.events([6])
      await until(() => one.seqs.length === 1)
      const other = new Received(sessions.subscribe("s", { after: at(2) }))
      await until(() => accepted.frames.length === 2)
      expect(asked(accepted.frames[1]!)).toEqual([2, "e1"])
      // The old subscription continues until the new one starts.
      accepted.events([7])
      accepted.subscribed(7)
      accepted.events([3, 4, 5, 6, 7, 8])
      await until(() => other.seqs.length === 6 && one.seqs.length === 3)
      expect([one.story, other.story]).toEqual([
        ["synced", 6, 7, 8],
        [3, 4, 5, 6, 7, "synced", 8]
      ])
      const beyond = new Received(sessions.subscribe("s", { after: at(99) }))
      await until(() => accepted.frames.length === 3)
      expect(asked(accepted.frames[2]!)).toEqual([8, "e1"])
      accepted.subscribed(8)
      await until(() => accepted.frames.length === 4)
      expect(asked(accepted.frames[3]!)).toEqual([undefined, undefined])
      accepted.subscribed(8)
      accepted.events(range(1, 9))
      await until(() => beyond.seqs.length === 9 && one.seqs.length === 4)
      expect(beyond.story).toEqual(["reset", ...range(1, 8), "synced", 9])
      expect([one.seqs.at(-1), other.seqs.at(-1)]).toEqual([9, 9])
    }))

  it("are at most so many sessions as a connection may follow", () =>
    withGateway(async (gateway, sessions) => {
      const received = range(1, 129).map(number => new Received(sessions.subscribe(`s${number}`)))
      await until(() => received[128]?.ended !== undefined)
      expect(received[128]!.ended?.error).toBeInstanceOf(BadRequest)
      await until(() => gateway.last?.frames.length === 48)
      expect(received.slice(0, 128).filter(({ ended }) => ended !== undefined)).toEqual([])
    }))
})
