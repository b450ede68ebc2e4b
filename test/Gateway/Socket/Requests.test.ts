/** Requests over the socket: their ids and fields, and the positions of subscriptions. */
import { describe, expect, it } from "@effect/vitest"
import { TokenBucket } from "../../../src/Gateway/Clients/ClientSocket.ts"
import type { RequestFrame } from "../../../src/Gateway/Protocol.ts"
import { SerialQueues } from "../../../src/Gateway/Socket/ClientConnection.ts"
import { isDense } from "../Fixture.ts"
import { codeOf, completeTurn, createSession } from "./Fixture.ts"
import { codes, shared } from "./Tenants.ts"

describe("Requests over the socket", () => {
  shared(
    "a message with a client's id is accepted once over all connections",
    function* ({ acme, connectAs, simulator }) {
      const sessionId = yield* createSession(acme)
      yield* acme.get("subscribed", { type: "subscribe", sessionId })
      const message = { type: "send_message", sessionId, content: "hello", clientMessageId: "x".repeat(256) } as const
      const { turnId } = yield* acme.get("accepted", message)
      const again = yield* connectAs("acme")
      expect(yield* again.get("accepted", message)).toMatchObject({ turnId })
      expect(yield* codes(again, [{ ...message, content: "other" }])).toEqual(["conflict"])
      yield* acme.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === turnId)
      expect((yield* simulator.state).frames.message).toBe(1)
    }
  )

  shared("a ping is answered with the time", function* ({ acme }) {
    const { timestamp } = yield* acme.get("pong", { type: "ping" })
    expect(Math.abs(Date.now() - timestamp)).toBeLessThan(60_000)
  })

  shared("an id cannot be reused while its request is in flight", function* ({ acme, simulator }) {
    const sessionId = yield* createSession(acme)
    yield* simulator.inject({ operation: "create", fault: { kind: "latency", millis: 200 } })
    const frame: RequestFrame = { type: "start_session", id: "same", sessionId }
    yield* acme.send(JSON.stringify(frame))
    yield* acme.send(JSON.stringify({ type: "get_session", id: "same", sessionId }))
    yield* acme.until(frame => frame.type === "session")
    const answers = acme.frames.filter(frame => !("seq" in frame) && frame.id === "same")
    expect(answers).toMatchObject([
      { type: "error", error: { code: "conflict" } },
      { type: "session", session: { state: "active" } }
    ])
  })

  shared("an ended subscription delivers nothing more, and a repeated one nothing twice", function* ({ acme }) {
    const sessionId = yield* createSession(acme)
    yield* acme.get("subscribed", { type: "subscribe", sessionId })
    yield* completeTurn(acme, sessionId, "one")
    const count = acme.events(sessionId).length
    yield* acme.get("subscribed", { type: "subscribe", sessionId, afterSeq: count })
    yield* completeTurn(acme, sessionId, "two")
    const seqs = acme.events(sessionId).map(({ seq }) => seq)
    isDense(seqs)
    yield* acme.get("unsubscribed", { type: "unsubscribe", sessionId })
    yield* acme.get("unsubscribed", { type: "unsubscribe", sessionId })
    yield* acme.get("session", { type: "stop_session", sessionId })
    yield* acme.get("pong", { type: "ping" })
    expect(acme.events(sessionId)).toHaveLength(seqs.length)
  })

  shared("a wrong epoch and a trimmed history bring all that is kept", function* ({ acme }) {
    const sessionId = yield* createSession(acme)
    const { epoch } = yield* acme.get("subscribed", { type: "subscribe", sessionId })
    yield* completeTurn(acme, sessionId, "one")
    const all = acme.events(sessionId)
    yield* acme.get("unsubscribed", { type: "unsubscribe", sessionId })
    const cases = [
      { afterSeq: all.length - 2, epoch: "another", recovered: false, from: 1 },
      { afterSeq: all.length + 5, epoch: "another", recovered: false, from: 1 },
      { afterSeq: all.length - 2, epoch, recovered: true, from: all.length - 1 },
      { afterSeq: 0, epoch, recovered: true, from: 1 }
    ]
    for (const { afterSeq, epoch, recovered, from } of cases) {
      const before = acme.frames.length
      const answer = yield* acme.get("subscribed", { type: "subscribe", sessionId, afterSeq, epoch })
      expect(answer.recovered).toBe(recovered)
      expect(answer.headSeq).toBe(all.length)
      yield* acme.untilEvent(sessionId, event => event.seq === all.length && acme.frames.indexOf(event) >= before)
      const replayed = acme.frames.slice(before).filter(frame => "seq" in frame)
      expect(replayed.map(frame => "seq" in frame && frame.seq)).toEqual(all.slice(from - 1).map(({ seq }) => seq))
    }
  })

  shared("a position past the end is refused, and an existing subscription continues", function* ({ acme }) {
    const sessionId = yield* createSession(acme)
    const { epoch } = yield* acme.get("subscribed", { type: "subscribe", sessionId })
    yield* completeTurn(acme, sessionId, "one")
    const count = acme.events(sessionId).length
    for (const rest of [{ epoch }, {}]) {
      expect(yield* acme.ask({ type: "subscribe", sessionId, afterSeq: count + 1, ...rest })).toMatchObject({
        type: "error",
        error: {
          code: "bad_request",
          message: `afterSeq is ${count + 1}, and the newest event of the session has the seq ${count}`
        }
      })
    }
    yield* completeTurn(acme, sessionId, "two")
    isDense(acme.events(sessionId).map(({ seq }) => seq))
    const stranger = yield* createSession(acme)
    expect(codeOf(yield* acme.ask({ type: "subscribe", sessionId: stranger, afterSeq: 1 }))).toBe("bad_request")
  })
})

