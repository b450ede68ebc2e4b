/**
 * What a handshake says of the client: subprotocols, and the token among them or in the `Authorization` header.
 */
import { Either, Option, Redacted } from "effect"
import type { HandshakeHeaders } from "../Api.ts"

/** The subprotocol that is spoken here; a client that names others must name it too. */
export const subprotocol = "causeway.v1"

/** Precedes a token that a browser, which cannot set headers, sends as a subprotocol. */
const bearerPrefix = "bearer."

const bearer = /^bearer +([^\s]+) *$/i

const subprotocolsOf = (headers: HandshakeHeaders): ReadonlyArray<string> =>
  (headers["sec-websocket-protocol"] ?? "")
    .split(",")
    .map(part => part.trim())
    .filter(part => part !== "")

/** Whether a client that names subprotocols names the one that is spoken here. */
export const speaks = (headers: HandshakeHeaders): boolean => {
  const offered = subprotocolsOf(headers)
  return offered.length === 0 || offered.includes(subprotocol)
}

/**
 * The one token of a request, or why it is refused. Two tokens are refused even if they are equal: whatever checks a
 * request on its way, such as a proxy, must look at the token that is used here.
 *
 * @param authorization the header's value; `undefined` where it is repeated
 */
export const tokenOf = (
  headers: HandshakeHeaders,
  authorization: string | undefined
): Either.Either<Option.Option<Redacted.Redacted>, string> => {
  const offered = subprotocolsOf(headers)
  const named = offered.filter(part => part.startsWith(bearerPrefix)).map(part => part.slice(bearerPrefix.length))
  if (named.length > 0 && !offered.includes(subprotocol)) {
    return Either.left(`A bearer subprotocol comes together with ${subprotocol}`)
  }
  if (headers.authorization === undefined && named.length === 0) return Either.right(Option.none())
  if (headers.authorization !== undefined && authorization === undefined) {
    return Either.left("The Authorization header is repeated")
  }
  const headed = authorization === undefined ? undefined : bearer.exec(authorization)?.[1]
  if (authorization !== undefined && headed === undefined) {
    return Either.left("The Authorization header must be a bearer token")
  }
  const tokens = headed === undefined ? named : [headed, ...named]
  return tokens.length === 1 && tokens[0] !== ""
    ? Either.right(Option.some(Redacted.make(tokens[0]!)))
    : Either.left("There must be one bearer token, and no more")
}
