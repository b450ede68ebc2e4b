/** Subscriptions of the client of sessions over HTTP, with a gateway that does what the test says. */
import { describe, expect, it } from "vitest"
import { BadRequest, Fold, Forbidden, type Position, ResponseTooLarge, Unauthorized } from "../../src/Client/Client.ts"
import { failing, failure, passUntil, range, settled, turns, until } from "./Harness.ts"
import { Received, session } from "./ScriptedGateway.ts"
import { type Asked, offset, withHttp } from "./ScriptedHttp.ts"

const at = (seq: number, epoch = "e1"): Position => ({ epoch, seq })

/** Where a stream begins. */
const from = ({ url }: Asked) => url.searchParams.get("offset")

describe("over HTTP, a subscriber", () => {
  it("receives earlier and later events, and continues at once after a stream that has ended", () =>
    withHttp(async (gateway, sessions) => {
      const received = new Received(sessions.subscribe("s"))
      const asked = await gateway.request(1)
      expect([asked.line, gateway.statuses]).toEqual(["GET /s/events?offset=-1&live=sse", []])
      const first = asked.stream()
      first.events([1, 2])
      await gateway.describe(2, 2)
      expect(gateway.asked[1]!.line).toBe("GET /s")
      await until(() => received.updates.length === 3)
      first.write(": ping\n\n")
      first.events([3])
      await until(() => received.updates.length === 4)
      expect(received.story).toEqual([1, 2, "synced", 3])
      expect(received.updates[2]).toMatchObject({ session: { id: "s" }, position: at(2) })
      first.end()
      const second = await gateway.request(3)
      expect(from(second)).toBe(offset(3))
      const stream = second.stream()
      stream.control(offset(3), { upToDate: true })
      stream.events([4])
      await until(() => received.updates.length === 5)
      expect([received.story.at(-1), gateway.statuses]).toEqual([4, ["connected"]])
    }))

  it("continues after a pause if a stream is cut, silent, unreadable or refused for a while", () =>
    withHttp(async (gateway, sessions) => {
      const received = new Received(sessions.subscribe("s", { after: at(1) }))
      const asked = await gateway.request(1)
      expect(from(asked)).toBe(offset(1))
      const first = asked.stream()
      first.events([2])
      await gateway.describe(2, 2)
      await until(() => received.seqs.length === 1)
      first.cut()
      const silent = (await gateway.retried(1, 3)).stream()
      silent.control(offset(2))
      await settled(() => gateway.clock.timers)
      gateway.clock.advance(40_000)
      const garbage = (await gateway.retried(2, 4)).stream()
      await until(() => silent.isCancelled)
      garbage.write('event: data\ndata: [{"seq":3\n\nevent: control\ndata: {}\n\n')
      ;(await gateway.retried(3, 5)).refuse(503, { "retry-after": "9" })
      await until(() => gateway.pauses.length === 4)
      expect(gateway.pauses[3]).toBeGreaterThanOrEqual(9000)
      ;(await gateway.retried(4, 6)).answer(200, { no: "stream" })
      const last = await gateway.retried(5, 7)
      expect(from(last)).toBe(offset(2))
      last.stream().events([3])
      await until(() => received.seqs.length === 2)
      expect(received.story).toEqual([2, "synced", 3])
      expect(gateway.pauses.map(pause => Math.round(pause / 1000))).toEqual([1, 2, 4, 17, 16])
    }))

  it("does not begin stream after stream if each ends at once", () =>
    withHttp(async (gateway, sessions) => {
      const received = new Received(sessions.subscribe("s", { after: at(1) }))
      const first = (await gateway.request(1)).stream()
      first.control(offset(1))
      await gateway.describe(2, 1)
      await until(() => received.updates.length === 1)
      first.end()
      const second = (await gateway.retried(1, 3)).stream()
      second.control(offset(1))
      await settled(() => gateway.asked.length)
      gateway.clock.advance(1000)
      second.end()
      expect(from(await gateway.request(4))).toBe(offset(1))
      expect(gateway.pauses.length).toBe(1)
    }))

  it("receives an update if the history was replaced, and if a part of it is no longer kept", () =>
    withHttp(async (gateway, sessions) => {
      const received = new Received(sessions.subscribe("s", { after: at(3) }))
      ;(await gateway.request(1)).refuse(410)
      const trimmed = await gateway.request(2)
      expect(from(trimmed)).toBe("-1")
      const first = trimmed.stream()
      first.events([8, 9])
      await gateway.describe(3, 9)
      await until(() => received.updates.length === 4)
      expect(received.story).toEqual(["trimmed", 8, 9, "synced"])
      expect(received.updates[0]).toEqual({ type: "trimmed", after: 3 })
      // The next one is answered as another node has it.
      first.end()
      ;(await gateway.request(4)).refuse(410)
      await passUntil(gateway.clock, () => gateway.asked.length === 5)
      ;(await gateway.request(5)).refuse(410)
      const second = (await gateway.request(6)).stream()
      second.events([1, 2], { epoch: "e2" })
      await gateway.describe(7, 2, "e2")
      second.events([3], { epoch: "e2" })
      await until(() => received.updates.length === 9)
      expect(received.story.slice(4)).toEqual(["reset", 1, 2, "synced", 3])
      expect(received.updates[4]).toEqual({ type: "reset", epoch: "e2" })
      expect(received.updates[8]).toMatchObject({ position: at(3, "e2") })
    }))

  it("receives nothing of a history that is replaced between the stream and the session", () =>
    withHttp(async (gateway, sessions) => {
      const received = new Received(sessions.subscribe("s", { after: at(1) }))
      ;(await gateway.request(1)).stream().events([2])
      await gateway.describe(2, 1, "e2")
      ;(await gateway.retried(1, 3)).refuse(410)
      ;(await gateway.request(4)).stream().events([1], { epoch: "e2" })
      await gateway.describe(5, 1, "e2")
      await until(() => received.updates.length === 3)
      expect(received.story).toEqual(["reset", 1, "synced"])
    }))

  it("starts again if the gateway does not know its position, or an event is missing", () =>
    withHttp(async (gateway, sessions) => {
      const received = new Received(sessions.subscribe("s", { after: at(7) }))
      ;(await gateway.request(1)).refuse(400)
      const first = await gateway.request(2)
      expect(from(first)).toBe("-1")
      const stream = first.stream()
      stream.events([1])
      await gateway.describe(3, 1)
      await until(() => received.updates.length === 3)
      stream.events([3])
      await until(() => stream.isCancelled)
      gateway.clock.advance(1000)
      const second = await gateway.request(4)
      expect(from(second)).toBe(offset(1))
      second.stream().events([2, 3])
      await gateway.describe(5, 3)
      await until(() => received.updates.length === 5)
      expect(received.story).toEqual(["reset", 1, "synced", 2, 3])
    }))

  it("receives the whole history if its position is of no history", () =>
    withHttp(async (gateway, sessions) => {
      const received = new Received(sessions.subscribe("s", { after: at(3, "\ud800") }))
      const asked = await gateway.request(1)
      expect(from(asked)).toBe("-1")
      asked.stream().events([1])
      await gateway.describe(2, 1)
      await until(() => received.updates.length === 3)
      expect(received.story).toEqual(["reset", 1, "synced"])
      const refused = new Received(sessions.subscribe(".."))
      await refused.done
      expect(refused.ended?.error).toBeInstanceOf(BadRequest)
    }))

  it("ends if the session is unknown or deleted, and without access", () =>
    withHttp(async (gateway, sessions) => {
      const unknown = new Received(sessions.subscribe("s"))
      ;(await gateway.request(1)).refuse(404)
      await unknown.done
      expect(unknown.ended?.error).toMatchObject({ _tag: "RequestRefused", code: "not_found" })
      const forbidden = new Received(sessions.subscribe("s"))
      ;(await gateway.request(2)).refuse(403)
      await forbidden.done
      expect(forbidden.ended?.error).toBeInstanceOf(Forbidden)
      const deleted = new Received(sessions.subscribe("s"))
      const stream = (await gateway.request(3)).stream()
      stream.events([1])
      await gateway.describe(4, 1)
      stream.control(offset(1), { streamClosed: true })
      await deleted.done
      expect(deleted.story).toEqual([1, "synced"])
      expect(deleted.ended?.error).toMatchObject({ _tag: "RequestRefused", code: "not_found" })
      expect(gateway.clock.timers).toBe(0)
    }))

  it("continues with a new token when the stream has ended with the old one, and ends without", () =>
    withHttp(async gateway => {
      let tokens = 0
      const sessions = gateway.client({ token: () => `token-${++tokens}` })
      const received = new Received(sessions.subscribe("s"))
      const first = (await gateway.request(1)).stream()
      first.events([1])
      await gateway.describe(2, 1)
      await until(() => received.updates.length === 2)
      first.end()
      // The function returns the old token until it has another one.
      ;(await gateway.request(3)).refuse(401)
      const second = await gateway.retried(1, 4)
      expect(second.headers.get("authorization")).toBe("Bearer token-4")
      const stream = second.stream()
      stream.events([2])
      await until(() => received.updates.length === 3)
      stream.end()
      ;(await gateway.request(5)).refuse(401)
      ;(await gateway.retried(2, 6)).refuse(401)
      await received.done
      expect(received.ended?.error).toBeInstanceOf(Unauthorized)
    }))

  it("that ends, or is ended, ends its stream", () =>
    withHttp(async (gateway, sessions) => {
      const reader = sessions.subscribe("s")[Symbol.asyncIterator]()
      const next = reader.next()
      const first = (await gateway.request(1)).stream()
      first.events([1])
      await gateway.describe(2, 1)
      expect(await next).toMatchObject({ value: { event: { seq: 1 } } })
      await reader.return?.()
      await until(() => first.isCancelled)
      const received = new Received(sessions.subscribe("s"))
      const second = await gateway.request(3)
      sessions.close()
      await received.done
      expect(received.ended?.error).toMatchObject({ _tag: "ConnectionClosed" })
      expect(second.isAborted).toBe(true)
      await turns(100)
      expect([gateway.asked.length, gateway.clock.timers]).toEqual([3, 0])
    }))

  it("that falls behind holds no more bytes than it may, and gets what was left out", () =>
    withHttp(async gateway => {
      const reader = gateway.client({ maxQueuedBytes: 1_000_000 }).subscribe("s")[Symbol.asyncIterator]()
      const first = reader.next()
      const stream = (await gateway.request(1)).stream()
      stream.control(offset(0))
      await gateway.describe(2, 0)
      expect(await first).toMatchObject({ value: { type: "synced" } })
      stream.events(range(1, 50), { text: "x".repeat(50_000) })
      stream.events(range(51, 100), { text: "x".repeat(50_000) })
      // 100,000 bytes each.
      await until(() => stream.isCancelled)
      const seqs: Array<number> = []
      const read = async () => {
        const { value } = await reader.next()
        if (value?.type === "event") seqs.push(value.event.seq)
      }
      for (let count = 0; count < 9; count++) await read()
      expect(gateway.asked.length).toBe(2)
      const tenth = read()
      const second = await gateway.request(3)
      expect(from(second)).toBe(offset(9))
      second.stream().events([10, 11])
      await gateway.describe(4, 100)
      await tenth
      await read()
      expect(seqs).toEqual(range(1, 11))
    }))

  it("shares a stream with others of the session, each from its own position", () =>
    withHttp(async (gateway, sessions) => {
      const one = new Received(sessions.subscribe("s", { after: at(5) }))
      const first = (await gateway.request(1)).stream()
      first.events([6])
      await gateway.describe(2, 5)
      await until(() => one.seqs.length === 1)
      const other = new Received(sessions.subscribe("s", { after: at(2) }))
      const second = await gateway.request(3)
      expect(from(second)).toBe(offset(2))
      await until(() => first.isCancelled)
      second.stream().events([3, 4, 5, 6, 7, 8])
      await gateway.describe(4, 7)
      await until(() => other.seqs.length === 6 && one.seqs.length === 3)
      expect([one.story, other.story]).toEqual([
        ["synced", 6, 7, 8],
        [3, 4, 5, 6, 7, "synced", 8]
      ])
    }))

  it("receives the conversation first if it asks for it, and again if its position is lost", () =>
    withHttp(async (gateway, sessions) => {
      const received = new Received(sessions.subscribe("s", { fold: true }))
      const asked = await gateway.request(1)
      expect(asked.line).toBe("GET /s/conversation")
      asked.answer(200, { ...Fold.empty("e1"), seq: 4 })
      const first = await gateway.request(2)
      expect(from(first)).toBe(offset(4))
      const stream = first.stream()
      stream.events([5])
      await gateway.describe(3, 5)
      await until(() => received.updates.length === 3)
      expect(received.story).toEqual(["conversation", 5, "synced"])
      expect(received.updates[0]).toMatchObject({ conversation: { seq: 4 }, position: at(4) })
      stream.end()
      ;(await gateway.request(4)).refuse(410)
      await passUntil(gateway.clock, () => gateway.asked.length === 5)
      ;(await gateway.request(5)).refuse(410)
      const all = (await gateway.request(6)).stream()
      all.events([1], { epoch: "e2" })
      await gateway.describe(7, 9, "e2")
      ;(await gateway.request(8)).answer(200, { ...Fold.empty("e2"), seq: 9 })
      const last = (await gateway.request(9)).stream()
      last.control(offset(9, "e2"))
      await gateway.describe(10, 9, "e2")
      await until(() => received.updates.length === 6)
      expect(received.story.slice(3)).toEqual(["reset", "conversation", "synced"])
      expect(all.isCancelled).toBe(true)
    }))
})

