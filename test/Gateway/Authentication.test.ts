/** Which tokens are good, with a key server that is made up and a clock of the test's. */
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Exit, Fiber, Layer, Option, Redacted, TestClock } from "effect"
import { exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from "jose"
import * as Authentication from "../../src/Gateway/Authentication.ts"
import { test } from "../Tests.ts"
import { until } from "./Socket/Fixture.ts"

const claims: JWTPayload = { tenant: "acme", sub: "alice", exp: 100_000 }

const pair = (alg: string, kid?: string) =>
  Effect.promise(async () => {
    const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true })
    const jwk: JWK = { ...(await exportJWK(publicKey)), alg, ...(kid === undefined ? {} : { kid }) }
    return { alg, jwk, privateKey }
  })

const sign = (
  { alg, privateKey }: { readonly alg: string; readonly privateKey: Parameters<SignJWT["sign"]>[0] },
  kid?: string,
  payload: JWTPayload = claims
) =>
  Effect.promise(() =>
    new SignJWT(payload).setProtectedHeader(kid === undefined ? { alg } : { alg, kid }).sign(privateKey)
  )

/** A key server: `answers` says what it does with the next request, which may be never to answer. */
const keyServer = (first: ReadonlyArray<unknown>) => {
  const server = { asked: 0, answers: (): Effect.Effect<unknown> => Effect.succeed({ keys: first }) }
  const client = HttpClient.make(request =>
    Effect.suspend(() => {
      server.asked++
      return Effect.map(server.answers(), body =>
        HttpClientResponse.fromWeb(
          request,
          body === undefined ? new Response("", { status: 500 }) : new Response(JSON.stringify(body))
        )
      )
    })
  )
  return Object.assign(server, { layer: Layer.succeed(HttpClient.HttpClient, client) })
}

const defaults: Authentication.Settings = {
  secret: Option.none(),
  keySetUrl: Option.none(),
  audience: Option.none(),
  issuer: Option.none(),
  origins: []
}

const withKeys = { keySetUrl: Option.some(new URL("http://keys.example/set")) }

const request = { credential: undefined, method: "GET", url: "/ws", headers: {}, remoteAddress: undefined }

/** The outcomes of tokens: `ok`, or the tag of the refusal. */
const make = (settings: Partial<Authentication.Settings>, server = keyServer([])) =>
  Effect.gen(function* () {
    const context = yield* Layer.build(Layer.provide(Authentication.layer({ ...defaults, ...settings }), server.layer))
    const { identify } = yield* Effect.provide(Authentication.Authentication, context)
    return (token: string) =>
      Effect.match(identify(Option.some(Redacted.make(token)), request), {
        onFailure: ({ _tag }): string => _tag,
        onSuccess: () => "ok"
      })
  })

describe("without a secret and published keys", () => {
  test.scoped("every client gets the reason, with a token and without one", function* () {
    const context = yield* Layer.build(Layer.provide(Authentication.layer(defaults), keyServer([]).layer))
    const { identify } = yield* Effect.provide(Authentication.Authentication, context)
    const token = yield* sign(yield* pair("ES256"))
    for (const given of [Option.none(), Option.some("no token"), Option.some(token)]) {
      const refused = yield* Effect.flip(identify(Option.map(given, Redacted.make), request))
      assert.deepStrictEqual(
        [refused._tag, refused.message],
        ["Unauthorized", "The service accepts no tokens: neither GATEWAY_JWT_SECRET nor GATEWAY_JWKS_URL is set"]
      )
    }
  })
})

