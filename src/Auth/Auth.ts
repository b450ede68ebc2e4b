/**
 * Authentication of requests to the key-value endpoints, by API keys.
 */
import { timingSafeEqual } from "node:crypto"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Config, Context, Effect, Layer, Option, Redacted } from "effect"
import { Forbidden, Unauthorized } from "../Http/ApiError.ts"
import type { Guard } from "../Http/Endpoints.ts"
import { authorizationOfPlatform } from "../Http/HeaderFields.ts"
import { handshakeOf } from "../Http/WebSocket/Handshake.ts"
import { credentialOf } from "../Http/WebSocket/Subprotocol.ts"
import * as Setting from "../Setting.ts"
import { ReadAccess, WriteAccess } from "./Api.ts"

/** The permission of a credential. */
export type Access = "read" | "write"

/** Tells what a request may do. */
export class Auth extends Context.Tag("causeway/Auth")<
  Auth,
  {
    /** The permission of an `Authorization` header, or `undefined`. */
    readonly accessOf: (authorization: string | undefined) => Access | undefined
  }
>() {}

/** The two credentials. An absent or empty one matches nothing. */
export interface Keys {
  /** Reads and writes. */
  readonly write: Option.Option<Redacted.Redacted>
  /** Only reads. */
  readonly read: Option.Option<Redacted.Redacted>
}

/** The credentials as configuration variables. */
export const config: Config.Config<Keys> = Config.all({
  write: Setting.optionalCredential("KV_API_KEY", {
    description: "Credential that reads and writes; required outside dev mode",
    shown: "none"
  }),
  read: Setting.optionalCredential("KV_AGENT_API_KEY", {
    description: "Credential that only reads; there is none when empty",
    shown: "none"
  })
})

/** A bearer header (RFC 6750); the scheme is case-insensitive (RFC 9110, 11.1). */
const bearer = /^bearer +([^\s]+) *$/i

/**
 * Compares in constant time. The buffers that are compared always have the length of the key; whether the lengths agree
 * is checked afterwards.
 */
const matcher = (key: Option.Option<Redacted.Redacted>): ((token: string) => boolean) => {
  const expected = Buffer.from(Option.match(key, { onNone: () => "", onSome: Redacted.value }))
  if (expected.length === 0) return () => false
  const given = Buffer.alloc(expected.length)
  return token => {
    const length = Buffer.byteLength(token)
    const written = given.write(token)
    // `write` omits a character that does not fit as a whole.
    given.fill(0, written)
    return timingSafeEqual(given, expected) && length === expected.length
  }
}

/** Authenticates by the keys. */
export const make = (keys: Keys): Context.Tag.Service<Auth> => {
  const mayWrite = matcher(keys.write)
  const mayRead = matcher(keys.read)
  return {
    accessOf: authorization => {
      const token = authorization === undefined ? undefined : bearer.exec(authorization)?.[1]
      if (token === undefined) return undefined
      const [writes, reads] = [mayWrite(token), mayRead(token)]
      return writes ? "write" : reads ? "read" : undefined
    }
  }
}

/** Authenticates by the keys. */
export const layer = (keys: Keys): Layer.Layer<Auth> => Layer.succeed(Auth, make(keys))

/** The error for a request that may not read, or `undefined`. */
const refusalToRead = (access: Access | undefined): Unauthorized | undefined =>
  access === undefined ? Unauthorized.answer() : undefined

/** The error for a request that may not write, or `undefined`. */
const refusalToWrite = (access: Access | undefined): Unauthorized | Forbidden | undefined =>
  access === "read" ? new Forbidden({ error: "Forbidden" }) : refusalToRead(access)

const admit = <E>(auth: typeof Auth.Service, refusal: (access: Access | undefined) => E | undefined) =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, request => {
    const handshake = handshakeOf(request)
    const credential = handshake === undefined ? authorizationOfPlatform(request) : credentialOf(handshake.request)
    const refused = refusal(auth.accessOf(credential))
    return refused === undefined ? Effect.void : Effect.fail(refused)
  })

/** The middlewares as `Http/Edge` runs them. */
export const guards: Effect.Effect<ReadonlyArray<Guard>, never, Auth> = Effect.map(Auth, auth => [
  { key: ReadAccess.key, contains: [], refusal: header => refusalToRead(auth.accessOf(header)) },
  { key: WriteAccess.key, contains: [ReadAccess.key], refusal: header => refusalToWrite(auth.accessOf(header)) }
])

/** The middlewares as @effect/platform runs them. */
export const middlewares: Layer.Layer<ReadAccess | WriteAccess, never, Auth> = Layer.mergeAll(
  // The decoded token is not used: the platform's decoder removes seven characters whatever the scheme.
  Layer.effect(
    ReadAccess,
    Effect.map(Auth, auth => ({ bearer: () => admit(auth, refusalToRead) }))
  ),
  Layer.effect(
    WriteAccess,
    Effect.map(Auth, auth => admit(auth, refusalToWrite))
  )
)
