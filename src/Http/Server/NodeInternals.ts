/**
 * Uses of internals of `node:http` (`_http_server`, `node_http_parser.cc`).
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"

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

/** A connection of node's HTTP server. */
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
