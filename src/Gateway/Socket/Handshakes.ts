/**
 * Decides which clients may connect, before their handshake is answered.
 */
import { type Context, Duration, Effect, Either, Option, Redacted } from "effect"
import { type ApiError, Forbidden, ServiceUnavailable, statusOf, Unauthorized } from "../../Http/ApiError.ts"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import { bearersOf, offeredBy, subprotocol } from "../../Http/HeaderFields.ts"
import { upgradeFailed } from "../../Http/WebSocket.ts"
import type { HandshakeHeaders } from "../Api.ts"
import type { Authentication, Identity } from "../Authentication.ts"
import type { Handshake } from "../Endpoints.ts"

/** How long the authentication of a client may take. */
const timeout = Duration.seconds(10)

const bearer = /^bearer +([^\s]+) *$/i

const subprotocolsOf = (headers: HandshakeHeaders) => offeredBy(headers["sec-websocket-protocol"])

/** Whether the client offers no subprotocols or ours. */
const acceptsSubprotocol = (headers: HandshakeHeaders): boolean => {
  const offered = subprotocolsOf(headers)
  return offered.length === 0 || offered.includes(subprotocol)
}

/**
 * The token of a request, or why it is refused. Two tokens are refused even if they are equal: a proxy that checks the
 * request must check the same token.
 *
 * @param authorization the header's value; `undefined` if it is repeated
 */
const tokenOf = (
  headers: HandshakeHeaders,
  authorization: string | undefined
): Either.Either<Option.Option<Redacted.Redacted>, string> => {
  const offered = subprotocolsOf(headers)
  const named = bearersOf(offered)
  if (named.length > 0 && !offered.includes(subprotocol)) {
    return Either.left(`A bearer subprotocol requires the subprotocol ${subprotocol}`)
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
    : Either.left("There must be exactly one bearer token")
}

const unauthorized = (error: string) => new Unauthorized({ error, headers: { "www-authenticate": "Bearer" } })

/** A refusal after which the same handshake may succeed. */
export const unavailable = (error: string) => new ServiceUnavailable({ error, headers: { "retry-after": "1" } })

/** The handshakes in progress. */
export class Handshakes {
  private count = 0

  constructor(
    private readonly authentication: Context.Tag.Service<Authentication>,
    private readonly draining: Pick<Context.Tag.Service<DrainingSignal>, "hasStarted">,
    /** Maximum number of handshakes. The tenant is not known before authentication, so all tenants share it. */
    private readonly limit: number
  ) {}

  /** The identity of a client that may connect, or the answer that refuses it. */
  identify(handshake: Handshake): Effect.Effect<Identity, ApiError> {
    return Effect.suspend(() => {
      this.count++
      return this.admit(handshake)
    }).pipe(
      Effect.ensuring(
        Effect.sync(() => {
          this.count--
        })
      ),
      Effect.tapError(refusal =>
        Effect.annotateLogs(Effect.logDebug("A client was refused"), {
          status: statusOf(refusal),
          reason: refusal.error
        })
      )
    )
  }

  private admit({ headers, incoming }: Handshake): Effect.Effect<Identity, ApiError> {
    return Effect.gen(this, function* () {
      if (!acceptsSubprotocol(headers)) return yield* upgradeFailed(`the subprotocol is ${subprotocol}`)
      if (this.draining.hasStarted()) return yield* unavailable("The service is shutting down")
      if (!this.authentication.admits(headers.origin, headers.host)) {
        return yield* new Forbidden({ error: "This origin may not connect" })
      }
      if (this.count > this.limit) return yield* unavailable(`${this.count} handshakes are in progress`)
      const token = tokenOf(headers, incoming.authorization)
      if (Either.isLeft(token)) return yield* unauthorized(token.left)
      const identity = yield* this.authenticate(token.right, incoming)
      // Checked last: an ordinary request shows why a handshake is refused, which browsers hide.
      if (incoming.upgradeProblem !== undefined) return yield* upgradeFailed(incoming.upgradeProblem)
      return identity
    })
  }

  private authenticate(token: Option.Option<Redacted.Redacted>, incoming: Handshake["incoming"]) {
    return this.authentication.identify(token, incoming).pipe(
      Effect.catchTags({
        Unauthorized: ({ message }) => unauthorized(message),
        Refused: ({ message }) => new Forbidden({ error: message }),
        AuthenticationUnavailable: ({ message }) => unavailable(message)
      }),
      Effect.timeoutFail({
        duration: timeout,
        onTimeout: () => unavailable("The credential could not be verified in time")
      })
    )
  }
}
