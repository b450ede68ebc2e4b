import type { ServerResponse } from "node:http"
import { Effect, Either } from "effect"
import { describe, expect, it } from "vitest"
import { Limits } from "../../../src/base/Limits.ts"
import { type ConnectionLimits, defaults, timing } from "../../../src/Http/ConnectionLimits.ts"
import * as Body from "../../../src/Http/RequestBody.ts"
import { Gate } from "../../../src/Http/Server/Gate.ts"
import { format } from "../../../src/Kv/Body.ts"
import { connect, listen, until } from "./Fixture.ts"

const MiB = 1024 * 1024
const bodyFormat = Body.keptFormat(format(Effect.runSync(Limits)))

/** A server that reads bodies; those to `/wait` are answered by the test. */
const serve = async (connectionLimits: Partial<ConnectionLimits>) => {
  const gate = new Gate(timing, undefined, { ...defaults, ...connectionLimits })
  const waiting: Array<ServerResponse> = []
  gate.on("request", (request, response) =>
    Body.read(request, bodyFormat, json => {
      if (Either.isLeft(json)) {
        const status = json.left._tag === "ServiceUnavailable" ? 503 : 400
        response.writeHead(status, json.left.headers).end(json.left.error)
      } else if (request.url === "/wait") waiting.push(response)
      else response.end("ok")
    })
  )
  const port = await listen(gate)
  return { gate, port, waiting }
}

/** The length of a body with this number of bytes between its start and its end. */
const around = (bytes: number) => bytes + 12

/** A client that starts to send a body. */
const begin = async (port: number, target: string, length: number) => {
  const client = await connect(port)
  client.socket.write(`PUT ${target} HTTP/1.1\r\nhost: x\r\ncontent-length: ${length}\r\n\r\n{"value":"`)
  const send = (bytes: number) => client.socket.write("x".repeat(bytes))
  return { ...client, send, finish: () => client.socket.write('"}') }
}

/** A client that sends a whole body. */
const upload = async (port: number, target: string, bytes: number) => {
  const client = await begin(port, target, around(bytes))
  client.send(bytes)
  client.finish()
  return client
}

describe("bytes of request bodies", () => {
  it("are bounded over all connections: slow senders are refused, fast ones are not", async () => {
    const { gate, port } = await serve({ heldBodyBytes: 8 * MiB })
    let now = 0
    gate.tick(now)
    const slow: Array<Awaited<ReturnType<typeof begin>>> = []
    for (let count = 1; count <= 7; count++) {
      slow.push(await begin(port, "/", around(2 * MiB)))
      slow.at(-1)!.send(MiB)
      await until(() => gate.received > count * MiB)
    }
    // They continue all the time, a byte a second.
    for (let second = 0; second < 10; second++) {
      now += 1000
      gate.tick(now)
      const before = gate.received
      for (const client of slow) client.send(1)
      await until(() => gate.received === before + 7)
    }
    const quick = await upload(port, "/", 6 * MiB)
    await quick.answered()
    expect(quick.received()).toMatch(/^HTTP\/1.1 200 /)
    const refused = () => slow.filter(client => client.received() !== "")
    await until(() => refused().length >= 5)
    expect(refused().length).toBeLessThan(7)
    for (const client of refused()) {
      expect(client.received()).toMatch(/^HTTP\/1.1 503 /)
      expect(client.received()).toMatch(/retry-after: 1\r\n/i)
      expect(client.received()).toContain("There is no room for this request body")
    }
    expect(gate.received).toBeLessThanOrEqual(8 * MiB)
    for (const client of slow) client.socket.destroy()
    await until(() => gate.received === 0)
  })

  it("are released from silent senders, however much they sent before", async () => {
    const { gate, port } = await serve({ heldBodyBytes: 8 * MiB })
    gate.tick(0)
    const stalled = await begin(port, "/", around(6 * MiB))
    stalled.send(5 * MiB)
    await until(() => gate.received > 5 * MiB)
    gate.tick(5000)
    const steady = await begin(port, "/", around(5 * MiB))
    for (let count = 0; count < 5; count++) {
      steady.send(MiB)
      await until(() => steady.socket.writableLength === 0)
    }
    steady.finish()
    await until(() => steady.received() !== "" && stalled.received() !== "")
    expect(steady.received()).toMatch(/^HTTP\/1.1 200 /)
    expect(stalled.received()).toMatch(/^HTTP\/1.1 503 /)
    // Its connection continues after the rest of the body.
    stalled.send(MiB)
    stalled.finish()
    stalled.socket.write('PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 11\r\n\r\n{"value":1}')
    await until(() => stalled.received().includes("HTTP/1.1 200 "))
    expect(gate.received).toBe(0)
  })

  it("are counted until the request is answered; until then other bodies have no room", async () => {
    const { gate, port, waiting } = await serve({ heldBodyBytes: 8 * MiB })
    for (let count = 1; count <= 2; count++) {
      await upload(port, "/wait", 3_900_000)
      await until(() => waiting.length === count)
    }
    const late = await begin(port, "/", around(MiB))
    late.send(MiB)
    await late.answered()
    expect(late.received()).toMatch(/^HTTP\/1.1 503 /)
    const small = await upload(port, "/", 1)
    await small.answered()
    expect(small.received()).toMatch(/^HTTP\/1.1 200 /)
    for (const response of waiting) response.end()
    await until(() => gate.received === 0)
  })

  it("of one client alone may reach the limit of a body", async () => {
    const { gate, port } = await serve({ heldBodyBytes: MiB })
    const client = await upload(port, "/", 5 * MiB)
    await client.answered()
    expect(client.received()).toMatch(/^HTTP\/1.1 200 /)
    await until(() => gate.received === 0)
  })

  it("include the heads of requests with unfinished bodies", async () => {
    const { gate, port } = await serve({})
    const { socket } = await connect(port)
    socket.write(
      `PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n${`x-filler: ${"y".repeat(5000)}\r\n`.repeat(10)}\r\n{`
    )
    await until(() => gate.received > 50_000)
    socket.destroy()
    await until(() => gate.received === 0)
  })
})
