/** Messages of WebSockets that do not arrive whole, over real sockets. */

import { once } from "node:events"
import { createServer } from "node:http"
import { type AddressInfo, connect, type Socket } from "node:net"
import { Effect, FastCheck as fc } from "effect"
import { describe, expect, it } from "vitest"
import * as MetricTags from "../../src/base/Observability/MetricTags.ts"
import { UnfinishedMessage } from "../../src/base/UnfinishedMessage.ts"
import * as Reply from "../../src/Http/Reply.ts"
import { BodyBudget, heldBodyOf } from "../../src/Http/Server/BodyBudget.ts"
import { upgrading } from "../../src/Http/WebSocket/Handshake.ts"
import type * as WebSocket from "../../src/Http/WebSocket.ts"
import { times } from "../Scale.ts"
import { closing, socketSettings, until } from "./Server/Fixture.ts"

interface Frame {
  readonly opcode: number
  readonly isLast: boolean
  readonly payload: number
}

/** A frame of a client, whose mask is all zeros. */
const bytesOf = ({ isLast, opcode, payload }: Frame): Buffer => {
  const extended = Buffer.alloc(payload < 126 ? 0 : payload < 65_536 ? 2 : 8)
  if (extended.length > 0) extended.writeUIntBE(payload, Math.max(0, extended.length - 6), Math.min(6, extended.length))
  const length = extended.length === 0 ? payload : extended.length === 2 ? 126 : 127
  const start = Buffer.from([(isLast ? 0x80 : 0) | opcode, 0x80 | length])
  return Buffer.concat([start, extended, Buffer.alloc(4), Buffer.alloc(payload, "a")])
}

const text = (payload: number, isLast: boolean): Frame => ({ opcode: 1, isLast, payload })
const more = (payload: number, isLast = false): Frame => ({ opcode: 0, isLast, payload })
const ping: Frame = { opcode: 9, isLast: true, payload: 3 }
const maxFragments = 2048

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
          const reader = new UnfinishedMessage(maxFragments)
          for (const frames of messages) {
            const bytes = Buffer.concat(frames.map(bytesOf))
            const payload = frames.reduce((sum, frame) => sum + (frame.opcode < 8 ? frame.payload : 0), 0)
            let at = 0
            for (const cut of [...cuts, bytes.length]) {
              const end = Math.min(at + cut, bytes.length - 1)
              if (end > at) expect(reader.read(bytes.subarray(at, end))).toBe(false)
              at = end
            }
            // All but the last byte of the message.
            expect(reader.bytes).toBeGreaterThanOrEqual(payload - 1)
            expect(reader.bytes).toBeLessThanOrEqual(bytes.length + 128 * frames.length + 512 * (cuts.length + 1))
            expect(reader.read(bytes.subarray(at))).toBe(true)
            expect(reader.bytes).toBe(0)
          }
        }
      ),
      { numRuns: times(200) }
    )
  })

  it("includes all of the chunks that its fragments are in", () => {
    const reader = new UnfinishedMessage(maxFragments)
    // The end of another message, and control frames.
    const before = bytesOf(text(10_000, true))
    const pings = Buffer.concat(Array.from({ length: 100 }, () => bytesOf(ping)))
    expect(reader.read(Buffer.concat([before, bytesOf(text(1, false)), pings]))).toBe(true)
    expect(reader.bytes).toBeGreaterThan(before.length + pings.length)
    reader.read(Buffer.concat([pings, bytesOf(more(1))]))
    expect(reader.bytes).toBeGreaterThan(before.length + 2 * pings.length)
  })
})

