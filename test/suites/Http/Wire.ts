/** A bare TCP connection, for requests that no HTTP client would send. */
import { connect, type Socket } from "node:net"
import { Effect, type Scope } from "effect"
import type { Answer } from "./Client.ts"

/** What HTTP/1.1 says about where a body ends. */
type Extent = { readonly kind: "length"; readonly length: number } | { readonly kind: "chunked" }

interface Head {
  readonly status: number
  readonly headers: Record<string, string>
  readonly length: number
}

const headOf = (bytes: Buffer): Head | undefined => {
  const end = bytes.indexOf("\r\n\r\n")
  if (end === -1) return undefined
  const [statusLine = "", ...lines] = bytes.toString("latin1", 0, end).split("\r\n")
  const headers: Record<string, string> = {}
  for (const line of lines) {
    const colon = line.indexOf(":")
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim()
  }
  return { status: Number(statusLine.split(" ")[1]), headers, length: end + 4 }
}

const extentOf = ({ status, headers }: Head): Extent => {
  if (status < 200 || status === 204 || status === 304) return { kind: "length", length: 0 }
  if (headers["transfer-encoding"] === "chunked") return { kind: "chunked" }
  return { kind: "length", length: Number(headers["content-length"] ?? 0) }
}

interface Taken {
  readonly body: Buffer
  readonly rest: Buffer
}

const takeChunked = (bytes: Buffer): Taken | undefined => {
  const parts: Array<Buffer> = []
  for (let at = 0; ; ) {
    const lineEnd = bytes.indexOf("\r\n", at)
    if (lineEnd === -1) return undefined
    const size = Number.parseInt(bytes.toString("latin1", at, lineEnd), 16)
    const start = lineEnd + 2
    if (bytes.length < start + size + 2) return undefined
    parts.push(bytes.subarray(start, start + size))
    at = start + size + 2
    if (size === 0) return { body: Buffer.concat(parts), rest: bytes.subarray(at) }
  }
}

const takeAnswer = (bytes: Buffer): { readonly answer: Answer; readonly rest: Buffer } | undefined => {
  const head = headOf(bytes)
  if (head === undefined) return undefined
  const behind = bytes.subarray(head.length)
  const extent = extentOf(head)
  const taken: Taken | undefined =
    extent.kind === "chunked"
      ? takeChunked(behind)
      : behind.length < extent.length
        ? undefined
        : { body: behind.subarray(0, extent.length), rest: behind.subarray(extent.length) }
  if (taken === undefined) return undefined
  const { body, rest } = taken
  return {
    answer: { status: head.status, headers: head.headers, bytes: body, text: body.toString("utf8") },
    rest
  }
}

/** One connection. */
export class Wire {
  private received: Buffer = Buffer.alloc(0)
  private ended = false
  private wake: () => void = () => undefined

  constructor(private readonly socket: Socket) {
    socket.on("data", (chunk: Buffer) => {
      this.received = Buffer.concat([this.received, chunk])
      this.wake()
    })
    const end = (): void => {
      this.ended = true
      this.wake()
    }
    socket.on("end", end)
    socket.on("error", end)
    socket.on("close", end)
  }

  /** Sends bytes as they are; text goes out as Latin-1. */
  send(...parts: ReadonlyArray<string | Uint8Array>): Effect.Effect<void> {
    return Effect.sync(() => {
      for (const part of parts) this.socket.write(typeof part === "string" ? Buffer.from(part, "latin1") : part)
    })
  }

  /** Sends bytes and waits until the kernel has taken them, or the connection is gone. */
  sendAll(bytes: Uint8Array): Effect.Effect<void> {
    return Effect.async(resume => {
      this.socket.write(bytes, () => resume(Effect.void))
    })
  }

  /** The next answer, or `undefined` where the server ends the connection instead. */
  readonly answer: Effect.Effect<Answer | undefined> = this.when(() => {
    const taken = takeAnswer(this.received)
    if (taken === undefined) return this.ended ? Effect.succeed(undefined) : undefined
    this.received = taken.rest
    return Effect.succeed(taken.answer)
  })

  /** The next answer where it answers a HEAD, and so has no body whatever its headers say. */
  readonly head: Effect.Effect<Answer | undefined> = this.when(() => {
    const head = headOf(this.received)
    if (head === undefined) return this.ended ? Effect.succeed(undefined) : undefined
    this.received = this.received.subarray(head.length)
    return Effect.succeed({ status: head.status, headers: head.headers, bytes: Buffer.alloc(0), text: "" })
  })

  /** Waits until the server ends the connection; gives what it still sent. */
  readonly closed: Effect.Effect<Buffer> = this.when(() => (this.ended ? Effect.succeed(this.received) : undefined))

  /** Looks now and whenever something happens on the connection, until there is a result. */
  private when<A>(look: () => Effect.Effect<A> | undefined): Effect.Effect<A> {
    return Effect.async(resume => {
      this.wake = () => {
        const result = look()
        if (result === undefined) return
        this.wake = () => undefined
        resume(result)
      }
      this.wake()
    })
  }

  /** Says that nothing more will be sent. */
  readonly finish: Effect.Effect<void> = Effect.sync(() => this.socket.end())

  /** Closes the connection, which the server sees as the end of the requests. */
  readonly cut: Effect.Effect<void> = Effect.sync(() => this.socket.destroy())

  /** Resets the connection. */
  readonly reset: Effect.Effect<void> = Effect.sync(() => void this.socket.resetAndDestroy())
}

/** Connects; the connection ends with the scope. */
export const open = (port: number): Effect.Effect<Wire, Error, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.async<Socket, Error>(resume => {
        const socket = connect({ host: "127.0.0.1", port, noDelay: true })
        socket.once("connect", () => resume(Effect.succeed(socket)))
        socket.once("error", error => resume(Effect.fail(error)))
      }),
      socket => Effect.sync(() => socket.destroy())
    ),
    socket => new Wire(socket)
  )
