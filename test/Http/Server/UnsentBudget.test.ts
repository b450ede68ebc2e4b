import type { ServerResponse } from "node:http"
import type * as Net from "node:net"
import { describe, expect, it } from "vitest"
import { type ConnectionLimits, defaults, timing } from "../../../src/Http/ConnectionLimits.ts"
import { Gate } from "../../../src/Http/Server/Gate.ts"
import { KernelQueues } from "../../../src/Http/Server/NodeInternals.ts"
import { accountOf } from "../../../src/Http/Server/UnsentBudget.ts"
import * as Fixture from "./Fixture.ts"
import { get, listen, turn, until } from "./Fixture.ts"

const MiB = 1024 * 1024

/** A server that answers `/<n>` with n MiB, `/bytes/<n>` with bytes that all are sent, and `/wait` not at all. */
const serve = async (limits: Partial<ConnectionLimits>) => {
  const gate = new Gate(timing, undefined, { ...defaults, ...limits }, target => target === "/probe")
  const shared = Buffer.alloc(8 * MiB, "x")
  const sockets: Array<Net.Socket> = []
  const waiting: Array<ServerResponse> = []
  gate.on("connection", socket => sockets.push(socket))
  gate.on("request", (request, response) => {
    const { url = "" } = request
    if (url === "/wait") {
      waiting.push(response)
      return
    }
    if (url === "/shared") {
      response.end(shared)
      accountOf(request.socket)?.share(shared)
    } else response.end("x".repeat(Number(url.slice(1) || 0) * MiB))
    accountOf(request.socket)?.recount()
  })
  const port = await listen(gate)
  return { gate, port, sockets, waiting }
}

/**
 * From now on a connection looks as if the operating system accepted nothing more. It accepts as much as its queues
 * allow, and on a busy machine that may last.
 */
const holdStill = (socket: Net.Socket) => {
  const { _handle: handle } = socket as unknown as {
    readonly _handle: { bytesWritten: number; writeQueueSize: number }
  }
  const { bytesWritten, writeQueueSize } = handle
  Object.defineProperties(handle, { bytesWritten: { value: bytesWritten }, writeQueueSize: { value: writeQueueSize } })
}

/** A client that reads only on request. */
const connect = async (port: number, ...requests: ReadonlyArray<string>) => {
  const client = await Fixture.connect(port)
  client.socket.pause()
  client.socket.write(requests.join(""))
  return client
}

/** Clients that connect one after the other, each once the answer to the one before is in memory. */
const connectAll = async ({ gate, port }: Awaited<ReturnType<typeof serve>>, ...mebibytes: ReadonlyArray<number>) => {
  let expected = 0
  for (const size of mebibytes) {
    await connect(port, get(`/${size}`))
    expected += size * MiB
    await until(() => gate.unsent >= expected)
  }
}

