import type { ServerResponse } from "node:http"
import * as Net from "node:net"
import { afterEach, describe, expect, it } from "vitest"
import { Gate, timing } from "../../src/Http/NodeServerGate.ts"

/** A server that leaves each answer to the test, and a connection to it. */
const open = async () => {
  const gate = new Gate(timing)
  const seen: Array<string> = []
  const answers = new Map<string, ServerResponse>()
  const listeners: Array<() => void> = []
  gate.on("request", (request, response) => {
    seen.push(`${request.method} ${request.url}`)
    answers.set(request.url ?? "", response)
    for (const listener of listeners.splice(0)) listener()
  })
  gate.open()
  await new Promise<void>(resolve => gate.listen(0, "127.0.0.1", resolve))
  const address = gate.address() as Net.AddressInfo
  const socket = Net.connect(address.port, "127.0.0.1")
  closing.push(() => {
    socket.destroy()
    gate.close()
  })
  const until = async (count: number) => {
    while (seen.length < count) await new Promise<void>(resolve => listeners.push(resolve))
  }
  const read = () => new Promise<string>(resolve => socket.once("data", chunk => resolve(chunk.toString())))
  return { seen, answers, socket, until, read }
}

const closing: Array<() => void> = []

afterEach(() => {
  for (const close of closing.splice(0)) close()
})

const request = (method: string, path: string) =>
  `${method} ${path} HTTP/1.1\r\nhost: x\r\n${method === "PUT" ? "content-length: 0\r\n" : ""}\r\n`

describe("requests sent behind one another on a connection", () => {
  it("run side by side where all are safe", async () => {
    const { seen, socket, until } = await open()
    socket.write(request("GET", "/a") + request("HEAD", "/b") + request("GET", "/c"))
    await until(3)
    expect(seen).toEqual(["GET /a", "HEAD /b", "GET /c"])
  })

  it("wait for one that writes, and one that writes waits for those before it", async () => {
    const { seen, answers, socket, until, read } = await open()
    socket.write(request("PUT", "/a") + request("GET", "/b") + request("PUT", "/c"))
    await until(1)
    // All three came in one packet: the others would be here by now.
    await new Promise(resolve => setImmediate(resolve))
    expect(seen).toEqual(["PUT /a"])
    const first = read()
    answers.get("/a")!.end("A")
    expect(await first).toContain("A")
    await until(2)
    expect(seen).toEqual(["PUT /a", "GET /b"])
    answers.get("/b")!.end("B")
    await until(3)
    expect(seen).toEqual(["PUT /a", "GET /b", "PUT /c"])
  })
})