describe("published keys", () => {
  test.scoped("a token with a known key does not wait for one with an unknown key at a slow server", function* () {
    const known = yield* pair("ES256", "known")
    const server = keyServer([known.jwk])
    const identify = yield* make(withKeys, server)
    const good = yield* sign(known, "known")
    assert.strictEqual(yield* identify(good), "ok")
    yield* TestClock.adjust("1 minute")
    server.answers = () => Effect.never
    const strangers = yield* Effect.forEach(["a", "b", "c"], kid =>
      Effect.flatMap(sign(known, kid), token => Effect.fork(identify(token)))
    )
    yield* until(() => server.asked === 2)
    for (let index = 0; index < 5; index++)
      assert.strictEqual(yield* Fiber.join(yield* Effect.fork(identify(good))), "ok")
    for (const stranger of strangers) assert.isNull(stranger.unsafePoll())
    // They share one request, and fail within its timeout.
    yield* TestClock.adjust("5 seconds")
    for (const stranger of strangers) {
      assert.strictEqual(yield* Fiber.join(stranger), "AuthenticationUnavailable")
    }
    assert.strictEqual(server.asked, 2)
    // For half a minute no caller waits again.
    const later = yield* Effect.fork(Effect.flatMap(sign(known, "d"), identify))
    assert.strictEqual(yield* Fiber.join(later), "AuthenticationUnavailable")
    assert.strictEqual(server.asked, 2)
    assert.strictEqual(yield* identify(good), "ok")
  })

  test.scoped("an unknown key is fetched at most once in 30 seconds, and found after a rotation", function* () {
    const [old, young] = [yield* pair("ES256", "old"), yield* pair("ES256", "young")]
    const server = keyServer([old.jwk])
    const identify = yield* make(withKeys, server)
    const token = yield* sign(young, "young")
    assert.strictEqual(yield* Effect.flatMap(sign(old, "old"), identify), "ok")
    for (let index = 0; index < 3; index++) assert.strictEqual(yield* identify(token), "Unauthorized")
    assert.strictEqual(server.asked, 1)
    server.answers = () => Effect.succeed({ keys: [old.jwk, young.jwk] })
    yield* TestClock.adjust("30 seconds")
    assert.strictEqual(yield* identify(token), "ok")
    assert.strictEqual(server.asked, 2)
  })

  test.scoped("a failing server leaves the keys unchanged, and is asked again when it recovers", function* () {
    const [known, next] = [yield* pair("RS256", "known"), yield* pair("RS256", "next")]
    const server = keyServer([known.jwk])
    const identify = yield* make(withKeys, server)
    const [good, rotated] = [yield* sign(known, "known"), yield* sign(next, "next")]
    assert.strictEqual(yield* identify(good), "ok")
    for (const broken of [() => Effect.succeed(undefined), () => Effect.succeed({ keys: 7 })]) {
      server.answers = broken
      yield* TestClock.adjust("30 seconds")
      assert.strictEqual(yield* identify(rotated), "AuthenticationUnavailable")
      assert.strictEqual(yield* identify(good), "ok")
    }
    server.answers = () => Effect.succeed({ keys: [next.jwk] })
    yield* TestClock.adjust("30 seconds")
    assert.strictEqual(yield* identify(rotated), "ok")
    assert.strictEqual(yield* identify(good), "Unauthorized")
  })

  test.scoped("the set is fetched again every ten minutes, so that a revoked key is removed", function* () {
    const [withdrawn, other] = [yield* pair("ES256", "withdrawn"), yield* pair("ES256", "other")]
    const server = keyServer([withdrawn.jwk])
    const identify = yield* make(withKeys, server)
    const token = yield* sign(withdrawn, "withdrawn")
    assert.strictEqual(yield* identify(token), "ok")
    server.answers = () => Effect.succeed({ keys: [other.jwk] })
    yield* TestClock.adjust("9 minutes")
    assert.strictEqual(yield* identify(token), "ok")
    yield* TestClock.adjust("1 minute")
    yield* until(() => server.asked === 2)
    yield* Effect.repeat(identify(token), { until: outcome => outcome === "Unauthorized" })
  })

  test.scoped("a clock that is set back does not delay a refresh", function* () {
    const [old, young] = [yield* pair("ES256", "old"), yield* pair("ES256", "young")]
    const server = keyServer([old.jwk])
    const identify = yield* make(withKeys, server)
    yield* TestClock.setTime(Duration.toMillis("2 hours"))
    assert.strictEqual(yield* Effect.flatMap(sign(old, "old"), identify), "ok")
    server.answers = () => Effect.succeed({ keys: [old.jwk, young.jwk] })
    const clock = yield* Effect.clock
    const hourAgo = () => clock.unsafeCurrentTimeMillis() - Duration.toMillis("1 hour")
    const setBack = Object.assign(Object.create(clock), {
      unsafeCurrentTimeMillis: hourAgo,
      currentTimeMillis: Effect.sync(hourAgo)
    })
    yield* TestClock.adjust("30 seconds")
    assert.strictEqual(yield* Effect.withClock(Effect.flatMap(sign(young, "young"), identify), setBack), "ok")
  })

  test.scoped("keys without an id are all tried, whether the token names one or not, and may rotate", function* () {
    const pairs = [yield* pair("RS256"), yield* pair("RS256"), yield* pair("ES256"), yield* pair("EdDSA")]
    const stranger = yield* pair("RS256")
    const server = keyServer(pairs.map(({ jwk }) => jwk))
    const identify = yield* make(withKeys, server)
    for (const one of pairs) {
      assert.strictEqual(yield* Effect.flatMap(sign(one), identify), "ok", one.alg)
      assert.strictEqual(yield* Effect.flatMap(sign(one, "named"), identify), "ok", one.alg)
    }
    assert.strictEqual(yield* Effect.flatMap(sign(stranger), identify), "Unauthorized")
    server.answers = () => Effect.succeed({ keys: [stranger.jwk] })
    yield* TestClock.adjust("30 seconds")
    assert.strictEqual(yield* Effect.flatMap(sign(stranger), identify), "ok")
  })

  test.scoped(
    "a token without a key's id is tried with keys that have one; keys of one id are all tried",
    function* () {
      const pairs = [yield* pair("ES256", "a"), yield* pair("ES256", "b"), yield* pair("ES256", "b")]
      const identify = yield* make(withKeys, keyServer(pairs.map(({ jwk }) => jwk)))
      for (const one of pairs) assert.strictEqual(yield* Effect.flatMap(sign(one), identify), "ok")
      for (const one of pairs.slice(1)) assert.strictEqual(yield* Effect.flatMap(sign(one, "b"), identify), "ok")
      assert.strictEqual(yield* Effect.flatMap(sign(pairs[1]!, "a"), identify), "Unauthorized")
    }
  )

  test.scoped("invalid keys do not affect others, and the number of keys is limited", function* () {
    const [known, late] = [yield* pair("ES256", "known"), yield* pair("ES256", "late")]
    const odd = [null, 5, { kty: "RSA" }, { kty: "EC", crv: "P-256", x: 7, kid: "known" }, { kty: "oct", k: "AA" }]
    const many = Array.from({ length: 62 }, (_, index) => ({ ...known.jwk, kid: `k${index}` }))
    const identify = yield* make(withKeys, keyServer([...odd, known.jwk, ...many, late.jwk]))
    assert.strictEqual(yield* Effect.flatMap(sign(known, "known"), identify), "ok")
    assert.strictEqual(yield* Effect.flatMap(sign(known, "k9"), identify), "ok")
    assert.strictEqual(yield* Effect.flatMap(sign(late, "late"), identify), "Unauthorized")
  })

  test.scoped("a caller that is interrupted does not cancel the fetch for others", function* () {
    const known = yield* pair("ES256", "known")
    const server = keyServer([])
    const answer = yield* Effect.makeLatch(false)
    server.answers = () => Effect.as(answer.await, { keys: [known.jwk] })
    const identify = yield* make(withKeys, server)
    const token = yield* sign(known, "known")
    const [leaving, staying] = [yield* Effect.fork(identify(token)), yield* Effect.fork(identify(token))]
    yield* until(() => server.asked === 1)
    assert.isTrue(Exit.isInterrupted(yield* Fiber.interrupt(leaving)))
    yield* answer.open
    assert.strictEqual(yield* Fiber.join(staying), "ok")
    assert.strictEqual(server.asked, 1)
  })
})

