/** Tokens of clients, and what a handshake with them is answered. */
import { expect } from "@effect/vitest"
import { Effect, Option, Redacted } from "effect"
import { type JWTPayload, SignJWT } from "jose"
import type * as Authentication from "../../src/Gateway/Authentication.ts"
import { connect } from "./SocketFixture.ts"

export const secret = "a secret of thirty-two bytes or more"

export const secretBytes = new TextEncoder().encode(secret)

export const claims: JWTPayload = { tenant: "acme", sub: "alice", exp: Math.floor(Date.now() / 1000) + 3600 }

/** A token, signed with the secret unless another key is given. */
export const sign = (
  payload: JWTPayload = claims,
  alg = "HS256",
  key: Parameters<SignJWT["sign"]>[0] = secretBytes,
  kid?: string
) => Effect.promise(() => new SignJWT(payload).setProtectedHeader(kid === undefined ? { alg } : { alg, kid }).sign(key))

/** Settings of a gateway that accepts tokens signed with the secret. */
export const withSecret: Partial<Authentication.Settings> = { secret: Option.some(Redacted.make(secret)) }

/** The status of a refused handshake, 101 where it went through. */
export const statusOf = (url: string, options: Parameters<typeof connect>[1] = {}) =>
  Effect.scoped(
    Effect.match(connect(url, options), {
      onSuccess: () => 101,
      onFailure: ({ status, error }) => {
        expect(error).not.toBe("")
        return status
      }
    })
  )

export const bearer = (token: string) => ({ headers: { authorization: `Bearer ${token}` } })
