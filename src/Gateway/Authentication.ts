/**
 * Authentication of clients by JSON Web Tokens (RFC 7519), signed with a shared secret or a key of a published set.
 */
import type * as HttpClient from "@effect/platform/HttpClient"
import { Clock, Config, Context, Effect, Layer, Option, Redacted, Schema, type Scope } from "effect"
import type { JWTPayload, jwtVerify } from "jose"
import * as Setting from "../base/Setting.ts"
import { Auth, type Credentials, type IdentityShape, type Refusal } from "../Http/Identity.ts"
import * as Origin from "../Http/Origin.ts"
import { problemOfActor } from "../Kv/Endpoints/Operations.ts"
import { defaultActor } from "../Kv/Requests.ts"
import * as KeySet from "./Authentication/KeySet.ts"
import type { Caller } from "./Sessions.ts"

/** The client of a connection. */
export interface Identity extends Caller {
  /** When the credential expires, in epoch milliseconds. */
  readonly expiresAt: number | undefined
}

/** The credential is missing or invalid. The message is for the client. */
export class Unauthorized extends Schema.TaggedError<Unauthorized>()("Unauthorized", {
  message: Schema.String
}) {}

/** The client is authenticated but may not use the gateway. The message is for the client. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", { message: Schema.String }) {}

/** The credential cannot be verified at present. */
export class AuthenticationUnavailable extends Schema.TaggedError<AuthenticationUnavailable>()(
  "AuthenticationUnavailable",
  { message: Schema.String }
) {}

/** Authenticates clients of the gateway. `Unauthorized` and `Refused` are final; an unavailable check is retryable. */
export class Authentication extends Context.Tag("causeway/Authentication")<
  Authentication,
  {
    /** Verifies the token of a handshake, and returns the client that it identifies. */
    readonly identify: (
      token: Option.Option<Redacted.Redacted>,
      request: Credentials
    ) => Effect.Effect<Identity, Unauthorized | Refused | AuthenticationUnavailable>
    /** Whether a page of an origin may connect to a host. A client without an origin is not a browser, and is allowed. */
    readonly admits: (origin: string | undefined, host: string | undefined) => boolean
  }
>() {}

/** How tokens of clients (JWTs) are verified, and which web pages may connect. */
export interface Settings {
  /** The secret of HS256. */
  readonly secret: Option.Option<Redacted.Redacted>
  /** The URL of the public keys for RS256, ES256 and EdDSA. */
  readonly keySetUrl: Option.Option<URL>
  /** The required claims `aud` and `iss`. Not checked if absent. */
  readonly audience: Option.Option<string>
  readonly issuer: Option.Option<string>
  readonly origins: ReadonlyArray<string>
}

const claimed = (name: string, description: string): Config.Config<Option.Option<string>> =>
  Setting.declare(name, { description, allowed: "any text", default: Option.none<string>(), shown: "none" }, text =>
    Option.some(Option.some(text))
  )

/** The settings as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  secret: Setting.optionalSecret("GATEWAY_JWT_SECRET", {
    description: "Secret that signs clients' tokens (HS256), 32 bytes or more"
  }),
  keySetUrl: Setting.optionalUrl("GATEWAY_JWKS_URL", {
    description: "URL of the public keys that verify clients' tokens (RS256, ES256, EdDSA)"
  }),
  audience: claimed(
    "GATEWAY_JWT_AUDIENCE",
    "Required audience of clients' tokens (claim aud); not checked if it is not set"
  ),
  issuer: claimed("GATEWAY_JWT_ISSUER", "Required issuer of clients' tokens (claim iss); not checked if it is not set"),
  origins: Setting.declare(
    "GATEWAY_ALLOWED_ORIGINS",
    {
      description:
        "Origins of web pages that may open WebSockets, separated by commas; the service's own origin always may (in dev mode only on this machine)",
      allowed: "origins such as https://app.example.com, separated by commas",
      default: [],
      shown: "none"
    },
    Origin.parseList
  )
})

/** Every client in dev mode. */
export const developer: Identity = { tenant: "dev", actor: "dev", expiresAt: undefined }

/** Letters, digits, `.`, `_` and `-`, but neither `.` nor `..`. */
const tenantPattern = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$/

const actorBytes = 256

/** How far the clock of an issuer may be ahead. */
const skewSeconds = 60

/** Minimum bytes of an HS256 key (RFC 7518, 3.2). */
const secretBytes = 32

const unauthorized = (message: string) => new Unauthorized({ message })

/** The latest time of ECMAScript, in epoch milliseconds. */
const latestTime = 8.64e15

/** Control characters would act on the terminals and in the logs that show the name. */
const isActor = (sub: string): boolean =>
  sub !== "" && !/\p{Cc}/u.test(sub) && problemOfActor(sub, actorBytes) === undefined