/** A server with one endpoint, whose clock is the test's. */
const serve = async (budgetBytes?: number) => {
  const clock = { now: 0 }
  const budget = new BodyBudget(budgetBytes ?? 0, MetricTags.none)
  const open = new Set<WebSocket.Connection>()
  const messages: Array<number> = []
  const connections: WebSocket.ConnectionSet = {
    settings: { ...socketSettings, messageBytes: 1024 * 1024, unsentBytes: 1024 * 1024 },
    limits: { messageFragments: maxFragments, messageSeconds: 60 },
    tags: MetricTags.none,
    now: () => clock.now,
    add: connection => open.add(connection),
    remove: connection => open.delete(connection),
    failed: connection => connection.terminate(),
    size: 0,
    occupied: Effect.void
  }
  const handler = (tenant: string): WebSocket.Handler => ({
    tenant,
    onOpen: () => {},
    onMessage: data => {
      if (tenant === "failing") throw new Error("A message of a client failed")
      messages.push(data.length)
    },
    onControl: () => {},
    onBlocked: () => {},
    onRoom: () => {},
    onTick: () => {},
    onClosing: () => {},
    onClosed: () => {}
  })
  const server = createServer()
  if (budgetBytes !== undefined) server.on("connection", (socket: Socket) => budget.open(socket))
  const wires: Array<Socket> = []
  server.on("upgrade", (request, socket, head) => {
    wires.push(socket as Socket)
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
    wires,
    sendToAll: (message: string) => {
      for (const connection of open) connection.send(message)
    },
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

/** A frame that lacks its last byte. */
const unfinished = bytesOf(text(1_000_000, true)).subarray(0, -1)

/** Sends it, and waits until it counts. */
const sendUnfinished = async (socket: Socket, budget: BodyBudget) => {
  const before = budget.total
  socket.write(unfinished)
  await until(() => budget.total !== before)
}

describe("a message of a WebSocket", () => {
  it("whose handler throws ends its connection, and no other", async () => {
    const { messages, port } = await serve()
    const failing = await client(port, "failing")
    const other = await client(port, "a")
    failing.send(text(1, true))
    expect(await failing.closed).toBe(1006)
    other.send(text(1, true))
    await until(() => messages.length === 1)
  })
})

describe("an unfinished message of a WebSocket", () => {
  it("arrives if a library cuts it into pieces of a common size", async () => {
    const { budget, messages, port } = await serve(1e9)
    const { send } = await client(port, "a")
    send(text(4096, false), ...Array.from({ length: 254 }, () => more(4096)), more(4096, true))
    await until(() => messages.length > 0)
    expect(messages).toEqual([1024 * 1024])
    expect(budget.total).toBe(0)
  })

  it("is refused with 1008 if it is in many small fragments, and counts as much as it holds, but nothing that follows", async () => {
    const { budget, port, wires } = await serve(1e9)
    const { closed, send, socket } = await client(port, "a")
    send(text(1, false), ...Array.from({ length: 16_000 }, () => more(1)))
    expect(await closed).toBe(1008)
    const { total } = budget
    expect(total).toBeGreaterThan(128 * maxFragments)
    send(text(1_000_000, false))
    await until(() => wires[0]!.bytesRead > 1_100_000)
    expect(budget.total).toBe(total)
    socket.destroy()
    await until(() => budget.total === 0)
  })

  it("has its own time if others came before it without a pause", async () => {
    const { messages, port, tick } = await serve(1e9)
    const { send } = await client(port, "a")
    send(text(1000, false))
    for (let count = 1; count <= 4; count++) {
      tick(30_000 * count)
      send(more(1, true), text(1000, false))
      await until(() => messages.length === count)
    }
    send(more(1, true))
    await until(() => messages.length === 5)
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
    for (const { socket } of hostile) await sendUnfinished(socket, budget)
    expect(await Promise.race(hostile.map(({ closed }) => closed))).toBe(4001)
    expect(budget.total).toBeLessThanOrEqual(10_000_000)
    honest.send(more(1, true))
    await until(() => messages.length > 0)
    expect(messages).toEqual([500_001])
  })

  it("of a slow client is not refused because of several tenants with many", async () => {
    const { budget, messages, port, tick } = await serve(10_000_000)
    const honest = await client(port, "honest")
    honest.send(text(100_000, false))
    await until(() => budget.total > 100_000)
    // It is silent, and the others send all the time.
    tick(10_000)
    for (let index = 0; index < 12; index++) {
      await sendUnfinished((await client(port, `hostile${index % 3}`)).socket, budget)
    }
    honest.send(more(1, true))
    await until(() => messages.length > 0)
    expect(messages).toEqual([100_001])
  })

  it("ends its connection at once if the memory is needed and the client does not read", async () => {
    const { port, sendToAll, tick, wires } = await serve(1_600_000)
    const silent = await client(port, "a")
    silent.socket.pause()
    const before = wires[0]!.bytesRead
    silent.socket.write(unfinished)
    await until(() => wires[0]!.bytesRead === before + unfinished.length)
    // More than the buffers of both kernels take.
    sendToAll("x".repeat(20_000_000))
    const ended = once(wires[0]!, "close")
    // Of one tenant, those that have sent nothing for a while give way first.
    tick(10_000)
    const other = await client(port, "a")
    other.socket.write(unfinished)
    await ended
  })

  it("is counted on a server that has no budget, as that of a host", async () => {
    const { port, wires } = await serve()
    const { send } = await client(port, "a")
    send(text(1000, false))
    await until(() => heldBodyOf(wires[0]!)!.bytes > 1000)
  })
})
