import type { ServerResponse } from "node:http"
import * as Net from "node:net"
import { describe, expect, it } from "vitest"
import { timing } from "../../../src/Http/ConnectionLimits.ts"
import { Gate, type Upgradable } from "../../../src/Http/Server/Gate.ts"
import { collect } from "../../Garbage.ts"
import { closing, listen, turn } from "./Fixture.ts"

/** The server's ends of its connections. */
const sockets = (gate: Gate): ReadonlyArray<Net.Socket> => connections.get(gate) ?? []

const connections = new Map<Gate, Array<Net.Socket>>()

/** A server that leaves each answer to the test, and a connection to it. */
const open = async (upgradable?: Upgradable) => {
  const gate = new Gate(timing)
  connections.set(gate, [])
  gate.on("connection", connection => connections.get(gate)!.push(connection))
  const seen: Array<string> = []
  const answers = new Map<string, ServerResponse>()
  const listeners: Array<() => void> = []
  gate.on("request", (request, response) => {
    seen.push(`${request.method} ${request.url}`)
    answers.set(request.url ?? "", response)
    for (const listener of listeners.splice(0)) listener()
  })
  const socket = Net.connect(await listen(gate, upgradable), "127.0.0.1")
  closing.push(() => socket.destroy())
  const until = async (count: number) => {
    while (seen.length < count) await new Promise<void>(resolve => listeners.push(resolve))
  }
  const read = () => new Promise<string>(resolve => socket.once("data", chunk => resolve(chunk.toString())))
  return { gate, seen, answers, socket, until, read }
}

const request = (method: string, path: string) =>
  `${method} ${path} HTTP/1.1\r\nhost: x\r\n${method === "PUT" ? "content-length: 0\r\n" : ""}\r\n`

/** Everything that a connection gets until its end. */
const untilEnd = (socket: Net.Socket) =>
  new Promise<string>(resolve => {
    let text = ""
    socket.on("data", chunk => {
      text += chunk.toString()
    })
    socket.once("close", () => resolve(text))
  })

describe("pipelined requests", () => {
  it("are served one after the other", async () => {
    const { seen, answers, socket, until, read } = await open()
    socket.write(request("PUT", "/a") + request("GET", "/b") + request("GET", "/c"))
    await until(1)
    // All three came in one packet: the others would be here by now.
    await turn()
    expect(seen).toEqual(["PUT /a"])
    const first = read()
    answers.get("/a")!.end("A")
    expect(await first).toContain("A")
    await until(2)
    await turn()
    expect(seen).toEqual(["PUT /a", "GET /b"])
    answers.get("/b")!.end("B")
    await until(3)
    expect(seen).toEqual(["PUT /a", "GET /b", "GET /c"])
  })

  it("are read from the connection as far as they are served", async () => {
    const { gate, seen, answers, socket, until } = await open()
    const many = request("GET", "/x").repeat(20_000)
    socket.write(many)
    await until(1)
    for (let turns = 0; turns < 50; turns++) await turn()
    const [connection] = sockets(gate)
    expect(connection!.bytesRead).toBeLessThan(many.length / 2)
    expect(seen).toHaveLength(1)
    answers.get("/x")!.end()
    await until(2)
  })

  it("are dropped with their connection, and affect nothing else", async () => {
    const { gate, seen, answers, socket, until } = await open()
    socket.write(request("GET", "/a").repeat(500))
    await until(1)
    await turn()
    const [connection] = sockets(gate)
    const closed = new Promise(resolve => connection!.once("close", resolve))
    socket.resetAndDestroy()
    // A connection that is not being read reports its end when it is written to.
    while (!connection!.destroyed) {
      answers.get("/a")!.write("A")
      await turn()
    }
    await closed
    await turn()
    expect(gate.inFlight).toBe(0)
    expect(seen).toHaveLength(1)
  })

  it("may end in an upgrade, which waits for its turn", async () => {
    const { gate, answers, socket, until } = await open()
    const upgraded = new Promise<void>(resolve =>
      gate.once("upgrade", (_request, duplex) => resolve(void duplex.end("UP")))
    )
    socket.write(
      `${request("GET", "/a")}GET /ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n`
    )
    await until(1)
    await turn()
    const ended = untilEnd(socket)
    answers.get("/a")!.end("A")
    await upgraded
    expect(await ended).toMatch(/^HTTP\/1.1 200 .*AUP$/s)
  })

  it("are not kept in memory for as long as a connection that was upgraded", async () => {
    const { gate, socket, read } = await open()
    const handshake = new Promise<WeakRef<object>>(resolve =>
      gate.once("upgrade", (request, duplex) => {
        duplex.write("UP")
        resolve(new WeakRef(request))
      })
    )
    const answer = read()
    socket.write("GET /ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nearly")
    const upgraded = await handshake
    expect(await answer).toBe("UP")
    // V8 keeps what a WeakRef was created with until the end of the current job; node may need some turns as well.
    for (let turns = 0; turns < 100 && upgraded.deref() !== undefined; turns++) {
      await turn()
      collect()
    }
    expect(upgraded.deref()).toBeUndefined()
    expect(sockets(gate)[0]!.destroyed).toBe(false)
  })

  it("are answered before a malformed request behind them is refused", async () => {
    const { answers, socket, until } = await open()
    const text = untilEnd(socket)
    socket.write(`${request("PUT", "/a")}${request("GET", "/b")}\u0001 is no request`)
    await until(1)
    await turn()
    const first = answers.get("/a")!
    first.writeHead(200, { "content-length": 1 })
    await turn()
    first.end("A")
    await until(2)
    answers.get("/b")!.end("B")
    expect(await text).toMatch(/^HTTP\/1.1 200 .*A *HTTP\/1.1 200 .*BHTTP\/1.1 400 .*"error"/s)
  })

  it("are refused in order if their body is malformed", async () => {
    const { seen, answers, socket, until } = await open()
    const text = untilEnd(socket)
    const chunked = "PUT /b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    socket.write(`${request("GET", "/a")}${chunked}no chunk\r\n`)
    await until(1)
    await turn()
    answers.get("/a")!.end("A")
    expect(await text).toMatch(/^HTTP\/1.1 200 .*AHTTP\/1.1 400 .*"error"/s)
    expect(seen).toEqual(["GET /a"])
  })

  it("are refused at once if the body of the current one is malformed", async () => {
    const { socket, until } = await open()
    const text = untilEnd(socket)
    socket.write("PUT /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nno chunk\r\n")
    await until(1)
    expect(await text).toMatch(/^HTTP\/1.1 400 .*"error"/s)
  })

  it("wait while their client reads slowly", async () => {
    const { gate, answers, socket } = await open()
    const body = "x".repeat(1024 * 1024)
    const count = 200
    let served = 0
    gate.on("request", request => {
      served++
      answers.get(request.url ?? "")!.end(body)
    })
    socket.pause()
    socket.write(request("GET", "/x").repeat(50_000))
    let bytes = 0
    while (bytes < count * body.length) {
      const chunk: Buffer | null = socket.read()
      if (chunk === null) await new Promise<void>(resolve => socket.once("readable", resolve))
      else bytes += chunk.length
    }
    expect(served).toBeGreaterThanOrEqual(count)
    expect(sockets(gate)[0]!.bytesRead).toBeLessThan(request("GET", "/x").length * 25_000)
  })

  it("are not upgrades on paths without a WebSocket", async () => {
    const { gate, seen, socket, until } = await open(target => target === "/ws")
    gate.on("upgrade", () => seen.push("upgrade"))
    socket.write("GET /a HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
    await until(1)
    expect(seen).toEqual(["GET /a"])
  })
})
