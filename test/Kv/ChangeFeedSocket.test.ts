import { once } from "node:events"
import { connect as connectTcp } from "node:net"
import { describe, expect, it } from "@effect/vitest"
import { Effect, FastCheck as fc, TestClock } from "effect"
import { DrainingSignal } from "../../src/Http/DrainingSignal.ts"
import {
  connect,
  epochNow,
  layer,
  Probe,
  put,
  type Served,
  seqsOf,
  serve,
  until,
  untilFollowers,
  untilFull
} from "./ChangeFeedHarness.ts"

const soak = Number(process.env.SOAK ?? 1)

const key = "dGhlIHNhbXBsZSBub25jZQ=="

const handshake = (changes: Readonly<Record<string, string | undefined>> = {}, requestLine = "GET /ws HTTP/1.1") => {
  const headers = {
    Host: "localhost",
    Connection: "Upgrade",
    Upgrade: "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": key,
    ...changes
  }
  const lines = Object.entries(headers).flatMap(([name, value]) => (value === undefined ? [] : `${name}: ${value}`))
  return `${requestLine}\r\n${lines.join("\r\n")}\r\n\r\n`
}

/** Sends bytes over TCP and collects what comes until the other side ends. */
const exchange = (served: Served, ...parts: ReadonlyArray<string | Uint8Array>) =>
  Effect.promise(async () => {
    const socket = connectTcp(served.port, "127.0.0.1")
    const received: Array<Buffer> = []
    socket.on("data", data => received.push(data))
    socket.on("error", () => {})
    const closed = once(socket, "close")
    for (const part of parts) socket.write(part)
    await closed
    return Buffer.concat(received).toString("latin1")
  })

/** A masked frame as clients send it, with an all-zero mask. */
const frame = (opcode: number, payload: Buffer): Buffer => {
  const length = Buffer.from([0x80 | 126, payload.length >> 8, payload.length & 255])
  return Buffer.concat([Buffer.from([0x80 | opcode]), length, Buffer.alloc(4), payload])
}

const megabyte = "x".repeat(1024 * 1024)