describe("over HTTP, a page of older events", () => {
  it("is read from a stream, and has what is kept", () =>
    withHttp(async (gateway, sessions) => {
      const page = sessions.events("s", { limit: 3 })
      await gateway.describe(1, 10)
      const asked = await gateway.request(2)
      expect(from(asked)).toBe(offset(7))
      const stream = asked.stream()
      stream.events([8, 9])
      stream.events([10])
      expect(await page).toMatchObject({ epoch: "e1", events: [{ seq: 8 }, { seq: 9 }, { seq: 10 }], hasOlder: true })
      await until(() => stream.isCancelled)

      const older = sessions.events("s", { limit: 3, beforeSeq: 8, epoch: "e1" })
      await gateway.describe(3, 10)
      ;(await gateway.request(4)).refuse(410)
      const kept = await gateway.request(5)
      expect(from(kept)).toBe("-1")
      kept.stream().events([6, 7, 8, 9])
      expect(await older).toMatchObject({ events: [{ seq: 6 }, { seq: 7 }], hasOlder: false })

      const other = sessions.events("s", { beforeSeq: 8, epoch: "e0" })
      await gateway.describe(6, 10)
      expect(await other).toEqual({ epoch: "e1", events: [], hasOlder: false })
      for (const limit of [0, 1001, Number.NaN]) {
        expect(await failure(sessions.events("s", { limit }))).toBeInstanceOf(BadRequest)
      }
      expect(gateway.asked.length).toBe(6)
    }))

  it("is read again if the stream is lost, and bounded", () =>
    withHttp(async gateway => {
      const sessions = gateway.client({ maxResponseBytes: 20_000 })
      const page = sessions.events("s", { limit: 2 })
      await gateway.describe(1, 2)
      const stream = (await gateway.request(2)).stream()
      stream.events([1])
      stream.cut()
      ;(await gateway.retried(1, 3)).answer(200, { session: { ...session, headSeq: 2 } })
      ;(await gateway.request(4)).stream().events([1, 2])
      expect(await page).toMatchObject({ events: [{ seq: 1 }, { seq: 2 }], hasOlder: false })
      const large = failing(sessions.events("s", { limit: 3 }))
      await gateway.describe(5, 3)
      const other = (await gateway.request(6)).stream()
      for (const seq of [1, 2, 3]) other.events([seq], { text: "x".repeat(9000) })
      expect(await large).toBeInstanceOf(ResponseTooLarge)
    }))
})
