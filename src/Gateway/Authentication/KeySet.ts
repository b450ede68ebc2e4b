import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import { Clock, Duration, Effect, Option, Schema, type Scope } from "effect"
import type { createLocalJWKSet, JSONWebKeySet } from "jose"
import * as Exchange from "../../Upstream/Exchange.ts"
import * as Jose from "./Jose.ts"

/** Algorithms with a public key. */
export const algorithms: ReadonlyArray<string> = ["RS256", "ES256", "EdDSA"]

/** No published key fits the token. */
export class KeyUnknown extends Schema.TaggedError<KeyUnknown>()("KeyUnknown", {}) {}

/** The keys cannot be had, and there are none from before. */
export class KeySetUnavailable extends Schema.TaggedError<KeySetUnavailable>()("KeySetUnavailable", {
  reason: Schema.String
}) {}

type Key = Awaited<ReturnType<ReturnType<typeof createLocalJWKSet>>>

/** Keys that are published as a JSON Web Key Set (RFC 7517). */
export interface KeySet {
  /** The key for a token, as its header names it. */
  readonly keyFor: (token: string) => Effect.Effect<Key, KeyUnknown | KeySetUnavailable>
}

/** The keys are asked for again after this time, */
const maxAge = Duration.toMillis("10 minutes")

/** and, where a token names one that is not there, no sooner than after this. */
const cooldown = Duration.toMillis("30 seconds")

const timeLimit = Duration.seconds(5)

const maxBytes = 1024 * 1024

const isKey = (value: unknown): value is JSONWebKeySet["keys"][number] =>
  typeof value === "object" && value !== null && "kty" in value && typeof value.kty === "string"

const Answer = Schema.Struct({ keys: Schema.Array(Schema.Unknown) })

interface Known {
  readonly find: ReturnType<typeof createLocalJWKSet>
}

/** Fetches the keys when they are first needed. Keys that cannot be had anew go on being used. */
export const make = (url: URL): Effect.Effect<KeySet, never, HttpClient.HttpClient | Scope.Scope> =>
  Effect.gen(function* () {
    const exchange = Exchange.make(yield* HttpClient.HttpClient, {
      service: "key set",
      baseUrl: url.origin,
      apiKey: Option.none()
    })
    const turnstile = yield* Effect.makeSemaphore(1)
    const scope = yield* Effect.scope
    let known: Known | undefined
    let askedAt = Number.NEGATIVE_INFINITY

    const fetch = exchange.json("keys", HttpClientRequest.get(`${url.pathname}${url.search}`), Answer, maxBytes).pipe(
      Effect.timeoutFail({ duration: timeLimit, onTimeout: () => ({ message: "No answer in time" }) }),
      Effect.zip(Jose.load),
      Effect.map(([answer, { createLocalJWKSet }]): Known => {
        // A key of another sort, as for encryption or a shared secret, is none for us.
        const keys = answer.keys.filter(isKey).filter(({ kty }) => kty === "RSA" || kty === "EC" || kty === "OKP")
        return { find: createLocalJWKSet({ keys }) }
      }),
      Effect.matchEffect({
        onFailure: ({ message }) =>
          Effect.logWarning("The published keys cannot be had").pipe(Effect.annotateLogs({ reason: message })),
        onSuccess: fetched =>
          Effect.sync(() => {
            known = fetched
          })
      })
    )

    /** Has the keys at most so old; one request serves all who wait. */
    const refresh = (age: number) =>
      Effect.gen(function* () {
        const now = yield* Clock.currentTimeMillis
        if (now - askedAt < age) return
        askedAt = now
        yield* fetch
      }).pipe(
        turnstile.withPermits(1),
        Effect.forkIn(scope),
        Effect.flatMap(fiber => fiber.await)
      )

    const find = (token: string): Effect.Effect<Option.Option<Key>> =>
      Effect.suspend(() => {
        const set = known
        if (set === undefined) return Effect.succeedNone
        return Effect.flatMap(Jose.load, ({ decodeProtectedHeader }) =>
          Effect.option(Effect.tryPromise(() => set.find(decodeProtectedHeader(token))))
        )
      })

    return {
      keyFor: token =>
        Effect.gen(function* () {
          yield* refresh(known === undefined ? 1000 : maxAge)
          const found = yield* find(token)
          if (Option.isSome(found)) return found.value
          if (known === undefined) return yield* new KeySetUnavailable({ reason: "the key set was never had" })
          yield* refresh(cooldown)
          return yield* Effect.flatMap(
            find(token),
            Option.match({ onNone: () => new KeyUnknown(), onSome: Effect.succeed })
          )
        })
    }
  })
