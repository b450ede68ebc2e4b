/** Which tokens and keys a handshake accepts, over real sockets. */
import { createServer } from "node:http"
import { describe, expect } from "@effect/vitest"
import { Effect, Option } from "effect"
import { exportJWK, generateKeyPair, type JWK, UnsecuredJWT } from "jose"
import { listening } from "../../Listening.ts"
import { test } from "../../Tests.ts"
import { connect, make } from "./Fixture.ts"
import { bearer, claims, secret, secretBytes, secured, sign, statusOf } from "./Tenants.ts"

/** Publishes keys, and counts how often they are asked for. */
const publish = (keys: () => ReadonlyArray<JWK> | undefined) => {
  let asked = 0
  const server = createServer((_request, response) => {
    asked++
    const current = keys()
    response.writeHead(current === undefined ? 500 : 200, { "content-type": "application/json" })
    response.end(JSON.stringify({ keys: current ?? [] }))
  })
  return Effect.map(listening(server), port => ({
    url: new URL(`http://127.0.0.1:${port}/keys?set=1`),
    asked: () => asked
  }))
}

const pair = (alg: string, kid: string) =>
  Effect.promise(async () => {
    const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true })
    return { alg, kid, privateKey, jwk: { ...(await exportJWK(publicKey)), alg, kid, use: "sig" } }
  })

describe("The handshake", () => {
  secured("a token gives access to its tenant's sessions, by header or subprotocol", function* ({ url }) {
    const token = yield* sign()
    const byHeader = yield* connect(url, bearer(token))
    const created = yield* byHeader.get("session_created", { type: "create_session", agentType: "echo" })
    expect(created.session.tenant).toBe("acme")
    const byProtocol = yield* connect(url, { protocols: ["causeway.v1", `bearer.${token}`] })
    expect(byProtocol.socket.protocol).toBe("causeway.v1")
    const { sessions } = yield* byProtocol.get("session_list", { type: "list_sessions" })
    expect(sessions.map(({ id }) => id)).toEqual([created.session.id])
    const lowerCase = yield* connect(url, { headers: { authorization: `bearer ${token}` } })
    expect(lowerCase.socket.protocol).toBe("")
  })

  secured("no credential, two of them, or another scheme is refused", function* ({ url }) {
    const token = yield* sign()
    const cases = [
      {},
      { headers: { authorization: token } },
      { headers: { authorization: `Basic ${token}` } },
      { headers: { authorization: "Bearer " } },
      { headers: { authorization: `Bearer ${token} ${token}` } },
      { protocols: ["causeway.v1"] },
      { protocols: ["causeway.v1", "bearer."] },
      { protocols: ["causeway.v1", `bearer.${token}`, `bearer.${token}x`] },
      { ...bearer(token), protocols: ["causeway.v1", `bearer.${token}`] },
      { protocols: [`bearer.${token}`, "causeway.v1", "bearer.x"] }
    ]
    for (const options of cases) expect(yield* statusOf(url, options), JSON.stringify(options)).toBe(401)
    expect(yield* statusOf(url, { protocols: [`bearer.${token}`] })).toBe(500)
    expect(yield* statusOf(url, { ...bearer(token), protocols: ["graphql-ws"] })).toBe(500)
    expect(yield* statusOf(`${url}?access_token=${token}`)).toBe(401)
    expect(yield* statusOf(url, bearer(token))).toBe(101)
  })

  secured("tokens that are unsigned, not valid now, or signed by others are refused", function* ({ url }) {
    const now = Math.floor(Date.now() / 1000)
    const { exp: _exp, ...eternal } = claims
    const good = yield* sign()
    const [header, payload, signature] = good.split(".")
    const forged = Buffer.from(JSON.stringify({ ...claims, tenant: "evil" })).toString("base64url")
    const none = new UnsecuredJWT(claims).encode()
    const tokens = {
      none,
      "None with a signature": `${Buffer.from('{"alg":"None"}').toString("base64url")}.${payload}.${signature}`,
      "an altered claim": `${header}.${forged}.${signature}`,
      "a cut signature": `${header}.${payload}.`,
      "another secret": yield* sign(claims, "HS256", new TextEncoder().encode("x".repeat(40))),
      HS512: yield* sign(claims, "HS512", new TextEncoder().encode(secret.repeat(2))),
      expired: yield* sign({ ...claims, exp: now - 1 }),
      "without end": yield* sign(eternal),
      "not yet valid": yield* sign({ ...claims, nbf: now + 600 }),
      "issued in the future": yield* sign({ ...claims, iat: now + 600 }),
      "an end that is no number": yield* sign({ ...claims, exp: "later" as never }).pipe(
        Effect.catchAllCause(() => Effect.succeed("x.y.z"))
      ),
      rubbish: "rubbish",
      dots: "..",
      long: "a".repeat(10_000)
    }
    for (const [what, token] of Object.entries(tokens)) {
      expect(yield* statusOf(url, bearer(token)), what).toBe(401)
    }
  })

  test.scopedLive("published keys of each algorithm verify, and none is accepted as the secret", function* () {
    const rsa = yield* pair("RS256", "rsa")
    const ec = yield* pair("ES256", "ec")
    const ed = yield* pair("EdDSA", "ed")
    const odd = [{ kty: "oct", k: Buffer.from(secret).toString("base64url"), kid: "oct" }, { nonsense: true } as JWK]
    const { url: keySetUrl, asked } = yield* publish(() => [rsa.jwk, ec.jwk, ed.jwk, ...(odd as ReadonlyArray<JWK>)])
    const { start } = yield* make({ authentication: { keySetUrl: Option.some(keySetUrl) } })
    const { url } = yield* start
    for (const { alg, kid, privateKey } of [rsa, ec, ed]) {
      expect(yield* statusOf(url, bearer(yield* sign(claims, alg, privateKey, kid))), alg).toBe(101)
    }
    expect(asked()).toBe(1)
    // The public key, which is not secret, as if it were the secret of HS256.
    const asSecret = new TextEncoder().encode(JSON.stringify(rsa.jwk))
    expect(yield* statusOf(url, bearer(yield* sign(claims, "HS256", asSecret, "rsa")))).toBe(401)
    expect(yield* statusOf(url, bearer(yield* sign(claims, "HS256", secretBytes, "oct")))).toBe(401)
    expect(yield* statusOf(url, bearer(yield* sign()))).toBe(401)
    const stranger = yield* pair("RS256", "stranger")
    const unknown = yield* sign(claims, "RS256", stranger.privateKey, "stranger")
    for (const _ of [1, 2, 3]) expect(yield* statusOf(url, bearer(unknown))).toBe(401)
    // An unknown key causes a fetch of the set, but not with every attempt.
    expect(asked()).toBeLessThanOrEqual(2)
    const pretender = yield* sign(claims, "RS256", stranger.privateKey, "rsa")
    expect(yield* statusOf(url, bearer(pretender))).toBe(401)
  })

  test.scopedLive("a failed fetch of keys is 503", function* () {
    const rsa = yield* pair("RS256", "rsa")
    const { url: keySetUrl } = yield* publish(() => undefined)
    const { start } = yield* make({ authentication: { keySetUrl: Option.some(keySetUrl) } })
    const { url } = yield* start
    expect(yield* statusOf(url, bearer(yield* sign(claims, "RS256", rsa.privateKey, "rsa")))).toBe(503)
  })
})
