/** Tokens of clients and what a handshake with them is answered; clients of two tenants at one gateway. */

import { expect, it } from "@effect/vitest"
import { Effect, Option, Redacted, Schema } from "effect"
import { type JWTPayload, SignJWT } from "jose"
import type * as Authentication from "../../../src/Gateway/Authentication.ts"
import { Answer } from "../../../src/Gateway/Protocol.ts"
import { given } from "../../Given.ts"
import { type Asked, type Client, codeOf, connect, makeStarted, type Options } from "./Fixture.ts"

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

/** A gateway that accepts tokens signed with the secret, and clients of tenants. */
export const makeTenants = (options: Options = {}) =>
  Effect.map(makeStarted({ ...options, authentication: withSecret }), started => ({
    ...started,
    connectAs: (tenant: string) =>
      Effect.flatMap(sign({ ...claims, tenant, sub: `user-of-${tenant}` }), token =>
        connect(started.url, bearer(token))
      )
  }))

/** The same with two tenants' clients. */
export const twoTenants = (options?: Options) =>
  Effect.gen(function* () {
    const made = yield* makeTenants(options)
    return { ...made, acme: yield* made.connectAs("acme"), evil: yield* made.connectAs("evil") }
  })

/** Tests of a gateway that accepts tokens signed with the secret, by the real clock. */
export const secured = given(it.scopedLive, () => makeStarted({ authentication: withSecret }))

/** Tests with two tenants' clients, by the real clock. */
export const shared = given(it.scopedLive, twoTenants)

const isAnswer = Schema.is(Answer)

/** The answer to a request, which must have the schema of one. */
export const ask = (client: Client, request: Asked) =>
  Effect.map(client.ask(request), answer => {
    expect(isAnswer(answer), JSON.stringify(answer)).toBe(true)
    return answer
  })

/** The codes of the answers to requests, one after the other. */
export const codes = (client: Client, requests: ReadonlyArray<Asked>) =>
  Effect.forEach(requests, request => Effect.map(ask(client, request), codeOf))
