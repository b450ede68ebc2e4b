/** Handshakes, and clients that violate the protocol. */
import { connect as connectTcp } from "node:net"
import { describe, expect } from "@effect/vitest"
import { Effect, FastCheck as fc } from "effect"
import { times } from "../../Scale.ts"
import { check, connect, Probe, put, seqsOf, serve, untilFollowers } from "./Harness.ts"
import { exchange, frame, handshake } from "./WebSocketBytes.ts"

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
