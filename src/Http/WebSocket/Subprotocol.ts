/**
 * The subprotocols of a WebSocket handshake. A browser cannot set headers there, so it sends its credential as one.
 */
import type { IncomingMessage } from "node:http"
import { authorizationOf } from "../HeaderFields.ts"

/** Our subprotocol. A client that sends its credential as a subprotocol offers ours too. */
export const subprotocol = "causeway.v1"

const bearerPrefix = "bearer."

/** What a `Sec-WebSocket-Protocol` header offers. */
export const offeredBy = (header: string | undefined): ReadonlyArray<string> =>
  (header ?? "")
    .split(",")
    .map(part => part.trim())
    .filter(part => part !== "")

/** The credentials among the subprotocols that are offered. */
export const bearersOf = (offered: ReadonlyArray<string>): ReadonlyArray<string> =>
  offered.filter(part => part.startsWith(bearerPrefix)).map(part => part.slice(bearerPrefix.length))

const base64Url = /^[\w-]+$/

/**
 * The credential of a handshake as the value of `Authorization`: that header, or the subprotocol `bearer.<base64url>`.
 * Two credentials count as none, even if they are equal: a proxy that checks the request must look at
 * the one that is used here.
 */
export const credentialOf = (request: IncomingMessage): string | undefined => {
  const { authorization, "sec-websocket-protocol": header } = request.headers
  const offered = offeredBy(header)
  const bearers = bearersOf(offered)
  if (bearers.length === 0) return authorizationOf(request)
  const [key = ""] = bearers
  const isAlone = bearers.length === 1 && authorization === undefined && offered.includes(subprotocol)
  return isAlone && base64Url.test(key) ? `Bearer ${Buffer.from(key, "base64url")}` : undefined
}
