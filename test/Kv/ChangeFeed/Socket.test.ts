import { connect as connectTcp } from "node:net"
import { describe, expect, it } from "@effect/vitest"
import { Effect, FastCheck as fc, TestClock } from "effect"
import { DrainingSignal } from "../../../src/Http/DrainingSignal.ts"
import { times } from "../../Scale.ts"
import { check, connect, epochNow, layer, Probe, put, seqsOf, serve, until, untilFollowers } from "./Harness.ts"
import { exchange, frame, handshake } from "./WebSocketBytes.ts"

describe("ChangeFeed.webSocket", () => {
  check("sends a tenant's reader only its changes, in frames within its limit", function* () {
    const served = yield* serve
    yield* put("a", 1, 2, 3)
    yield* put("b", 4)
    const reader = yield* connect(served, "tenant=a&limit=2")
    const everything = yield* connect(served, "limit=3")
    yield* until(() => reader.changes.length === 3 && everything.changes.length === 4)
    yield* put("b", 5, 6)
    yield* put("a", 7, 8, 9, 10, 11)
    yield* until(() => reader.changes.length === 8 && everything.changes.length === 11)
    expect(reader.changes).toEqual([1, 2, 3, 7, 8, 9, 10, 11])
    expect(everything.changes).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    expect(reader.messages.every(message => message.changes.length <= 2)).toBe(true)
    expect(everything.messages.every(message => message.changes.length <= 3)).toBe(true)
    yield* put("", "of no tenant")
    yield* put("a", 13)
    yield* until(() => reader.changes.length === 9 && everything.changes.includes(13))
    expect(everything.changes).toEqual(Array.from({ length: 13 }, (_, i) => i + 1))
  })

  check("sends readers of namespaces and of prefixes only their changes, whatever else they differ in", function* () {
    const served = yield* serve
    yield* put("a", 1, 2, 3)
    const searches = [
      "",
      "&prefix=k1",
      "&prefix=k",
      "&prefix=k1&limit=1",
      "&tenant=a&prefix=k2",
      "&tenant=b",
      "&after=4"
    ]
    const clients = yield* Effect.forEach(searches, search =>
      connect(served, `namespace=${encodeURIComponent("tenant:a/a")}${search}`)
    )
    const everything = yield* connect(served, "")
    yield* untilFollowers(searches.length + 1)
    yield* put("b", 4, 5)
    yield* put("a", 6, 7)
    yield* until(() => everything.changes.length === 7)
    yield* until(() => clients[1]!.changes.length === 2)
    const wanted = [[1, 2, 3, 6, 7], [2, 7], [1, 2, 3, 6, 7], [2, 7], [3], [], [6, 7]]
    for (const [index, seqs] of wanted.entries()) {
      yield* until(() => clients[index]!.changes.length >= seqs.length)
      expect([searches[index], clients[index]!.changes]).toEqual([searches[index], seqs])
    }
    yield* TestClock.adjust("15 seconds")
    yield* until(() => clients[5]!.messages.length > 0)
    expect(clients[5]!.messages).toMatchObject([{ type: "heartbeat", lastSeq: 7 }])
  })

  check("sends an idle reader a heartbeat with the last scanned seq", function* () {
    const served = yield* serve
    const epoch = yield* epochNow
    const idle = yield* connect(served, "tenant=b")
    const busy = yield* connect(served, "tenant=a")
    yield* put("a", 1, 2)
    yield* busy.message(0)
    yield* TestClock.adjust("14 seconds")
    yield* put("a", 3)
    yield* busy.message(1)
    expect(idle.messages).toEqual([])
    yield* TestClock.adjust("1 seconds")
    expect(yield* idle.message(0)).toEqual({ type: "heartbeat", lastSeq: 3, epoch })
    yield* TestClock.adjust("14 seconds")
    expect(yield* busy.message(2)).toEqual({ type: "heartbeat", lastSeq: 3, epoch })
    expect(busy.changes).toEqual([1, 2, 3])
  })

  check("costs the store one read per commit for 200 readers of different tenants", function* () {
    const probe = yield* Probe
    const served = yield* serve
    const clients = yield* Effect.forEach(
      Array.from({ length: 200 }),
      (_, i) => connect(served, `tenant=${["", "a", "b"][i % 3]}&limit=${100 + (i % 2)}`),
      { concurrency: 20 }
    )
    yield* untilFollowers(200)
    yield* put("a", "first")
    yield* put("b", "first")
    yield* until(() => clients.every(client => client.changes.length > 0))
    const before = probe.reads
    for (let seq = 3; seq <= 12; seq++) {
      yield* put("a", seq)
      yield* until(() => clients.every((client, i) => i % 3 === 2 || client.changes.includes(seq)))
    }
    expect(probe.reads - before).toBeLessThanOrEqual(11)
  })

  check("closes all with 1001 when the service drains, and refuses new ones", function* () {
    const draining = yield* DrainingSignal
    const served = yield* serve
    const clients = yield* Effect.all([connect(served, ""), connect(served, "tenant=a")])
    yield* untilFollowers(2)
    yield* draining.begin
    expect(yield* Effect.all(clients.map(client => client.code))).toEqual([1001, 1001])
    yield* untilFollowers(0)
    yield* connect(served, "")
    expect(served.refusals).toEqual(["FeedBusy"])
  })

  it.live("closes all with 1001 when the feed itself ends", () =>
    Effect.gen(function* () {
      const client = yield* Effect.gen(function* () {
        const served = yield* serve
        const client = yield* connect(served, "")
        yield* untilFollowers(1)
        return { client, served }
      }).pipe(Effect.provide(layer()))
      expect(yield* client.client.code).toBe(1001)
    }).pipe(Effect.scoped)
  )

  check("reports the end of a connection to the transport", function* () {
    const served = yield* serve
    const polite = yield* connect(served, "")
    const rude = yield* connect(served, "")
    yield* untilFollowers(2)
    expect(served.ended()).toBe(0)
    polite.socket.close()
    expect(yield* polite.code).toBe(1005)
    yield* until(() => served.ended() === 1)
    rude.socket.terminate()
    yield* until(() => served.ended() === 2)
    yield* untilFollowers(0)
  })
})