describe("ChangeFeed.webSocket", () => {
  it.scoped("sends existing changes, then new ones", () =>
    Effect.gen(function* () {
      const served = yield* serve
      yield* put("a", { n: 1 }, "two")
      const client = yield* connect(served, "after=1")
      expect(yield* client.message(0)).toMatchObject({
        type: "changes",
        changes: [{ seq: 2, op: "set", value: "two", tenantId: "a", version: 1 }],
        lastSeq: 2
      })
      yield* put("a", 3)
      expect(yield* client.message(1)).toMatchObject({ type: "changes", changes: [{ seq: 3 }], lastSeq: 3 })
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("sends a tenant's reader only its changes, in frames within its limit", () =>
    Effect.gen(function* () {
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
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("sends readers of namespaces and of prefixes only their changes, whatever else they differ in", () =>
    Effect.gen(function* () {
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
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("reports a log that ends before `after` at once, and continues from its end", () =>
    Effect.gen(function* () {
      const served = yield* serve
      yield* put("a", 1, 2)
      const client = yield* connect(served, "after=50")
      expect(yield* client.message(0)).toEqual({ type: "changes", changes: [], lastSeq: 2, epoch: yield* epochNow })
      yield* put("a", 3)
      expect(yield* client.message(1)).toMatchObject({ changes: [{ seq: 3 }], lastSeq: 3 })
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("notices a reset of the log", () =>
    Effect.gen(function* () {
      const probe = yield* Probe
      const served = yield* serve
      yield* put("a", 1, 2, 3)
      const client = yield* connect(served, "after=3")
      yield* probe.restore
      yield* put("a", 1)
      yield* TestClock.adjust("15 seconds")
      yield* until(() => client.messages.some(message => message.type === "changes"))
      expect(client.messages.find(message => message.type === "changes")).toMatchObject({ changes: [], lastSeq: 1 })
      yield* put("a", 2)
      yield* until(() => client.changes.length > 0)
      expect(client.changes).toEqual([2])
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("notices at the next read that the log was replaced by a shorter one while it could not be read", () =>
    Effect.gen(function* () {
      const probe = yield* Probe
      const served = yield* serve
      yield* put("a", 1, 2, 3)
      const client = yield* connect(served, "after=3")
      probe.away = true
      const { reads } = probe
      yield* put("a", 4)
      yield* until(() => probe.reads > reads)
      yield* probe.restore
      yield* put("a", 1)
      probe.away = false
      yield* TestClock.adjust("2 seconds")
      expect(yield* client.message(0)).toMatchObject({ changes: [], lastSeq: 1 })
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("does not poll the store for a reader at the end of a log that was reset", () =>
    Effect.gen(function* () {
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
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("sends an idle reader a heartbeat with the last scanned seq", () =>
    Effect.gen(function* () {
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
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("terminates a peer that answers no pings", () =>
    Effect.gen(function* () {
      const served = yield* serve
      const lively = yield* connect(served, "")
      const dead = yield* connect(served, "")
      dead.socket.pause()
      for (let pings = 1; pings <= 2; pings++) {
        const before = lively.messages.length
        yield* TestClock.adjust("15 seconds")
        yield* until(() => lively.messages.length > before)
        // A round trip after the ping: the answer to it has been read by then.
        yield* Effect.async<void>(resume => {
          lively.socket.once("pong", () => resume(Effect.void))
          lively.socket.ping()
        })
      }
      yield* TestClock.adjust("15 seconds")
      yield* untilFollowers(1)
      expect(lively.closed).toBeUndefined()
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("closes a reader that does not drain with 4008, which then resumes without loss", () =>
    Effect.gen(function* () {
      const served = yield* serve
      const slow = yield* connect(served, "")
      slow.socket.pause()
      const count = 24
      for (let seq = 1; seq <= count; seq++) yield* put("a", `${seq}${megabyte}`)
      const unsent = () => served.sockets[0]!.writableLength
      yield* until(() => unsent() > 1024 * 1024)
      const fast = yield* connect(served, "")
      yield* until(() => fast.changes.length === count)
      expect(unsent()).toBeLessThan(6 * 1024 * 1024)
      yield* untilFull(served.sockets[0]!)
      yield* TestClock.adjust("29 seconds")
      expect(slow.closed).toBeUndefined()
      yield* TestClock.adjust("2 seconds")
      slow.socket.resume()
      expect(yield* slow.code).toBe(4008)
      expect(slow.changes.length).toBeLessThan(count)
      const again = yield* connect(served, `after=${slow.messages.at(-1)!.lastSeq}`)
      yield* until(() => slow.changes.length + again.changes.length >= count)
      expect([...slow.changes, ...again.changes]).toEqual(Array.from({ length: count }, (_, i) => i + 1))
      expect(fast.closed).toBeUndefined()
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("lets a slow reader read everything before the close frame", () =>
    Effect.gen(function* () {
      const served = yield* serve
      const slow = yield* connect(served, "")
      slow.socket.pause()
      for (let seq = 1; seq <= 24; seq++) yield* put("a", `${seq}${megabyte}`)
      yield* until(() => served.sockets[0]!.writableLength > 1024 * 1024)
      yield* untilFull(served.sockets[0]!)
      yield* TestClock.adjust("31 seconds")
      yield* TestClock.adjust("25 seconds")
      slow.socket.resume()
      expect(yield* slow.code).toBe(4008)
      expect(slow.changes).toEqual(slow.changes.map((_, index) => index + 1))
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("does not close a slow reader that keeps reading", () =>
    Effect.gen(function* () {
      const served = yield* serve
      const slow = yield* Effect.acquireRelease(
        Effect.sync(() => connectTcp(served.port, "127.0.0.1")),
        socket => Effect.sync(() => socket.destroy())
      )
      let read = 0
      let isClosed = false
      slow.on("error", () => {})
      slow.on("close", () => {
        isClosed = true
      })
      slow.on("data", chunk => {
        read += chunk.length
      })
      slow.write(handshake())
      yield* untilFollowers(1)
      slow.pause()
      const count = 48
      for (let seq = 1; seq <= count; seq++) yield* put("a", `${seq}${megabyte}`)
      const unsent = () => served.sockets[0]!.writableLength
      yield* until(() => unsent() > 1024 * 1024)
      // What is left then, the operating systems of both ends may hold: nobody sees from here whether that is read.
      let seconds = 0
      for (; unsent() > 1024 * 1024; seconds += 20) {
        yield* TestClock.adjust("20 seconds")
        const enough = read + 2 * megabyte.length
        slow.resume()
        yield* until(() => read >= enough || isClosed)
        slow.pause()
        expect(isClosed).toBe(false)
        yield* untilFull(served.sockets[0]!)
      }
      expect(seconds).toBeGreaterThanOrEqual(80)
      slow.resume()
      yield* until(() => read >= count * megabyte.length || isClosed)
      expect(isClosed).toBe(false)
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("limits the messages that it reads from a follower", () =>
    Effect.gen(function* () {
      const served = yield* serve
      const said = frame(1, Buffer.from("blah"))
      const flood = Buffer.concat(Array.from({ length: 200_000 }, () => said))
      const talking = yield* Effect.acquireRelease(
        Effect.sync(() => connectTcp(served.port, "127.0.0.1")),
        socket => Effect.sync(() => socket.destroy())
      )
      talking.on("error", () => {})
      talking.write(handshake())
      talking.write(flood)
      yield* untilFollowers(1)
      const socket = served.sockets[0] as unknown as { readonly bytesRead: number; isPaused(): boolean }
      const settled = Effect.suspend(() => {
        let turns = 0
        return until(() => ++turns === 100)
      })
      yield* until(() => socket.isPaused())
      yield* settled
      expect(socket.bytesRead).toBeLessThan(flood.length / 2)
      const before = socket.bytesRead
      // A socket buffers 64 KiB (since Node 22): what was read before comes first, for a second or two.
      while (socket.bytesRead === before) {
        yield* TestClock.adjust("1 second")
        yield* settled
      }
      expect(socket.bytesRead).toBeLessThan(flood.length / 2)
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("gives a reason when a client violates the WebSocket protocol", () =>
    Effect.gen(function* () {
      const served = yield* serve
      /** The code and the reason of the close frame, which is short and thus the last frame that came. */
      const closing = (...bytes: ReadonlyArray<Buffer>) =>
        Effect.promise(async () => {
          const socket = connectTcp(served.port, "127.0.0.1")
          const received: Array<Buffer> = []
          socket.on("data", data => received.push(data))
          socket.on("error", () => {})
          const closed = once(socket, "close")
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
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("keeps a reader that drains in time", () =>
    Effect.gen(function* () {
      const served = yield* serve
      const slow = yield* connect(served, "")
      slow.socket.pause()
      const count = 24
      for (let seq = 1; seq <= count; seq++) yield* put("a", `${seq}${megabyte}`)
      yield* until(() => served.sockets[0]!.writableLength > 1024 * 1024)
      yield* untilFull(served.sockets[0]!)
      yield* TestClock.adjust("29 seconds")
      slow.socket.resume()
      yield* until(() => slow.changes.length === count)
      yield* TestClock.adjust("20 seconds")
      yield* put("a", "last")
      yield* until(() => slow.changes.length > count)
      expect(slow.changes).toEqual(Array.from({ length: count + 1 }, (_, i) => i + 1))
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("cuts off a reader that does not even take the close frame", () =>
    Effect.gen(function* () {
      const served = yield* serve
      const stuck = yield* connect(served, "")
      stuck.socket.pause()
      for (let seq = 1; seq <= 24; seq++) yield* put("a", `${seq}${megabyte}`)
      yield* until(() => served.sockets[0]!.writableLength > 1024 * 1024)
      yield* untilFull(served.sockets[0]!)
      yield* TestClock.adjust("70 seconds")
      yield* untilFollowers(0)
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("costs the store one read per commit for 200 readers of different tenants", () =>
    Effect.gen(function* () {
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
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("refuses an invalid handshake with its own message, without touching the socket", () =>
    Effect.gen(function* () {
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
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("refuses before the handshake if the history is trimmed, the store is unavailable or no slot is free", () =>
    Effect.gen(function* () {
      const probe = yield* Probe
      const served = yield* serve
      yield* put("a", 1, 2, 3)
      probe.trimmedSeq = 2
      yield* connect(served, "after=1")
      probe.away = true
      yield* connect(served, "after=2")
      probe.away = false
      yield* connect(served, "after=2")
      yield* connect(served, "after=2")
      expect(served.refusals).toEqual(["HistoryTrimmed", "StoreUnavailable", "FeedBusy"])
      yield* untilFollowers(1)
    }).pipe(Effect.provide(layer({ followers: 1 })))
  )

  it.scoped("closes a reader that falls out of the history with 4010", () =>
    Effect.gen(function* () {
      const probe = yield* Probe
      const served = yield* serve
      const client = yield* connect(served, "")
      yield* untilFollowers(1)
      probe.trimmedSeq = 5
      yield* put("a", 1)
      expect(yield* client.code).toBe(4010)
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("accepts a reader that knows another log, tells it which one there is, and closes with 4010", () =>
    Effect.gen(function* () {
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
    }).pipe(Effect.provide(layer()))
  )

  for (const [title, values] of [
    ["is shorter", [1]],
    ["is as long", [1, 2, 3]],
    ["has come further", [1, 2, 3, 4, 5]]
  ] as const) {
    it.scoped(`tells readers that the log was replaced by one that ${title}, if they know the old one`, () =>
      Effect.gen(function* () {
        const probe = yield* Probe
        const served = yield* serve
        yield* put("a", 1, 2, 3)
        const old = yield* epochNow
        const knowing = yield* Effect.forEach([`after=3`, `after=0`, `after=3&tenant=nobody`], search =>
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
      }).pipe(Effect.provide(layer()))
    )
  }

  it.scoped("tells a reader that lags behind of the new log", () =>
    Effect.gen(function* () {
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
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("continues when the store is back", () =>
    Effect.gen(function* () {
      const probe = yield* Probe
      const served = yield* serve
      const client = yield* connect(served, "")
      const reads = probe.reads
      probe.away = true
      yield* put("a", 1)
      yield* until(() => probe.reads > reads)
      yield* TestClock.adjust("16 seconds")
      expect(yield* client.message(0)).toMatchObject({ type: "heartbeat", lastSeq: 0 })
      probe.away = false
      yield* TestClock.adjust("2 seconds")
      yield* until(() => client.changes.length === 1)
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("closes readers that need an unreadable record with 1011, and continues with all others", () =>
    Effect.gen(function* () {
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
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("ignores messages, closes with 1009 on a large one, and survives garbage", () =>
    Effect.gen(function* () {
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
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("keeps no follower with a broken connection", () =>
    Effect.gen(function* () {
      const served = yield* serve
      yield* put("a", 1)
      yield* Effect.promise(() =>
        fc.assert(
          fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), fc.nat({ max: 250 }), async (bytes, cut) => {
            const socket = connectTcp(served.port, "127.0.0.1")
            socket.on("error", () => {})
            const closed = once(socket, "close")
            const text = handshake()
            socket.write(cut < text.length ? text.slice(0, cut) : text)
            socket.end(bytes)
            setImmediate(() => socket.resetAndDestroy())
            await closed
          }),
          { numRuns: 40 * soak }
        )
      )
      yield* untilFollowers(0)
      const client = yield* connect(served, "")
      expect(seqsOf(yield* client.message(0))).toEqual([1])
    }).pipe(Effect.provide(layer()))
  )

  it.scoped("closes all with 1001 when the service drains, and accepts no more", () =>
    Effect.gen(function* () {
      const draining = yield* DrainingSignal
      const served = yield* serve
      const clients = yield* Effect.all([connect(served, ""), connect(served, "tenant=a")])
      yield* untilFollowers(2)
      yield* draining.begin
      expect(yield* Effect.all(clients.map(client => client.code))).toEqual([1001, 1001])
      yield* untilFollowers(0)
      yield* connect(served, "")
      expect(served.refusals).toEqual(["FeedBusy"])
    }).pipe(Effect.provide(layer()))
  )

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

  it.scoped("reports the end of a connection to the transport", () =>
    Effect.gen(function* () {
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
    }).pipe(Effect.provide(layer()))
  )
})
