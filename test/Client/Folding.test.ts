/** Conversations and pages of events, with a gateway that does what the test says. */
import { describe, expect, it } from "vitest"
import type { Position } from "../../src/Client/Client.ts"
import { passUntil, range, until } from "./Harness.ts"
import { type Accepted, Received, withGateway } from "./ScriptedGateway.ts"

const at = (seq: number, epoch = "e1"): Position => ({ epoch, seq })

/** What the newest `subscribe` asked for. */
const asked = (accepted: Accepted) => {
  const { id: _, sessionId: __, type: ___, ...members } = accepted.ofType("subscribe").at(-1)!
  return members
}

const subscribes = (accepted: Accepted, count: number) =>
  until(() => accepted.ofType("subscribe").length === count).then(() => asked(accepted))

describe("a subscriber to the conversation", () => {
  it("receives it and the events after it, and continues over another connection", () =>
    withGateway(async gateway => {
      const received = new Received(gateway.client().subscribe("s", { fold: true }))
      const first = await gateway.requested("subscribe")
      expect(asked(first)).toEqual({ fold: true })
      first.subscribed(20)
      first.conversation(22)
      first.events([23])
      await until(() => received.updates.length === 3)
      expect(received.story).toEqual(["conversation", "synced", 23])
      expect(received.updates[0]).toMatchObject({ conversation: { epoch: "e1", seq: 22 }, position: at(22) })
      first.socket.terminate()
      await gateway.connected(2)
      const second = await gateway.requested("subscribe", 2)
      expect(asked(second)).toEqual({ afterSeq: 23, epoch: "e1" })
      second.subscribed(24)
      second.events([24, 25])
      await until(() => received.updates.length === 5)
      expect(received.story.slice(3)).toEqual([24, 25])
    }))

  it("receives it again if the connection is lost within it", () =>
    withGateway(async gateway => {
      const received = new Received(gateway.client().subscribe("s", { fold: true }))
      const first = await gateway.requested("subscribe")
      first.subscribed(5)
      first.send({ type: "conversation", sessionId: "s", epoch: "e1", seq: 5, index: 0, last: false, text: "{" })
      first.socket.terminate()
      await gateway.connected(2)
      const second = await gateway.requested("subscribe", 2)
      expect(asked(second)).toEqual({ fold: true })
      second.subscribed(5)
      second.conversation(5)
      await until(() => received.updates.length === 2)
      expect(received.story).toEqual(["conversation", "synced"])
    }))

  it("receives it again after a reset, and where events are no longer kept", () =>
    withGateway(async gateway => {
      const received = new Received(gateway.client().subscribe("s", { fold: true, after: at(3) }))
      const accepted = await gateway.requested("subscribe")
      expect(asked(accepted)).toEqual({ afterSeq: 3, epoch: "e1" })
      accepted.subscribed(9, { recovered: false })
      accepted.events([8, 9])
      expect(await subscribes(accepted, 2)).toEqual({ fold: true })
      accepted.events([10])
      accepted.subscribed(10)
      accepted.conversation(10)
      await until(() => received.updates.length === 2)
      expect(received.story).toEqual(["conversation", "synced"])

      accepted.socket.terminate()
      await gateway.connected(2)
      const second = await gateway.requested("subscribe", 2)
      expect(asked(second)).toEqual({ afterSeq: 10, epoch: "e1" })
      second.subscribed(4, { epoch: "e2", recovered: false })
      second.events([1, 2])
      expect(await subscribes(second, 2)).toEqual({ fold: true })
      second.subscribed(4, { epoch: "e2" })
      second.conversation(4, "e2")
      second.events([5])
      await until(() => received.updates.length === 6)
      expect(received.story.slice(2)).toEqual(["reset", "conversation", "synced", 5])
      expect(received.updates[2]).toEqual({ type: "reset", epoch: "e2" })
      expect(received.updates[5]).toMatchObject({ position: at(5, "e2") })

      // A position beyond the end of the history.
      second.socket.terminate()
      await gateway.connected(3)
      const third = await gateway.requested("subscribe", 3)
      third.refuse("subscribe", "bad_request")
      expect(await subscribes(third, 2)).toEqual({ fold: true })
      third.subscribed(1, { epoch: "e2" })
      third.conversation(1, "e2")
      await until(() => received.updates.length === 9)
      expect(received.story.slice(6)).toEqual(["reset", "conversation", "synced"])
    }))

  it("shares the connection with readers of events, who miss nothing", () =>
    withGateway(async (gateway, sessions) => {
      const events = new Received(sessions.subscribe("s"))
      const accepted = await gateway.requested("subscribe")
      accepted.subscribed(2)
      accepted.events([1, 2])
      await until(() => events.updates.length === 3)
      const folded = new Received(sessions.subscribe("s", { fold: true }))
      expect(await subscribes(accepted, 2)).toEqual({ fold: true })
      // Of the subscription that is about to end.
      accepted.events([3])
      accepted.subscribed(5)
      accepted.conversation(5)
      expect(await subscribes(accepted, 3)).toEqual({ afterSeq: 3, epoch: "e1" })
      accepted.events([6])
      accepted.subscribed(6)
      accepted.events([4, 5, 6])
      await until(() => events.updates.length === 7 && folded.updates.length === 3)
      expect(events.story).toEqual([1, 2, "synced", 3, 4, 5, 6])
      expect(folded.story).toEqual(["conversation", "synced", 6])
    }))

  it("takes another connection where a part is missing, or the whole is not JSON", () =>
    withGateway(async gateway => {
      const received = new Received(gateway.client().subscribe("s", { fold: true }))
      const part = { type: "conversation", sessionId: "s", epoch: "e1", seq: 1, last: true, text: "{" }
      for (const [count, index] of [
        [1, 1],
        [2, 0]
      ] as const) {
        const accepted = await gateway.requested("subscribe", count)
        accepted.subscribed(1)
        accepted.send({ ...part, index })
        await gateway.connected(count + 1)
      }
      const last = await gateway.requested("subscribe", 3)
      last.subscribed(1)
      last.conversation(1)
      await until(() => received.updates.length === 2)
    }))

  it("ends where it is larger than the client accepts", () =>
    withGateway(async gateway => {
      const sessions = gateway.client({ maxResponseBytes: 1000 })
      const received = new Received(sessions.subscribe("s", { fold: true }))
      const accepted = await gateway.requested("subscribe")
      accepted.subscribed(1)
      const part = { type: "conversation", sessionId: "s", epoch: "e1", seq: 1, last: false, text: "x".repeat(600) }
      accepted.send({ ...part, index: 0 })
      accepted.send({ ...part, index: 1 })
      await received.done
      expect(received.ended?.error).toMatchObject({ _tag: "ResponseTooLarge" })
    }))
})

