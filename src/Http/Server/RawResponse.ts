/**
 * Responses that are written on a socket directly, where node has no `ServerResponse`.
 */
import { STATUS_CODES } from "node:http"
import type { Duplex } from "node:stream"

/** An HTTP/1.1 response with a JSON error, after which the connection is closed. */
const response = (status: number, error: string): string => {
  const body = JSON.stringify({ error })
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Error"}`,
    "content-type: application/json",
    `content-length: ${Buffer.byteLength(body)}`,
    ...(status === 503 ? ["retry-after: 1"] : []),
    "connection: close",
    "",
    body
  ].join("\r\n")
}

/** Responds with an error and closes the connection. */
export const refuse = (socket: Duplex, status: number, error: string): void => {
  if (socket.writable) socket.end(response(status, error))
  else socket.destroy()
}

/** The response to bytes that node's parser rejects. */
export const problemOf = (code: string | undefined): { readonly status: number; readonly error: string } => {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return { status: 431, error: "The request line and headers are too large" }
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return { status: 413, error: "The chunk extensions are too large" }
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return { status: 408, error: "The request did not arrive in time" }
    default:
      return { status: 400, error: "The request is not valid HTTP/1.1" }
  }
}
