/** Bodies that are written directly, of clients that do not read. */
import { once } from "node:events"
import * as Net from "node:net"
import { Effect, Stream } from "effect"
import { describe, expect, it } from "vitest"
import { type ConnectionLimits, defaults, timing } from "../../../src/Http/ConnectionLimits.ts"
import { ResponseBatcher, send } from "../../../src/Http/Edge/Exchange.ts"
import * as Reply from "../../../src/Http/Reply.ts"
import { Gate } from "../../../src/Http/Server/Gate.ts"
import { closing, connect, get, listen, turn, until } from "../Server/Fixture.ts"

/** More than the kernel takes for a client that reads nothing. */
const large = Buffer.alloc(32 * 1024 * 1024, "x")

/** A server whose answers a test writes, and a client that has got the headers of one and reads nothing. */
const unread = async (limits: Partial<ConnectionLimits> = {}) => {
  const gate = new Gate(timing, undefined, { ...defaults, ...limits })
  const calls: Array<string> = []
  let outlet: Reply.Outlet | undefined
  const writer: Reply.BodyWriter = {
    onOpen: opened => {
      outlet = opened
      opened.write(Buffer.from("first"))
    },
    onDrain: () => calls.push("drain"),
    onSlow: () => {
      calls.push("slow")
      outlet!.end()
    }
  }
  const release = Effect.sync(() => calls.push("release"))
  gate.on("request", (_request, response) => {
    send(
      Reply.written("text/plain", writer, {}, Effect.asVoid(release)),
      response,
      false,
      "1",
      new ResponseBatcher(),
      Effect.runFork
    )
  })
  const socket = Net.connect(await listen(gate), "127.0.0.1")
  closing.push(() => socket.destroy())
  // Only the end, as the whole would be copied again and again.
  let end = Buffer.alloc(0)
  socket.on("data", chunk => {
    end = Buffer.concat([end.subarray(-16), chunk.subarray(-16)])
  })
  socket.on("error", () => {})
  const closed = new Promise<void>(resolve => socket.once("close", () => resolve()))
  await once(socket, "connect")
  socket.write(get("/"))
  await until(() => end.includes("first"))
  socket.pause()
  /** Whether the end of a chunked body has come. */
  const isWhole = () => end.toString("latin1").endsWith("\r\n0\r\n\r\n")
  return { calls, closed, gate, isWhole, outlet: outlet!, socket }
}

describe("a body that is written directly", () => {
  it("is not cut off by the server while it is written, and once it has ended only after a while", async () => {
    const { calls, closed, gate, isWhole, outlet, socket } = await unread()
    gate.tick(0)
    outlet.write(large)
    await until(() => outlet.sent > 0)
    expect(outlet.unsent).toBeGreaterThan(0)
    let now = 0
    for (; now <= 3 * timing.readTimeout; now += 1000) gate.tick(now)
    expect(socket.destroyed).toBe(false)
    outlet.end()
    now += 1000
    gate.tick(now)
    await turn()
    expect(calls).toEqual([])
    const end = now + timing.readTimeout + 1000
    for (; now <= end; now += 1000) gate.tick(now)
    socket.resume()
    await closed
    expect(isWhole()).toBe(false)
    await until(() => calls.includes("release"))
    outlet.write(Buffer.from("dropped"))
  })

  it("comes whole to a client that reads again in time", async () => {
    const { calls, isWhole, outlet, socket } = await unread()
    outlet.write(large)
    outlet.end()
    socket.resume()
    await until(() => isWhole())
    await until(() => calls.includes("release"))
  })

  it("ends if others need the memory", async () => {
    const { calls, isWhole, outlet, socket } = await unread({ unsentBytes: 1024 * 1024 })
    outlet.write(large)
    await until(() => calls.includes("slow"))
    socket.resume()
    await until(() => isWhole())
  })

  it("says when all of it was sent", async () => {
    const { calls, outlet, socket } = await unread()
    outlet.write(large)
    socket.resume()
    await until(() => calls.includes("drain"))
    expect(outlet.unsent).toBe(0)
  })
})

describe("a body in pieces", () => {
  it("counts a piece once that several clients do not read", async () => {
    const gate = new Gate(timing, undefined, defaults)
    gate.on("request", (_request, response) => {
      send(Reply.stream("text/plain", Stream.make(large)), response, false, "1", new ResponseBatcher(), Effect.runFork)
    })
    const port = await listen(gate)
    const clients = await Promise.all([1, 2, 3].map(() => connect(port)))
    for (const { socket } of clients) {
      socket.pause()
      socket.write(get("/"))
    }
    await until(() => gate.inFlight === clients.length && gate.unsent >= large.length)
    await turn()
    gate.tick(0)
    expect(gate.unsent).toBeLessThan(1.5 * large.length)
  })
})