/** Reads the claims of a verified token. */
const identityOf = (claims: JWTPayload, now: number): Effect.Effect<Identity, Unauthorized> => {
  const { tenant, sub, exp, iat } = claims
  if (typeof tenant !== "string" || !tenantPattern.test(tenant)) {
    return unauthorized("The token's claim tenant is missing or is not made of letters, digits, '.', '_' and '-'")
  }
  if (typeof sub !== "string" || !isActor(sub)) {
    return unauthorized("The token's claim sub is missing or cannot be an actor's name")
  }
  if (iat !== undefined && iat * 1000 > now + skewSeconds * 1000) {
    return unauthorized("The token was issued in the future")
  }
  const expiresAt = (exp ?? 0) * 1000
  if (expiresAt > latestTime) return unauthorized("The token's claim exp is not a time")
  return Effect.succeed({ tenant, actor: sub, expiresAt })
}

const reasons: Readonly<Record<string, string>> = {
  ERR_JWT_EXPIRED: "The token has expired",
  ERR_JWS_SIGNATURE_VERIFICATION_FAILED: "The token's signature is not valid",
  ERR_JOSE_ALG_NOT_ALLOWED: "The token's algorithm is not accepted"
}

const codeOf = (error: unknown): string => (error instanceof Error && "code" in error ? String(error.code) : "")

const reasonOf = (error: unknown): string => {
  const code = codeOf(error)
  if (code === "ERR_JWT_CLAIM_VALIDATION_FAILED" && error instanceof Error && "claim" in error) {
    return `The token's claim ${String(error.claim)} is missing or does not hold`
  }
  return reasons[code] ?? "The token is not valid"
}

type Key = Parameters<typeof jwtVerify>[1]

/** Verifies with the keys of the algorithm of a token, so that no key is used with another algorithm. */
type WithKey = <A>(
  header: KeySet.Header,
  verified: (key: Key) => Effect.Effect<A, Unauthorized | KeySet.WrongKey>
) => Effect.Effect<A, Unauthorized | AuthenticationUnavailable>

const wrongKey = () => unauthorized("The token's signature is not valid")

const verify =
  (withKey: WithKey, { audience, issuer }: Pick<Settings, "audience" | "issuer">) =>
  (token: string): Effect.Effect<Identity, Unauthorized | AuthenticationUnavailable> =>
    Effect.gen(function* () {
      const jose = yield* KeySet.jose
      const { alg = "", kid } = yield* Effect.try({
        try: () => jose.decodeProtectedHeader(token),
        catch: () => unauthorized("The token is not a signed JSON Web Token")
      })
      const verified = (key: Key) =>
        Effect.flatMap(Clock.currentTimeMillis, now =>
          Effect.tryPromise({
            try: () =>
              jose.jwtVerify(token, key, {
                algorithms: [alg],
                requiredClaims: ["exp"],
                currentDate: new Date(now),
                ...(Option.isSome(audience) ? { audience: audience.value } : {}),
                ...(Option.isSome(issuer) ? { issuer: issuer.value } : {})
              }),
            catch: error =>
              codeOf(error) === "ERR_JWS_SIGNATURE_VERIFICATION_FAILED"
                ? new KeySet.WrongKey()
                : unauthorized(reasonOf(error))
          })
        )
      const { payload } = yield* withKey({ alg, kid: typeof kid === "string" ? kid : undefined }, verified)
      return yield* identityOf(payload, yield* Clock.currentTimeMillis)
    })

const make = (settings: Settings): Effect.Effect<WithKey, never, HttpClient.HttpClient | Scope.Scope> =>
  Effect.gen(function* () {
    const secret = Option.map(settings.secret, secret => new TextEncoder().encode(Redacted.value(secret)))
    const keys = Option.isSome(settings.keySetUrl) ? yield* KeySet.make(settings.keySetUrl.value) : undefined
    return (header, verified) => {
      if (header.alg === "HS256" && Option.isSome(secret)) {
        return Effect.catchTag(verified(secret.value), "WrongKey", wrongKey)
      }
      if (KeySet.algorithms.includes(header.alg) && keys !== undefined) {
        return Effect.catchTags(keys.use(header, verified), {
          WrongKey: wrongKey,
          KeyUnknown: () => unauthorized("The token's key is not among those that are published"),
          KeySetUnavailable: () =>
            new AuthenticationUnavailable({
              message: "The keys that verify tokens cannot be fetched at present"
            })
        })
      }
      return unauthorized("The token's algorithm is not accepted")
    }
  })

/** Whether there is nothing to verify tokens with. */
const acceptsNone = ({ keySetUrl, secret }: Pick<Settings, "keySetUrl" | "secret">): boolean =>
  Option.isNone(secret) && Option.isNone(keySetUrl)