const text = "a secret of thirty-two bytes or more"
const withSecret = { secret: Option.some(Redacted.make(text)) }
const secretKey = { alg: "HS256", privateKey: new TextEncoder().encode(text) }

const badTenants = ["", ".", "..", "a/b", "a\\b", "a b", "ä", "a\0", "a:b", "%2e", "x".repeat(129), 5, null, ["a"]]

describe("claims", () => {
  test.scoped("audience and issuer are checked if they are configured", function* () {
    const known = yield* pair("ES256", "known")
    const server = keyServer([known.jwk])
    const named = {
      ...withSecret,
      ...withKeys,
      audience: Option.some("causeway"),
      issuer: Option.some("https://id/")
    }
    const strict = yield* make(named, server)
    const lenient = yield* make({ ...withSecret, ...withKeys }, server)
    const cases: ReadonlyArray<readonly [JWTPayload, string]> = [
      [{ aud: "causeway", iss: "https://id/" }, "ok"],
      [{ aud: ["other", "causeway"], iss: "https://id/" }, "ok"],
      [{ aud: "other", iss: "https://id/" }, "Unauthorized"],
      [{ aud: "causeway", iss: "https://id" }, "Unauthorized"],
      [{ aud: "causeway" }, "Unauthorized"],
      [{ iss: "https://id/" }, "Unauthorized"],
      [{ aud: [], iss: "https://id/" }, "Unauthorized"],
      [{}, "Unauthorized"]
    ]
    for (const [payload, expected] of cases) {
      for (const [key, kid] of [
        [secretKey, undefined],
        [known, "known"]
      ] as const) {
        const token = yield* sign(key, kid, { ...claims, ...payload })
        assert.strictEqual(yield* strict(token), expected, JSON.stringify(payload))
        assert.strictEqual(yield* lenient(token), "ok", JSON.stringify(payload))
      }
    }
  })

  test.scoped("claims that are no time and no name of a tenant or an actor are refused", function* () {
    const identify = yield* make(withSecret)
    const cases: ReadonlyArray<readonly [JWTPayload, string]> = [
      ...badTenants.map(tenant => [{ tenant }, "Unauthorized"] as const),
      ...["a", "A.b_c-9", "...", "x".repeat(128)].map(tenant => [{ tenant }, "ok"] as const),
      ...["", "\0", "x".repeat(300), undefined].map(sub => [{ sub } as JWTPayload, "Unauthorized"] as const),
      [{ exp: 8.64e12 }, "ok"],
      [{ exp: 8.64e12 + 1 }, "Unauthorized"],
      [{ exp: 1e300 }, "Unauthorized"],
      [{ sub: "al\u0007ice" }, "Unauthorized"],
      [{ sub: "al\nice" }, "Unauthorized"],
      [{ sub: "al\u009bice" }, "Unauthorized"],
      [{ sub: "älice 😀" }, "ok"]
    ]
    for (const [payload, expected] of cases) {
      const token = yield* sign(secretKey, undefined, { ...claims, ...payload })
      assert.strictEqual(yield* identify(token), expected, JSON.stringify(payload))
    }
  })

  test.scoped("the secret is used byte for byte", function* () {
    for (const secret of [` ${text} `, `${text}\n`, "ä".repeat(16), Buffer.from(text).toString("base64")]) {
      const identify = yield* make({ secret: Option.some(Redacted.make(secret)) })
      const key = (material: string | Uint8Array) => ({
        alg: "HS256",
        privateKey: typeof material === "string" ? new TextEncoder().encode(material) : material
      })
      assert.strictEqual(yield* Effect.flatMap(sign(key(secret)), identify), "ok", secret)
      const others = [secret.trim(), `${secret}\n`, Buffer.from(secret, "base64")].filter(other => other !== secret)
      for (const other of others) {
        if (other.length === 0) continue
        assert.strictEqual(yield* Effect.flatMap(sign(key(other)), identify), "Unauthorized", secret)
      }
    }
  })

  it("production warns of missing checks, and of secrets that are short or begin or end with white space", () => {
    const warnings = (settings: Partial<Authentication.Settings>) =>
      Authentication.warnings({ ...defaults, ...settings }).join("\n")
    assert.include(warnings(withSecret), "GATEWAY_JWT_AUDIENCE is not set")
    assert.include(warnings({ keySetUrl: Option.some(new URL("https://keys")) }), "GATEWAY_JWT_ISSUER is not set")
    const checked = { audience: Option.some("a"), issuer: Option.some("i") }
    assert.strictEqual(warnings({ ...withSecret, ...checked }), "")
    assert.notInclude(warnings({}), "AUDIENCE")
    const secret = (secret: string) => warnings({ ...checked, secret: Option.some(Redacted.make(secret)) })
    assert.include(secret("s".repeat(31)), "fewer than 32 bytes")
    assert.strictEqual(secret("ä".repeat(16)), "")
    assert.include(secret(`${text}\n`), "white space")
  })
})
