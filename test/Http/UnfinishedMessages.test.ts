/** Messages of WebSockets that do not arrive whole, over real sockets. */
import { once } from "node:events"
import { createServer } from "node:http"
import { type AddressInfo, connect, type Socket } from "node:net"
import { Effect, FastCheck as fc } from "effect"
import { afterEach, describe, expect, it } from "vitest"
import * as Reply from "../../src/Http/Reply.ts"
import { BodyBudget } from "../../src/Http/Server/BodyBudget.ts"
import { upgrading } from "../../src/Http/WebSocket/Handshake.ts"
import { UnfinishedMessage } from "../../src/Http/WebSocket/UnfinishedMessage.ts"
import type * as WebSocket from "../../src/Http/WebSocket.ts"
import * as MetricTags from "../../src/MetricTags.ts"
import { times } from "../Scale.ts"

interface Frame {
  readonly opcode: number
  readonly isLast: boolean
  readonly payload: number
}

/** A frame of a client, whose mask is all zeros. */
const bytesOf = ({ isLast, opcode, payload }: Frame): Buffer => {
  const length =
    payload < 126
      ? Buffer.from([0x80 | payload])
      : payload < 65_536
        ? Buffer.from([0x80 | 126, payload >> 8, payload & 0xff])
        : Buffer.from([
            0x80 | 127,
            0,
            0,
            0,
            0,
            payload >>> 24,
            (payload >> 16) & 0xff,
            (payload >> 8) & 0xff,
            payload & 0xff
          ])
  return Buffer.concat([
    Buffer.from([(isLast ? 0x80 : 0) | opcode]),
    length,
    Buffer.alloc(4),
    Buffer.alloc(payload, "a")
  ])
}

const text = (payload: number, isLast: boolean): Frame => ({ opcode: 1, isLast, payload })
const more = (payload: number, isLast = false): Frame => ({ opcode: 0, isLast, payload })
const ping: Frame = { opcode: 9, isLast: true, payload: 3 }

describe("what a WebSocket holds of an unfinished message", () => {
  const message = fc
    .tuple(fc.array(fc.oneof(fc.nat(200), fc.integer({ min: 65_000, max: 66_000 })), { maxLength: 5 }), fc.boolean())
    .map(([payloads, hasPings]) => {
      const frames = [...payloads, 7].map((payload, index) =>
        index === 0 ? text(payload, payloads.length === 0) : more(payload, index === payloads.length)
      )
      return hasPings ? frames.flatMap(frame => [ping, frame]) : frames
    })

  it("is its bytes and pieces until it is whole, and nothing after that, wherever the stream is cut", () => {
    fc.assert(
      fc.property(
        fc.array(message, { maxLength: 4 }),
        fc.array(fc.integer({ min: 1, max: 5000 })),
        (messages, cuts) => {
          const reader = new UnfinishedMessage()
          for (const frames of messages) {
            const bytes = Buffer.concat(frames.map(bytesOf))
            let at = 0
            for (const cut of [...cuts, bytes.length]) {
              const end = Math.min(at + cut, bytes.length - 1)
              if (end > at) reader.read(bytes.subarray(at, end))
              at = end
            }
            const payload = frames.reduce((sum, frame) => sum + (frame.opcode < 8 ? frame.payload : 0), 0)
            // All but the last byte of the message.
            expect(reader.bytes).toBeGreaterThanOrEqual(payload - 1)
            expect(reader.bytes).toBeLessThanOrEqual(payload - 1 + 128 * (frames.length + cuts.length + 1))
            reader.read(bytes.subarray(at))
            expect(reader.bytes).toBe(0)
          }
        }
      ),
      { numRuns: times(200) }
    )
  })

  it("has too many fragments beyond the number that may be of any size, if the others are small", () => {
    const fragmentsOf = (payload: number, count: number) => {
      const reader = new UnfinishedMessage()
      for (let index = 0; index < count; index++)
        reader.read(bytesOf(index === 0 ? text(payload, false) : more(payload)))
      return reader.hasTooManyFragments(64)
    }
    expect([fragmentsOf(0, 64), fragmentsOf(0, 65), fragmentsOf(7, 65), fragmentsOf(8, 65)]).toEqual([
      false,
      true,
      true,
      false
    ])
    // A library that cuts 1 MiB into pieces of 4 KiB.
    expect(fragmentsOf(4096, 256)).toBe(false)
  })
})

const closing: Array<() => void> = []

afterEach(() => {
  for (const close of closing.splice(0)) close()
})