describe("ChangeFeed.webSocket, protocol", () => {
  check("gives a reason when a client violates the WebSocket protocol", function* () {
    const served = yield* serve
    /** The code and the reason of the close frame, which is short and thus the last frame that came. */
    const closing = (...bytes: ReadonlyArray<Buffer>) =>
      Effect.promise(async () => {
        const socket = connectTcp(served.port, "127.0.0.1")
        const received: Array<Buffer> = []
        socket.on("data", data => received.push(data))
        socket.on("error", () => {})
        const closed = new Promise(resolve => socket.once("close", resolve))
        socket.write(handshake())
        while (received.length === 0) await new Promise(resolve => setImmediate(resolve))
        for (const part of bytes) socket.write(part)
        while (!Buffer.concat(received).includes(0x88)) await new Promise(resolve => setImmediate(resolve))
        socket.end(frame(8, Buffer.alloc(0)))
        await closed
        const all = Buffer.concat(received)
        const close = all.subarray(all.lastIndexOf(0x88))
        return [close.readUInt16BE(2), close.subarray(4).toString()]
      })
    expect(yield* closing(Buffer.from([0x8f, 0x80, 0, 0, 0, 0]))).toEqual([1002, "protocol_error"])
    expect(yield* closing(frame(1, Buffer.from([0xff, 0xfe])))).toEqual([1007, "invalid_utf8"])
    expect(yield* closing(frame(1, Buffer.alloc(5000, "x")))).toEqual([1009, "message_too_big"])
  })

  check("refuses an invalid handshake with its own message, without touching the socket", function* () {
    const probe = yield* Probe
    const served = yield* serve
    const answers = yield* Effect.all([
      exchange(served, handshake({}, "POST /ws HTTP/1.1")),
      exchange(served, handshake({ Upgrade: "h2c" })),
      exchange(served, handshake({ "Sec-WebSocket-Key": undefined })),
      exchange(served, handshake({ "Sec-WebSocket-Key": "short" })),
      exchange(served, handshake({ "Sec-WebSocket-Version": "8" })),
      exchange(served, handshake({ "Sec-WebSocket-Version": undefined }))
    ])
    expect(probe.reads).toBe(0)
    const late = yield* exchange(served, handshake({ "Sec-WebSocket-Protocol": "a,,b" }))
    const errors = [...answers, late].map(answer => {
      expect(answer).toMatch(/^HTTP\/1.1 500 /)
      expect(answer.match(/HTTP\//g)).toHaveLength(1)
      return (JSON.parse(answer.slice(answer.indexOf("\r\n\r\n"))) as { readonly error: string }).error
    })
    expect(errors).toEqual([
      "the method must be GET, not POST",
      "the Upgrade header must be websocket",
      "Sec-WebSocket-Key must be 16 bytes in base64",
      "Sec-WebSocket-Key must be 16 bytes in base64",
      "Sec-WebSocket-Version must be 13, not 8",
      "Sec-WebSocket-Version must be 13, not absent",
      "Invalid Sec-WebSocket-Protocol header"
    ])
    yield* untilFollowers(0)
  })

  check(
    "refuses before the handshake if the history is trimmed, the store is unavailable or no slot is free",
    function* () {
      const probe = yield* Probe
      const served = yield* serve
      yield* put("a", 1, 2, 3)
      probe.trimmedSeq = 2
      yield* connect(served, "after=1")
      probe.isUnavailable = true
      yield* connect(served, "after=2")
      probe.isUnavailable = false
      yield* connect(served, "after=2")
      yield* connect(served, "after=2")
      expect(served.refusals).toEqual(["HistoryTrimmed", "StoreUnavailable", "FeedBusy"])
      yield* untilFollowers(1)
    },
    { followers: 1 }
  )

  check("ignores messages, closes with 1009 on a large one, and survives garbage", function* () {
    const served = yield* serve
    const client = yield* connect(served, "")
    client.socket.send("hello")
    client.socket.send(Buffer.alloc(4096))
    yield* put("a", 1)
    yield* client.message(0)
    client.socket.send("x".repeat(5000))
    expect(yield* client.code).toBe(1009)
    yield* exchange(served, handshake(), frame(3, Buffer.from("reserved")))
    yield* exchange(served, handshake(), Buffer.from([0x81, 0x05]), "naked")
    yield* untilFollowers(0)
  })

  check("keeps no follower with a broken connection", function* () {
    const served = yield* serve
    yield* put("a", 1)
    yield* Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), fc.nat({ max: 250 }), async (bytes, cut) => {
          const socket = connectTcp(served.port, "127.0.0.1")
          socket.on("error", () => {})
          const closed = new Promise(resolve => socket.once("close", resolve))
          const text = handshake()
          socket.write(cut < text.length ? text.slice(0, cut) : text)
          socket.end(bytes)
          setImmediate(() => socket.resetAndDestroy())
          await closed
        }),
        { numRuns: times(40) }
      )
    )
    yield* untilFollowers(0)
    const client = yield* connect(served, "")
    expect(seqsOf(yield* client.message(0))).toEqual([1])
  })
})
