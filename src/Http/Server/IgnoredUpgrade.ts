import type { Socket } from "node:net"

/** Node's parser of requests, as far as it is needed here (`_http_server`, `node_http_parser.cc`). */
interface Parser {
  readonly incoming: { readonly upgrade?: boolean | null } | null
  /** Parses bytes; returns how many, or an error. */
  readonly execute: (bytes: Buffer) => number | Error
  /** The bytes that were read last; there while what follows a parse is done. */
  getCurrentBuffer?: () => Buffer
  readonly constructor: { readonly kOnExecute?: number }
  /** Called behind each parse with its result. */
  [onExecute: number]: ((result: number | Error) => void) | undefined
}

const parserOf = (socket: Socket): Parser | undefined => {
  const parser: unknown = Reflect.get(socket, "parser")
  return typeof parser === "object" && parser !== null ? (parser as Parser) : undefined
}

/**
 * Sees to it that the bytes behind a request are parsed whose offer of an upgrade, or of a tunnel, is passed over. To be called while
 * the request is announced.
 *
 * The parser stops behind any request that offers an upgrade, since what follows may be another protocol. Where node
 * does not upgrade, it drops the rest of what was read, and with it the requests sent behind.
 */
export const parseOn = (socket: Socket): void => {
  const parser = parserOf(socket)
  const index = parser?.constructor.kOnExecute
  const onExecute = index === undefined ? undefined : parser?.[index]
  if (parser === undefined || index === undefined || onExecute === undefined) return
  parser[index] = result => {
    parser[index] = onExecute
    const bytes = parser.getCurrentBuffer?.()
    if (typeof result !== "number" || bytes === undefined || result >= bytes.length) return onExecute(result)
    const whole = Buffer.from(bytes)
    const parsed = parseRest(parser, whole, result)
    // A later request of these may be a handshake, whose listeners get what lies behind it.
    parser.getCurrentBuffer = () => whole
    onExecute(parsed)
    delete parser.getCurrentBuffer
  }
}

/** Bytes that begin no request. Behind an upgrade the parser itself does not call that an error: it merely stops. */
const noRequest = (): Error => Object.assign(new Error("Parse Error"), { code: "HPE_INVALID_METHOD", bytesParsed: 0 })

/** Parses from a place to the end, or up to an upgrade; returns the place, or the error there. */
const parseRest = (parser: Parser, bytes: Buffer, from: number): number | Error => {
  let at = from
  while (at < bytes.length && parser.incoming?.upgrade !== true) {
    const result = parser.execute(bytes.subarray(at))
    if (typeof result !== "number") return result
    if (result === 0) return noRequest()
    at += result
  }
  return at
}
