/** Uses of internals of `node:http` (`_http_server`, `node_http_parser.cc`). */

import { type FileHandle, open, readlink } from "node:fs/promises"
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"

/**
 * Sends `100 Continue` when the body of a request that waits for it is first read, and not before: an answer that needs
 * no body, such as 401, 413 or 415, is sent instead. Node closes the connection after such an answer, because the body
 * may arrive anyway.
 */
export const continueWhenRead = (request: IncomingMessage, response: ServerResponse): void => {
  const read = request._read
  request._read = size => {
    request._read = read
    // After its answer node reads the rest of a request.
    if (!response.headersSent) response.writeContinue()
    read.call(request, size)
  }
}

export type HttpSocket = Socket & {
  /** Without this flag, node would resume reading with the next message that it has parsed. */
  _paused?: boolean
  readonly parser?: { readonly resume: () => void } | null
}

/** Stops reading requests from a connection. */
export const pause = (socket: HttpSocket): void => {
  socket._paused = true
  socket.pause()
}

/** Undoes {@link pause}. */
export const resume = (socket: HttpSocket): void => {
  socket._paused = false
  socket.parser?.resume()
  socket.resume()
}

/** Node's parser of requests. */
interface Parser {
  readonly incoming: { readonly upgrade?: boolean | null } | null
  /** Parses bytes; returns their number, or an error. */
  readonly execute: (bytes: Buffer) => number | Error
  /** The bytes that were read last. */
  getCurrentBuffer?: () => Buffer
  readonly constructor: { readonly kOnExecute?: number }
  /** Called with the result of each parse. */
  [onExecute: number]: ((result: number | Error) => void) | undefined
}

const parserOf = (socket: Socket): Parser | undefined => {
  const parser: unknown = Reflect.get(socket, "parser")
  return typeof parser === "object" && parser !== null ? (parser as Parser) : undefined
}

/**
 * Parses the bytes after a request whose upgrade or tunnel is ignored. To be called while the request is
 * emitted.
 *
 * The parser stops after any request that offers an upgrade, because another protocol may follow. If node
 * does not upgrade, it would drop the remaining bytes and the requests in them.
 */
export const parseRest = (socket: Socket): void => {
  const parser = parserOf(socket)
  const index = parser?.constructor.kOnExecute
  const onExecute = index === undefined ? undefined : parser?.[index]
  if (parser === undefined || index === undefined || onExecute === undefined) return
  parser[index] = result => {
    parser[index] = onExecute
    const bytes = parser.getCurrentBuffer?.()
    if (typeof result !== "number" || bytes === undefined || result >= bytes.length) return onExecute(result)
    const whole = Buffer.from(bytes)
    const parsed = parseFrom(parser, whole, result)
    // A later request in these bytes may be a handshake, whose listeners get the bytes after it.
    parser.getCurrentBuffer = () => whole
    onExecute(parsed)
    delete parser.getCurrentBuffer
  }
}

/** The error for bytes that are not a request: after an upgrade the parser reports none, but merely stops. */
const noRequest = (): Error => Object.assign(new Error("Parse Error"), { code: "HPE_INVALID_METHOD", bytesParsed: 0 })

/** Parses from an offset to the end, or up to an upgrade; returns the offset, or the error there. */
const parseFrom = (parser: Parser, bytes: Buffer, from: number): number | Error => {
  let at = from
  while (at < bytes.length && parser.incoming?.upgrade !== true) {
    const result = parser.execute(bytes.subarray(at))
    if (typeof result !== "number") return result
    if (result === 0) return noRequest()
    at += result
  }
  return at
}

interface Descriptor {
  readonly _handle?: { readonly fd: number } | null
}

/** The tables of `proc_pid_net(5)`. */
const kernelTables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"]

/** The next reading waits a second for each of this number of lines: about 1 % of a processor. */
const linesPerSecond = 2500

/**
 * Milliseconds between two readings. The longest is a third of the time after which clients that do not read are cut.
 */
const pauses = { shortest: 1000, longest: 10_000 }

/** Maximum bytes that are read from all tables, about 100,000 lines. */
const maxBytes = 16 * 1024 * 1024

/** Maximum number of sockets that are looked up at a time. Slow clients beyond that may count as not reading. */
const maxSockets = 1000

const pieceBytes = 64 * 1024

/** A line of a table, with the bytes in the send queue and the inode. */
const line = /^ *\d+: \S+ \S+ \S+ ([0-9A-F]+):\S+ \S+ \S+ +\d+ +\d+ (\d+) .*\n/gm

const orNothing = <A>(promise: Promise<A>): Promise<A | undefined> => promise.catch(() => undefined)

const known = new WeakMap<Duplex, string>()

/** The inode of a socket, by which the kernel's tables identify it. */
const inodeOf = async (socket: Duplex & Descriptor): Promise<string | undefined> => {
  const inode = known.get(socket)
  const fd = socket._handle?.fd ?? -1
  if (inode !== undefined || fd < 0) return inode
  const target = await readlink(`/proc/self/fd/${fd}`)
  const found = /^socket:\[(\d+)\]$/.exec(target)?.[1]
  if (found !== undefined) known.set(socket, found)
  return found
}

/** Reads the queues for one server. */
export class KernelQueues {
  #dueAt = Number.NEGATIVE_INFINITY

  constructor(private readonly tables: ReadonlyArray<string> = kernelTables) {}

  /** Whether it is time to read again, by the length of the tables at the last reading. Monotonic milliseconds. */
  isDue(now: number): boolean {
    return now >= this.#dueAt
  }

  /** The bytes in the kernel's send queues, for each of the sockets in the tables. */
  async read(sockets: ReadonlyArray<Duplex>, now: number): Promise<ReadonlyMap<Duplex, number>> {
    const byInode = new Map<string, Duplex>()
    for (const socket of sockets.slice(0, maxSockets)) {
      const inode = await orNothing(inodeOf(socket))
      if (inode !== undefined) byInode.set(inode, socket)
    }
    const queues = new Map<Duplex, number>()
    let lines = 0
    let left = maxBytes
    for (const table of byInode.size === 0 ? [] : this.tables) {
      const handle = await orNothing(open(table))
      if (handle === undefined) continue
      try {
        for await (const piece of pieces(handle, left)) {
          left -= piece.length
          for (const [, queued = "", inode = ""] of piece.matchAll(line)) {
            lines++
            const socket = byInode.get(inode)
            if (socket !== undefined) queues.set(socket, Number.parseInt(queued, 16))
          }
        }
      } finally {
        await handle.close()
      }
    }
    const pause = (1000 * lines) / linesPerSecond
    this.#dueAt = now + Math.min(Math.max(pause, pauses.shortest), pauses.longest)
    return queues
  }
}

/** A file in pieces of whole lines, up to `most` bytes; it ends if the file cannot be read. */
async function* pieces(handle: FileHandle, most: number): AsyncGenerator<string> {
  const buffer = Buffer.allocUnsafe(pieceBytes)
  let rest = ""
  for (let left = most; left > 0; ) {
    const bytes = (await orNothing(handle.read(buffer, 0, pieceBytes, null)))?.bytesRead ?? 0
    if (bytes === 0) return
    left -= bytes
    const text = rest + buffer.toString("latin1", 0, bytes)
    const end = text.lastIndexOf("\n") + 1
    rest = text.slice(end)
    yield text.slice(0, end)
  }
}