/** A server with one endpoint, whose clock is the test's. */
const serve = async (budgetBytes: number) => {
  const clock = { now: 0 }
  const budget = new BodyBudget(budgetBytes, MetricTags.none)
  const open = new Set<WebSocket.Connection>()
  const messages: Array<number> = []
  const close = (code: number) => ({ code, reason: "" })
  const connections: WebSocket.ConnectionSet = {
    settings: {
      messageBytes: 1024 * 1024,
      unsentBytes: 1024 * 1024,
      pingInterval: 1_000_000_000,
      pongTimeout: 1_000_000_000,
      slow: close(4008),
      goingAway: close(1001),
      drainInterval: 0
    },
    limits: { messageFragments: 64, messageSeconds: 60 },
    tags: MetricTags.none,
    now: () => clock.now,
    add: connection => open.add(connection),
    remove: connection => open.delete(connection),
    size: 0,
    occupied: Effect.void
  }
  const handler = (tenant: string): WebSocket.Handler => ({
    tenant,
    onOpen: () => {},
    onMessage: data => messages.push(data.length),
    onControl: () => {},
    onBlocked: () => {},
    onRoom: () => {},
    onTick: () => {},
    onClosing: () => {},
    onClosed: () => {}
  })
  const server = createServer()
  server.on("connection", (socket: Socket) => budget.open(socket))
  server.on("upgrade", (request, socket, head) => {
    const accept: WebSocket.Upgrade["accept"] = connect => connect(() => handler(request.url?.slice(1) ?? ""))
    Effect.runSync(upgrading({ request, socket, head })(Reply.webSocket({ connections, accept })))
  })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  closing.push(() => server.close())
  const { port } = server.address() as AddressInfo
  return {
    port,
    budget,
    messages,
    tick: (now: number) => {
      clock.now = now
      budget.tick(now)
      for (const connection of open) connection.tick(now)
    }
  }
}

/** A client of a tenant, and the code with which the server closes its connection. */
const client = async (port: number, tenant: string) => {
  const socket = connect(port, "127.0.0.1")
  closing.push(() => socket.destroy())
  socket.on("error", () => {})
  const key = Buffer.alloc(16).toString("base64")
  socket.write(
    `GET /${tenant} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: ${key}\r\n\r\n`
  )
  const [answer] = (await once(socket, "data")) as [Buffer]
  expect(answer.toString("latin1")).toMatch(/^HTTP\/1\.1 101 /)
  let received = Buffer.alloc(0)
  const closed = new Promise<number>(resolve => {
    socket.on("data", chunk => {
      received = Buffer.concat([received, chunk])
      if (received[0] === 0x88 && received.length >= 4) resolve(received.readUInt16BE(2))
    })
    socket.on("close", () => resolve(received[0] === 0x88 ? received.readUInt16BE(2) : 1006))
  })
  return { send: (...frames: ReadonlyArray<Frame>) => socket.write(Buffer.concat(frames.map(bytesOf))), socket, closed }
}

const until = async (condition: () => boolean) => {
  while (!condition()) await new Promise(resolve => setImmediate(resolve))
}

describe("an unfinished message of a WebSocket", () => {
  it("is refused with 1008 if it comes in many small fragments", async () => {
    const { port } = await serve(1e9)
    const { closed, send } = await client(port, "a")
    send(text(1, false), ...Array.from({ length: 16_000 }, () => more(1)))
    expect(await closed).toBe(1008)
  })

  it("arrives if a library cuts it into pieces of a common size", async () => {
    const { budget, messages, port } = await serve(1e9)
    const { send } = await client(port, "a")
    send(text(4096, false), ...Array.from({ length: 254 }, () => more(4096)), more(4096, true))
    await until(() => messages.length > 0)
    expect(messages).toEqual([1024 * 1024])
    expect(budget.total).toBe(0)
  })

  it("is refused with 4011 if it does not end in time, whatever pings come with it", async () => {
    const { budget, port, tick } = await serve(1e9)
    const { closed, send } = await client(port, "a")
    send(text(1000, false))
    await until(() => budget.total > 1000)
    tick(59_999)
    send(ping, more(1000))
    await until(() => budget.total > 2000)
    tick(60_000)
    expect(await closed).toBe(4011)
  })

  it("takes of the memory for bodies what it holds, and above it the tenant with the most makes room", async () => {
    const { budget, messages, port } = await serve(10_000_000)
    const honest = await client(port, "honest")
    honest.send(text(500_000, false))
    await until(() => budget.total > 500_000)
    const hostile = await Promise.all(Array.from({ length: 12 }, () => client(port, "hostile")))
    for (const one of hostile) {
      // A frame that lacks its last byte.
      one.socket.write(bytesOf(text(1_000_000, true)).subarray(0, -1))
      const before = budget.total
      await until(() => budget.total !== before)
    }
    expect(await Promise.race(hostile.map(({ closed }) => closed))).toBe(4001)
    expect(budget.total).toBeLessThanOrEqual(10_000_000)
    honest.send(more(1, true))
    await until(() => messages.length > 0)
    expect(messages).toEqual([500_001])
  })

  it("takes no memory once its connection has ended", async () => {
    const { budget, port } = await serve(1e9)
    const { send, socket } = await client(port, "a")
    send(text(1000, false))
    await until(() => budget.total > 1000)
    socket.destroy()
    await until(() => budget.total === 0)
  })
})
