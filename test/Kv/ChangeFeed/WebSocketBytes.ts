/** Parts of the WebSocket protocol as tests send them over TCP. */
import { connect as connectTcp } from "node:net"
import { Effect } from "effect"
import type { Served } from "./Harness.ts"

const key = "dGhlIHNhbXBsZSBub25jZQ=="

/** The text of a handshake. A header with the value `undefined` is absent. */
export const handshake = (
  changes: Readonly<Record<string, string | undefined>> = {},
  requestLine = "GET /ws HTTP/1.1"
) => {
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

/** Sends bytes over TCP, and collects the answer until the server closes the connection. */
export const exchange = (served: Served, ...parts: ReadonlyArray<string | Uint8Array>) =>
  Effect.promise(async () => {
    const socket = connectTcp(served.port, "127.0.0.1")
    const received: Array<Buffer> = []
    socket.on("data", data => received.push(data))
    socket.on("error", () => {})
    const closed = new Promise(resolve => socket.once("close", resolve))
    for (const part of parts) socket.write(part)
    await closed
    return Buffer.concat(received).toString("latin1")
  })

/** A masked client frame, with an all-zero mask. */
export const frame = (opcode: number, payload: Buffer): Buffer => {
  const length = Buffer.from([0x80 | 126, payload.length >> 8, payload.length & 255])
  return Buffer.concat([Buffer.from([0x80 | opcode]), length, Buffer.alloc(4), payload])
}
