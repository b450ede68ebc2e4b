/** Clients of two tenants at one gateway, and what it answers them. */
import { expect } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { Answer } from "../../src/Gateway/Protocol.ts"
import { type Asked, type Client, codeOf, connect, make, type Options } from "./SocketFixture.ts"
import { bearer, claims, sign, withSecret } from "./SocketTokens.ts"

/** A gateway with two tenants' clients. */
export const twoTenants = (options: Options = {}) =>
  Effect.gen(function* () {
    const { simulator, start } = yield* make({ ...options, authentication: withSecret })
    const { url } = yield* start
    const connectAs = (tenant: string) =>
      Effect.flatMap(sign({ ...claims, tenant, sub: `user-of-${tenant}` }), token => connect(url, bearer(token)))
    return { simulator, connectAs, acme: yield* connectAs("acme"), evil: yield* connectAs("evil") }
  })

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