describe("TokenBucket", () => {
  it("admits its capacity and what is refilled, and counts refusals until it is full again", () => {
    const bucket = new TokenBucket(3, 1, 0)
    expect([1, 2, 3].map(() => bucket.take(0).taken)).toEqual([true, true, true])
    expect(bucket.take(0)).toEqual({ taken: false, refusals: 1 })
    expect(bucket.take(500)).toEqual({ taken: false, refusals: 2 })
    expect(bucket.take(1000).taken).toBe(true)
    expect(bucket.take(1001)).toEqual({ taken: false, refusals: 3 })
    expect(bucket.take(10_000).taken).toBe(true)
    expect([1, 2].map(() => bucket.take(10_000).taken)).toEqual([true, true])
    expect(bucket.take(10_000)).toEqual({ taken: false, refusals: 1 })
  })
})

describe("SerialQueues", () => {
  const item = (
    log: Array<string>,
    name: string,
    ends: Map<string, (failure?: string) => void>,
    isDependent = true
  ) => ({
    isDependent,
    begin: (onEnd: (failure: string | undefined) => void) => {
      log.push(`begin ${name}`)
      ends.set(name, failure => onEnd(failure))
    },
    abandon: (failure: string) => log.push(`abandon ${name}: ${failure}`)
  })

  it("run one task at a time per key, and skip tasks that depend on a failed one", () => {
    const log: Array<string> = []
    const ends = new Map<string, (failure?: string) => void>()
    const queues = new SerialQueues<string>()
    for (const name of ["a", "b", "c", "d"]) queues.add("one", item(log, name, ends))
    queues.add("one", item(log, "free", ends, false))
    queues.add("two", item(log, "x", ends))
    expect(log).toEqual(["begin a", "begin x"])
    ends.get("a")!()
    expect(log.at(-1)).toBe("begin b")
    ends.get("b")!("no")
    expect(log.slice(-3)).toEqual(["abandon c: no", "abandon d: no", "begin free"])
    ends.get("free")!()
    queues.add("one", item(log, "e", ends))
    expect(log.at(-1)).toBe("begin e")
    queues.add("one", item(log, "f", ends))
    queues.abandon("one", "stopped")
    expect(log.at(-1)).toBe("abandon f: stopped")
    ends.get("e")!()
    ends.get("x")!()
    queues.add("one", item(log, "g", ends))
    expect(log.at(-1)).toBe("begin g")
  })
})