describe("a page of events", () => {
  const pageBefore = (beforeSeq: number, limit: number) => ({ beforeSeq, limit })

  it("has the events before a position, also next to a subscription", () =>
    withGateway(async (gateway, sessions) => {
      const received = new Received(sessions.subscribe("s", { after: at(20) }))
      const accepted = await gateway.requested("subscribe")
      accepted.subscribed(20)
      const page = sessions.events("s", { ...pageBefore(11, 3), epoch: "e1" })
      expect(await subscribes(accepted, 2)).toEqual({ ...pageBefore(11, 3), epoch: "e1" })
      accepted.subscribed(20)
      accepted.events([21, 8, 22, 9, 10, 23])
      accepted.answer("subscribe", { type: "subscription_ended", sessionId: "s" })
      const { events, ...rest } = await page
      expect(events.map(({ seq }) => seq)).toEqual([8, 9, 10])
      expect(rest).toEqual({ epoch: "e1", hasOlder: true })
      await until(() => received.updates.length === 4)
      expect(received.story).toEqual(["synced", 21, 22, 23])
    }))

  it("has what is kept, and the newest events without a position", () =>
    withGateway(async (gateway, sessions) => {
      const newest = sessions.events("s")
      const accepted = await gateway.requested("subscribe")
      expect(asked(accepted)).toEqual(pageBefore(Number.MAX_SAFE_INTEGER, 100))
      accepted.subscribed(3)
      accepted.events([1, 2, 3])
      accepted.answer("subscribe", { type: "subscription_ended", sessionId: "s" })
      expect(await newest).toMatchObject({ hasOlder: false, events: range(1, 3).map(seq => ({ seq })) })
      const trimmed = sessions.events("s", pageBefore(10, 8))
      await subscribes(accepted, 2)
      accepted.subscribed(20, { recovered: false })
      accepted.events([7, 8, 9])
      accepted.answer("subscribe", { type: "subscription_ended", sessionId: "s" })
      expect(await trimmed).toMatchObject({ hasOlder: false, events: range(7, 9).map(seq => ({ seq })) })
    }))

  it("is read again over another connection, and fails if it is refused", () =>
    withGateway(async (gateway, sessions) => {
      const page = sessions.events("s", pageBefore(5, 2))
      const first = await gateway.requested("subscribe")
      first.subscribed(9)
      first.events([3])
      first.socket.terminate()
      await gateway.connected(2)
      const second = await gateway.requested("subscribe", 2)
      second.subscribed(9)
      second.events([3, 4])
      second.answer("subscribe", { type: "subscription_ended", sessionId: "s" })
      expect((await page).events.map(({ seq }) => seq)).toEqual([3, 4])

      const unreadable = sessions.events("s", pageBefore(5, 2)).catch(error => error)
      await subscribes(second, 2)
      second.subscribed(9)
      second.refuse("subscribe", "internal", true)
      expect(await unreadable).toMatchObject({ _tag: "RequestRefused", code: "internal" })
      const closed = sessions.events("s", pageBefore(5, 2)).catch(error => error)
      await subscribes(second, 3)
      second.subscribed(9)
      second.events([3])
      sessions.close()
      expect(await closed).toMatchObject({ _tag: "ConnectionClosed" })
    }))

  it("fails if its end does not come, or the caller aborts", () =>
    withGateway(async (gateway, sessions) => {
      const silent = sessions.events("s", pageBefore(5, 2)).catch(error => error)
      const accepted = await gateway.requested("subscribe")
      accepted.subscribed(9)
      let error: unknown
      void silent.then(reason => {
        error = reason
      })
      await passUntil(gateway.clock, () => error !== undefined)
      expect(error).toMatchObject({ _tag: "ConnectionFailed" })
      const ending = new AbortController()
      const aborted = sessions.events("s", { ...pageBefore(5, 2), signal: ending.signal }).catch(error => error)
      await subscribes(accepted, 2)
      const reason = new Error("enough")
      ending.abort(reason)
      expect(await aborted).toBe(reason)
    }))
})
