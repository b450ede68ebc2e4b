/**
 * The `Authorization` header of a request.
 */
import { IncomingMessage } from "node:http"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"

const name = "authorization"

/**
 * The header's value, or `undefined` where it is repeated.
 *
 * A request has it once (RFC 9110, 5.3 and 11.6.2). Node keeps the first of several, while a proxy may have checked
 * another one.
 */
export const authorizationOf = ({ headers, rawHeaders }: IncomingMessage): string | undefined => {
  const { authorization } = headers
  if (authorization === undefined) return undefined
  let count = 0
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const other = rawHeaders[at]!
    if (other.length === name.length && other.toLowerCase() === name) count++
  }
  return count > 1 ? undefined : authorization
}

/** The same for a request of @effect/platform. */
export const authorizationOfPlatform = ({
  headers,
  source
}: HttpServerRequest.HttpServerRequest): string | undefined =>
  source instanceof IncomingMessage ? authorizationOf(source) : headers.authorization
