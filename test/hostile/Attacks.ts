/** One hostile client of each kind. Each runs until its signal is aborted. */
import type { Socket } from "node:net"
import { frame, handshake, keys, open, request } from "./Wire.ts"

/** Starts an attack; the promise resolves once it is under way. */
export type Attack = (port: number, signal: AbortSignal, strength: number) => Promise<void>

const times = (count: number) => Array.from({ length: Math.ceil(count) }, (_, index) => index)

const pause = () => new Promise(resolve => setImmediate(resolve))

/** Connections that send something and never read. */
const neverReading =
  (count: number, bytes: string): Attack =>
  async (port, signal, strength) => {
    for (const _ of times(count * strength)) {
      const { socket } = await open(port, signal)
      socket.write(bytes)
    }
  }

/** Repeats something on connections of its own; a closed connection is replaced. */
const again =
  (count: number, send: (socket: Socket, turn: number) => void, reads = true): Attack =>
  async (port, signal, strength) => {
    const one = async () => {
      for (let turn = 0; !signal.aborted; turn++) {
        const { isClosed, socket } = await open(port, signal)
        if (reads) socket.resume()
        send(socket, turn)
        // Back-pressure: the attacker's own memory must stay bounded.
        while (!signal.aborted && !isClosed()) {
          await pause()
          if (socket.writableLength === 0) send(socket, ++turn)
        }
      }
    }
    for (const _ of times(count * strength)) void one()
    await pause()
  }

const json = (line: string, body: string) =>
  request(line, "Content-Type: application/json", `Content-Length: ${Buffer.byteLength(body)}`).replace(
    /Bearer .*/,
    `Bearer ${keys.write}\r`
  ) + body

const put = "PUT /api/v1/kv/hostile/k"

const chunked = (line: string) =>
  request(line, "Content-Type: application/json", "Transfer-Encoding: chunked").replace(
    /Bearer .*/,
    `Bearer ${keys.write}\r`
  )

const big = "/api/v1/kv/big"

export const attacks: Readonly<Record<string, Attack>> = {
  "streams that are never read": neverReading(20, request("GET /api/v1/changes/stream?after=0&limit=1000")),
  "polls that are never read": neverReading(20, request("GET /api/v1/changes?after=0&limit=1000").repeat(8)),
  "large entries, pipelined and never read": neverReading(15, request(`GET ${big}/k1`).repeat(100)),
  "followers on /changes/ws that are never read": neverReading(20, handshake("/api/v1/changes/ws?after=0&limit=1000")),
  "heads that never end": again(100, socket => {
    if (socket.bytesWritten === 0) socket.write("GET / HTTP/1.1\r\nHost: x\r\n")
    else socket.write("x-slow: 1\r\n")
  }),
  "bodies that never end": again(100, socket => {
    if (socket.bytesWritten === 0) socket.write(chunked(put))
    else socket.write("1\r\n[\r\n")
  }),
  "bodies in chunks of a byte": again(4, socket => {
    if (socket.bytesWritten === 0) socket.write(chunked(put))
    else socket.write("1\r\n1\r\n".repeat(10_000))
  }),
  "JSON of brackets": again(4, socket => socket.write(json(put, "[".repeat(4 * 1024 * 1024)))),
  "floods of headers": again(8, socket =>
    socket.write(request("GET /api/v1/ready", ...times(2500).map(index => `x-h${index}: 1`)))
  ),
  "floods of connections": async (port, signal, strength) => {
    const one = async () => {
      while (!signal.aborted) await open(port, signal)
    }
    for (const _ of times(8 * strength)) void one()
    await pause()
  },
  "whole lists over a writer": async (port, signal, strength) => {
    await neverReading(4, request(`GET ${big}`))(port, signal, strength)
    await again(2, (socket, turn) =>
      socket.write(json(`PUT ${big}/w${turn % 8}`, `{"value":"${"y".repeat(300_000)}"}`))
    )(port, signal, strength)
  },
  "floods of frames on /ws": again(8, (socket, turn) => {
    if (socket.bytesWritten === 0) socket.write(handshake("/ws"))
    else
      socket.write(
        frame(JSON.stringify({ type: "ping", id: String(turn) }))
          .toString("latin1")
          .repeat(50),
        "latin1"
      )
  }),
  "floods of frames on /changes/ws": again(8, socket => {
    if (socket.bytesWritten === 0) socket.write(handshake("/api/v1/changes/ws"))
    else for (const _ of times(100)) socket.write(frame("x".repeat(4000)))
  }),
  "frames that are too large": again(8, socket => {
    if (socket.bytesWritten === 0) socket.write(handshake("/ws"))
    else socket.write(frame("[".repeat(2 * 1024 * 1024)))
  }),
  "floods of list_sessions": again(
    8,
    (socket, turn) => {
      if (socket.bytesWritten === 0) socket.write(handshake("/ws"))
      else for (const index of times(60)) socket.write(frame(`{"type":"list_sessions","id":"${turn}-${index}"}`))
    },
    false
  ),
  "whole lists that are never read": neverReading(15, request(`GET ${big}`).repeat(4))
}
