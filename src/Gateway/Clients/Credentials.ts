/**
 * The credentials of requests and handshakes, and the answers to clients that are refused.
 */
import { type Context, Duration, Effect, Either, Layer, Option, Redacted } from "effect"
import { Forbidden, ServiceUnavailable, Unauthorized } from "../../Http/ApiError.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import { bearersOf, subprotocol } from "../../Http/HeaderFields.ts"
import type { Credentials, Refusal } from "../../Http/Identity.ts"
import { Authentication, type Identity } from "../Authentication.ts"
import { Access } from "./Access.ts"

/** How long the authentication of a client may take. */
const timeout = Duration.seconds(10)

const bearer = /^bearer +([^\s]+) *$/i

/**
 * The token of a request, or why it is refused. Two tokens are refused even if they are equal: a proxy that checks the
 * request must check the same token.
 *
 * @param authorization the header's value; `undefined` if it is absent or repeated
 * @param isPresent whether there is such a header
 * @param offered the subprotocols that a WebSocket offers
 */
export const tokenOf = (
  authorization: string | undefined,
  isPresent: boolean,
  offered: ReadonlyArray<string> = []
): Either.Either<Option.Option<Redacted.Redacted>, string> => {
  const named = bearersOf(offered)
  if (named.length > 0 && !offered.includes(subprotocol)) {
    return Either.left(`A bearer subprotocol requires the subprotocol ${subprotocol}`)
  }
  if (!isPresent && named.length === 0) return Either.right(Option.none())
  if (isPresent && authorization === undefined) return Either.left("The Authorization header is repeated")
  const headed = authorization === undefined ? undefined : bearer.exec(authorization)?.[1]
  if (authorization !== undefined && headed === undefined) {
    return Either.left("The Authorization header must be a bearer token")
  }
  const tokens = headed === undefined ? named : [headed, ...named]
  return tokens.length === 1 && tokens[0] !== ""
    ? Either.right(Option.some(Redacted.make(tokens[0]!)))
    : Either.left("There must be exactly one bearer token")
}

const unauthorized = (error: string) => new Unauthorized({ error, headers: { "www-authenticate": "Bearer" } })

/** Identifies a client by the token of its request. */
export const identify = (
  authentication: Context.Tag.Service<Authentication>,
  token: ReturnType<typeof tokenOf>,
  request: Credentials
): Effect.Effect<Identity, Refusal> =>
  Either.isLeft(token)
    ? unauthorized(token.left)
    : authentication.identify(token.right, request).pipe(
        Effect.catchTags({
          Unauthorized: ({ message }) => unauthorized(message),
          Refused: ({ message }) => new Forbidden({ error: message }),
          AuthenticationUnavailable: ({ message }) => ServiceUnavailable.later(message)
        }),
        Effect.timeoutFail({
          duration: timeout,
          onTimeout: () => ServiceUnavailable.later("The credential could not be verified in time")
        })
      )

/** A client that web pages of this origin may not be. */
export const foreignOrigin = () => new Forbidden({ error: "This origin may not connect" })

/**
 * The sender of a request. A browser sends the request of any page, perhaps with cookies, but a token only for pages that
 * `HTTP_ALLOWED_ORIGINS` names.
 */
const admit =
  (authentication: Context.Tag.Service<Authentication>) =>
  (request: Incoming): Effect.Effect<Identity & { readonly access: "write" }, Refusal> => {
    const { authorization, headers, host, origin } = request
    const isPresent = headers.authorization !== undefined
    if (!isPresent && !authentication.admits(origin, host)) return foreignOrigin()
    return Effect.map(identify(authentication, tokenOf(authorization, isPresent), request), identity => ({
      access: "write",
      ...identity
    }))
  }

/** Identifies the clients of HTTP requests. */
export const layerAccess: Layer.Layer<Access, never, Authentication> = Layer.effect(
  Access,
  Effect.map(Authentication, authentication => ({ admit: admit(authentication) }))
)
