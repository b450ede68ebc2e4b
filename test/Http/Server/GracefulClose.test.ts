import type { ServerResponse } from "node:http"
import type * as Net from "node:net"
import { describe, expect, it } from "vitest"
import { type Timing, timing } from "../../../src/Http/ConnectionLimits.ts"
import { Gate } from "../../../src/Http/Server/Gate.ts"
import { connect, get, listen } from "./Fixture.ts"

/** A server with short limits that hands each answer to `serve`, and a connection to it. */
const open = async (serve: (response: ServerResponse) => void, given: Partial<Timing> = {}) => {
  const gate = new Gate({ ...timing, linger: 10, halfOpen: 10, ...given })
  const sockets: Array<Net.Socket> = []
  gate.on("connection", connection => sockets.push(connection))
  // The property `closed` of a socket is true before the listeners of its end have been called.
  const ended = new Promise<void>(resolve => gate.once("connection", connection => connection.once("close", resolve)))
  gate.on("request", (_request, response) => serve(response))
  const { received, socket } = await connect(await listen(gate), { allowHalfOpen: true })
  return { gate, socket, closed: () => ended, text: received, server: () => sockets[0]! }
}

const put = (length: number) => `PUT / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: ${length}\r\n\r\n`

const tooLong = (response: ServerResponse) => void response.writeHead(413).end("too long")

describe("a connection ends", () => {
  it("when a half-closed client has waited for its answer for the time limit", async () => {
    let left: Promise<void> | undefined
    const { gate, socket, closed } = await open(response => {
      left = new Promise(resolve => response.once("close", resolve))
    })
    socket.end(get("/"))
    await closed()
    await left
    expect(gate.connected).toBe(0)
    expect(gate.inFlight).toBe(0)
  })

  it("at once when a client without pending requests half-closes", async () => {
    const { gate, socket, closed, text } = await open(response => void response.end("A"))
    socket.write(get("/"))
    while (!text().includes("A")) await new Promise(resolve => socket.once("data", resolve))
    socket.end()
    await closed()
    expect(gate.connected).toBe(0)
  })

  it.each([
    ["by the application", "host: x\r\n"],
    ["before that", ""]
  ])("when a client whose handshake was refused %s keeps its half open", async (_, host) => {
    const { gate, socket, closed, text } = await open(() => undefined)
    gate.on("upgrade", (_request, duplex) => void duplex.end("HTTP/1.1 401 Unauthorized\r\n\r\n"))
    socket.write(`GET / HTTP/1.1\r\n${host}connection: upgrade\r\nupgrade: websocket\r\n\r\n`)
    await new Promise(resolve => socket.once("end", resolve))
    expect(text()).toMatch(/^HTTP\/1.1 40[01] /)
    socket.write("and more")
    await closed()
    expect(gate.connected).toBe(0)
  })

  it("when the rest of a body after the last answer is silent", async () => {
    const { gate, socket, closed, text } = await open(tooLong)
    socket.write(`${put(100_000)}begun`)
    await new Promise(resolve => socket.once("end", resolve))
    expect(text()).toContain("too long")
    await closed()
    expect(gate.connected).toBe(0)
  })

  it("when the rest of a body after the last answer is too long", async () => {
    const { gate, socket, closed, text, server } = await open(tooLong)
    socket.write(put(100_000_000_000))
    const piece = Buffer.alloc(1024 * 1024)
    const send = (error?: Error | null) => {
      if (!error && !socket.destroyed) socket.write(piece, send)
    }
    send()
    await closed()
    expect(text()).toContain("too long")
    expect(server().bytesRead).toBeGreaterThan(1024)
    expect(gate.connected).toBe(0)
  })

  it("as soon as the body after the last answer is complete", async () => {
    const { socket, closed, text, server } = await open(tooLong, {
      linger: 60_000
    })
    socket.write(`${put(5)}ab`)
    await new Promise(resolve => socket.once("end", resolve))
    socket.write("cde")
    await closed()
    expect(text()).toContain("too long")
    expect(server().bytesRead).toBe(70)
  })

  it("only when a client that sends everything before it reads has its answer", async () => {
    const { socket, text } = await open(tooLong, { linger: 1000 })
    socket.pause()
    const bytes = 24 * 1024 * 1024
    socket.write(put(bytes))
    const error = await new Promise<Error | null | undefined>(resolve => socket.write(Buffer.alloc(bytes), resolve))
    expect(error).toBeFalsy()
    socket.resume()
    await new Promise(resolve => socket.once("end", resolve))
    expect(text()).toContain("too long")
  })
})