describe("unsent bytes", () => {
  it("are bounded over all connections: the least recently reading client is cut, readers are not", async () => {
    const server = await serve({ unsentBytes: 20 * MiB })
    const { gate, port, sockets } = server
    await connectAll(server, 6, 6, 6)
    for (const socket of sockets) holdStill(socket)
    gate.tick(0)
    gate.tick(5000)
    const reading = await connect(port, get("/8"))
    reading.socket.resume()
    await until(() => reading.received().length > 8 * MiB)
    expect(sockets.map(({ destroyed }) => destroyed)).toEqual([true, true, false, false])
    await until(() => gate.connected === 2)
    expect(gate.unsent).toBeLessThanOrEqual(15 * MiB)
  })

  it("are released from the largest holders if all may be reading", async () => {
    const server = await serve({ unsentBytes: 20 * MiB })
    const { port, sockets } = server
    await connectAll(server, 6, 9)
    await connect(port, get("/7"))
    await until(() => sockets.some(({ destroyed }) => destroyed))
    expect(sockets.map(({ destroyed }) => destroyed)).toEqual([false, true, false])
  })

  it("of connections that are being closed are in memory until they have ended", async () => {
    const { gate, port, sockets } = await serve({ unsentBytes: 20 * MiB })
    let closed = 0
    for (let count = 1; count <= 4; count++) {
      await connect(port, get("/6"))
      await until(() => sockets.length === count)
      const account = accountOf(sockets[count - 1]!)!
      account.protocol = { closeSlow: () => closed++ }
      await until(() => account.bytes > 5 * MiB || closed > 0)
    }
    expect(sockets.some(({ destroyed }) => destroyed)).toBe(false)
    expect(gate.unsent).toBeGreaterThan(20 * MiB)
    const account = accountOf(sockets[3]!)!
    expect([1, 20].map(mebibytes => account.admits(mebibytes * MiB))).toEqual([true, false])
    for (const socket of sockets) socket.destroy()
    await until(() => gate.unsent === 0)
  })

  it("count once for a frame that many are sent", async () => {
    const { gate, port, sockets } = await serve({ unsentBytes: 20 * MiB })
    for (let count = 0; count < 8; count++) await connect(port, get("/shared"))
    await until(() => sockets.length === 8 && sockets.every(({ writableLength }) => writableLength > 0))
    expect(gate.unsent).toBeLessThan(9 * MiB)
    expect(sockets.some(({ destroyed }) => destroyed)).toBe(false)
    for (const socket of sockets) socket.destroy()
    await until(() => gate.connected === 0)
    expect(gate.unsent).toBe(0)
  })

  it("are kept while the client reads, and for the read timeout after that", async () => {
    const { gate, port, sockets } = await serve({})
    const client = await connect(port, get("/64"))
    await until(() => gate.unsent >= 64 * MiB)
    for (let now = 0; now < 600_000; now += 50_000) {
      const before = client.received().length
      client.socket.resume()
      await until(() => client.received().length >= before + 3 * MiB)
      client.socket.pause()
      expect(gate.tick(now)).toBe(0)
    }
    // The last read of the client was seen at the last check or is seen at this one.
    gate.tick(600_000)
    expect(gate.tick(609_000)).toBe(0)
    expect(gate.tick(660_000)).toBe(1)
    expect(sockets[0]!.destroyed).toBe(true)
  })

  it("include waiting pipelined requests", async () => {
    const { gate, port, waiting, sockets } = await serve({})
    await connect(port, get("/wait"), ...Array.from({ length: 100 }, () => get("/0")))
    await until(() => waiting.length === 1 && gate.unsent > 0)
    expect(gate.unsent).toBeGreaterThan(100 * 1024)
    gate.tick(0)
    expect(gate.tick(120_000)).toBe(0)
    waiting[0]!.end()
    await until(() => gate.unsent === 0 && gate.inFlight === 0)
    expect(sockets[0]!.destroyed).toBe(false)
  })

  it("include the heads of requests in progress, the largest of which are ended first", async () => {
    const { gate, port, waiting, sockets } = await serve({ unsentBytes: MiB })
    const wait = (lines: number) => `GET /wait HTTP/1.1\r\nhost: x\r\n${"x-filler: y\r\n".repeat(lines)}\r\n`
    for (let count = 1; count <= 20; count++) {
      await connect(port, wait(count === 1 ? 1 : 1500))
      await until(() => waiting.length === count)
      if (count === 1) expect(gate.unsent).toBe(0)
      if (count === 4) expect(gate.unsent).toBeGreaterThan(3 * 1500 * 150)
    }
    expect(gate.unsent).toBeLessThanOrEqual(1.5 * MiB)
    await until(() => gate.connected < 8)
    expect(gate.unsent).toBeLessThanOrEqual(MiB)
    expect(sockets[0]!.destroyed).toBe(false)
    for (const response of waiting) response.end()
    await until(() => gate.unsent === 0)
  })

  it.runIf(process.platform === "linux")("are measured by the kernel's queues", async () => {
    const { gate, port, sockets } = await serve({})
    const client = await connect(port, get("/64"))
    await until(() => gate.unsent >= 64 * MiB)
    // Once the queue no longer changes, the client's kernel has accepted everything that it can.
    let queued = -1
    const queues = new KernelQueues()
    const queue = async () => (await queues.read(sockets, 0)).get(sockets[0]!) ?? -1
    for (let now = await queue(); now !== queued; now = await queue()) queued = now
    expect(queued).toBeGreaterThan(0)
    const account = accountOf(sockets[0]!)!
    gate.tick(0)
    account.onKernelQueue(queued)
    gate.tick(30_000)
    const { writeQueueSize } = (sockets[0] as unknown as { _handle: { writeQueueSize: number } })._handle
    let read = 0
    while ((await queue()) >= queued) {
      read += client.socket.read(16_384)?.length ?? 0
      await turn()
    }
    expect(read).toBeLessThan(64 * MiB)
    // The kernel may have accepted more by now, which is visible too.
    if ((sockets[0] as unknown as { _handle: { writeQueueSize: number } })._handle.writeQueueSize === writeQueueSize) {
      account.onKernelQueue(await queue())
    }
    expect(gate.tick(70_000)).toBe(0)
    expect(gate.tick(131_000)).toBe(1)
  })
})

describe("a limit of connections", () => {
  it("displaces the connection that has been idle for longest", async () => {
    const { gate, port, sockets } = await serve({ connections: 3 })
    await connect(port, get("/wait"))
    const idle = await connect(port, get("/0"))
    const busy = await connect(port)
    await until(() => sockets.length === 3 && sockets[1]!.bytesWritten > 0)
    busy.socket.write(get("/0"))
    await until(() => sockets[2]!.bytesWritten > 0)
    await connect(port, get("/0"))
    await until(() => sockets.length === 4 && sockets[3]!.bytesWritten > 0)
    expect(sockets.map(({ destroyed }) => destroyed)).toEqual([false, true, false, false])
    expect(gate.connected).toBe(3)
    idle.socket.resume()
    await idle.closed
  })

  it("answers 503 if all are busy, and serves probes", async () => {
    const { gate, port } = await serve({ connections: 2 })
    await connect(port, get("/wait"))
    await connect(port, get("/wait"))
    await until(() => gate.inFlight === 2)
    const refused = await connect(port, get("/0"))
    refused.socket.resume()
    await refused.closed
    expect(refused.received()).toMatch(/^HTTP\/1.1 503 /)
    expect(refused.received()).toContain('{"error":"There are too many connections"}')
    const probe = await connect(port, get("/probe"))
    probe.socket.resume()
    await probe.answered()
    expect(probe.received()).toMatch(/^HTTP\/1.1 200 /)
  })

  it("holds against any number of connections that send nothing", async () => {
    const { gate, port } = await serve({ connections: 10 })
    const flood = []
    for (let count = 0; count < 100; count++) flood.push(await connect(port))
    expect(gate.connected).toBeLessThanOrEqual(10)
    const honest = await connect(port, get("/0"))
    honest.socket.resume()
    await honest.answered()
    expect(honest.received()).toMatch(/^HTTP\/1.1 200 /)
  })
})
