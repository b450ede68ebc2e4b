import { connect, type Socket } from "node:net"
import { Effect, type Scope } from "effect"
import { BenchFailed } from "../BenchFailed.ts"
import { Frames } from "./Frames.ts"

/** Many WebSocket clients that only receive. */
export interface Followers {
  /** Text messages received by all of them. */
  readonly messages: () => number
  /** The messages of the first client, up to a limit; none after `stopKeeping`. */
  readonly kept: () => ReadonlyArray<string>
  readonly stopKeeping: () => void
}

/** Maximum number of stored messages. */
const maxKept = 2000

/** Concurrent handshakes. */
const concurrency = 50

/** A pong without payload, masked with zeros as a client must mask. */
const pong = Buffer.from([0x8a, 0x80, 0, 0, 0, 0])

const handshake = (path: string, key: string): string =>
  [
    `GET ${path} HTTP/1.1`,
    "host: 127.0.0.1",
    `authorization: Bearer ${key}`,
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    "\r\n"
  ].join("\r\n")

/** The address of the WebSocket, and its credential. */
export interface Place {
  readonly port: number
  readonly path: string
  readonly key: string
  readonly count: number
  /** Called with each message of each client, if that is wanted. */
  readonly onMessage?: (payload: string) => void
}

/** Opens a connection and waits for the handshake. */
const open = ({ key, path, port }: Place, frames: Frames, socketOf: (socket: Socket) => void) =>
  Effect.async<void, BenchFailed>(resume => {
    let head: string | undefined = ""
    const fail = (reason: string): void =>
      resume(new BenchFailed({ reason: `a WebSocket cannot be opened: ${reason}` }))
    const socket = connect({
      port,
      host: "127.0.0.1",
      noDelay: true,
      onread: {
        buffer: Buffer.allocUnsafe(16 * 1024),
        callback: (length, buffer) => {
          const bytes = Buffer.from(buffer.buffer, buffer.byteOffset, length)
          if (head === undefined) {
            frames.push(bytes)
            return true
          }
          head += bytes.toString("latin1")
          const end = head.indexOf("\r\n\r\n")
          if (end === -1) return true
          const rest = Buffer.from(head.slice(end + 4), "latin1")
          if (head.startsWith("HTTP/1.1 101")) resume(Effect.void)
          else fail(head.slice(0, end))
          head = undefined
          frames.push(rest)
          return true
        }
      }
    })
    socketOf(socket)
    socket.on("error", error => fail(error.message))
    socket.on("close", () => fail("the server closed it"))
    socket.on("connect", () => socket.write(handshake(path, key)))
  })

/** Connects followers until the scope closes. The count fails if the server closes one of them. */
export const make = (place: Place): Effect.Effect<Followers, BenchFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const sockets: Array<Socket> = []
    const kept: Array<string> = []
    let messages = 0
    let isKeeping = true
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const socket of sockets) socket.destroy()
      })
    )
    const one = (index: number) =>
      Effect.suspend(() => {
        let socket: Socket | undefined
        const { onMessage } = place
        const keeps = () => index === 0 && isKeeping && kept.length < maxKept
        const frames = new Frames(
          payload => {
            messages++
            onMessage?.(payload)
            if (keeps()) kept.push(payload)
          },
          () => socket?.write(pong),
          () => onMessage !== undefined || keeps()
        )
        return open(place, frames, opened => {
          socket = opened
          sockets.push(opened)
        })
      })
    yield* Effect.forEach(Array.from({ length: place.count }).keys(), one, { concurrency, discard: true })
    return {
      messages: () => messages,
      kept: () => kept,
      stopKeeping: () => {
        isKeeping = false
      }
    }
  })