/** Warnings about settings that refuse all clients or are insecure. */
export const warnings = ({ audience, issuer, keySetUrl, secret }: Settings): ReadonlyArray<string> => [
  ...(acceptsNone({ keySetUrl, secret })
    ? ["Neither GATEWAY_JWT_SECRET nor GATEWAY_JWKS_URL is set: no client can open the WebSocket"]
    : []),
  ...(Option.exists(secret, secret => Buffer.byteLength(Redacted.value(secret)) < secretBytes)
    ? [`GATEWAY_JWT_SECRET has fewer than ${secretBytes} bytes and may be guessed`]
    : []),
  ...(Option.exists(secret, secret => Redacted.value(secret).trim() !== Redacted.value(secret))
    ? ["GATEWAY_JWT_SECRET begins or ends with white space, which is part of the secret"]
    : []),
  ...(Option.exists(keySetUrl, ({ protocol, hostname }) => protocol === "http:" && !Origin.isLoopback(hostname))
    ? ["GATEWAY_JWKS_URL is not https: the keys can be replaced on the network"]
    : []),
  ...(acceptsNone({ keySetUrl, secret })
    ? []
    : [
        ...(Option.isNone(audience)
          ? ["GATEWAY_JWT_AUDIENCE is not set: tokens for other services are accepted too"]
          : []),
        ...(Option.isNone(issuer) ? ["GATEWAY_JWT_ISSUER is not set: tokens of any issuer are accepted"] : [])
      ])
]

/** Verifies tokens by the settings. A key set is fetched by the `HttpClient` of the context, and cached. */
export const layer = (settings: Settings): Layer.Layer<Authentication, never, HttpClient.HttpClient> =>
  Layer.scoped(
    Authentication,
    Effect.gen(function* () {
      const admits = Origin.admits(settings.origins)
      if (acceptsNone(settings)) {
        // No other token would help: the client gets the reason, and not what is wrong with its token.
        const reason = "The service accepts no tokens: neither GATEWAY_JWT_SECRET nor GATEWAY_JWKS_URL is set"
        return { identify: () => Effect.fail(unauthorized(reason)), admits }
      }
      const identify = verify(yield* make(settings), settings)
      return {
        identify: Option.match({
          onNone: () => Effect.fail(unauthorized("A bearer token is required")),
          onSome: token => identify(Redacted.value(token))
        }),
        admits
      }
    })
  )

/** Dev mode: tokens are not checked. Web pages may connect from this machine and from the allowed origins. */
export const layerDev = ({ origins }: Pick<Settings, "origins">): Layer.Layer<Authentication> =>
  Layer.sync(Authentication, () => {
    const admits = Origin.admitsLoopback(origins)
    return {
      // A page of any other name could send requests by DNS rebinding.
      identify: (_, { headers: { host, origin } }) =>
        admits(origin?.toString(), host?.toString())
          ? Effect.succeed(developer)
          : new Refused({ message: "This origin may not connect" }),
      admits
    }
  })

/** Makes the gateway's identity of a host's. It requires a tenant and write access. */
const identityOfHost = ({
  access,
  actor = defaultActor,
  expiresAt,
  tenant
}: IdentityShape): Effect.Effect<Identity, Refused> => {
  if (tenant === undefined) return new Refused({ message: "The credential belongs to no tenant" })
  if (access !== "write") return new Refused({ message: "The credential only reads" })
  const problem = tenantPattern.test(tenant)
    ? problemOfActor(actor, actorBytes)
    : `tenant ${JSON.stringify(tenant)} is not made of letters, digits, '.', '_' and '-'`
  return problem === undefined
    ? Effect.succeed({ tenant, actor, expiresAt })
    : Effect.dieMessage(`The identity's ${problem}`)
}

const refusalOfHost = (refusal: Refusal) => {
  const { error: message } = refusal
  switch (refusal._tag) {
    case "Unauthorized":
      return unauthorized(message)
    case "Forbidden":
      return new Refused({ message })
    case "ServiceUnavailable":
      return new AuthenticationUnavailable({ message })
  }
}

/** Authenticates clients like every other request of the host, with `Auth`. */
export const layerIdentity = ({ origins }: Pick<Settings, "origins">): Layer.Layer<Authentication, never, Auth> =>
  Layer.effect(
    Authentication,
    Effect.map(Auth, auth => ({
      identify: (token, { headers, method, remoteAddress, url }) =>
        Effect.suspend(() => {
          const credential = Option.getOrUndefined(Option.map(token, token => `Bearer ${Redacted.value(token)}`))
          return auth.identify({ credential, headers, method, remoteAddress, url })
        }).pipe(Effect.mapError(refusalOfHost), Effect.flatMap(identityOfHost)),
      admits: Origin.admits(origins)
    }))
  )
