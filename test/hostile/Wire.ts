/** Raw bytes of requests, handshakes and frames. */
import * as Net from "node:net"

/** The key that writes, and the one that only reads, of a service in dev mode. */
export const keys = { write: "dev-key", read: "dev-agent-key" }

/** The address of hostile clients. Connections are limited by address; honest clients use another. */
const address = "127.0.0.2"

/** A raw TCP connection. */
interface Raw {
  readonly socket: Net.Socket
  readonly isClosed: () => boolean
}

/** Opens a connection whose socket is paused; `signal` destroys it. */
export const open = (port: number, signal: AbortSignal): Promise<Raw> =>
  new Promise(resolve => {
    const socket = Net.connect({ port, host: "127.0.0.1", localAddress: address })
    let isClosed = false
    const raw = { socket, isClosed: () => isClosed }
    socket.pause()
    socket.on("error", () => {})
    socket.on("close", () => {
      isClosed = true
      resolve(raw)
    })
    socket.on("connect", () => resolve(raw))
    signal.addEventListener("abort", () => socket.destroy(), { once: true })
    if (signal.aborted) socket.destroy()
  })

/** A request with a credential. */
export const request = (line: string, ...headers: ReadonlyArray<string>): string =>
  [`${line} HTTP/1.1`, "Host: x", `Authorization: Bearer ${keys.read}`, ...headers, "", ""].join("\r\n")

/** A WebSocket handshake. */
export const handshake = (path: string): string =>
  request(
    `GET ${path}`,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
  )

/** A frame as a client must send it, masked with zeros. */
export const frame = (payload: string, opcode = 1): Buffer => {
  const bytes = Buffer.from(payload)
  const { length } = bytes
  const head = Buffer.alloc(length < 126 ? 2 : length < 65_536 ? 4 : 10)
  head[0] = 0x80 | opcode
  head[1] = 0x80 | (length < 126 ? length : length < 65_536 ? 126 : 127)
  if (head.length === 4) head.writeUInt16BE(length, 2)
  if (head.length === 10) head.writeBigUInt64BE(BigInt(length), 2)
  return Buffer.concat([head, Buffer.alloc(4), bytes])
}
