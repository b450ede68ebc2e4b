/**
 * Keys that are published as a JSON Web Key Set (RFC 7517). They are fetched for the first token and periodically after it.
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import { type Clock, Duration, Effect, Option, Schema, type Scope } from "effect"
import type { createLocalJWKSet, JSONWebKeySet } from "jose"
import { SingleFlight } from "../../base/SingleFlight.ts"
import * as Supervision from "../../base/Supervision.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import type { UpstreamFailure } from "../../Upstream/Resilience/UpstreamFailure.ts"
import * as UpstreamHttp from "../../Upstream/UpstreamHttp.ts"

/** The library that verifies tokens, loaded when the first one arrives. */
export const jose = Effect.promise(() => import("jose"))

/** Algorithms with a public key. */
export const algorithms: ReadonlyArray<string> = ["RS256", "ES256", "EdDSA"]

/** No published key matches the token. */
export class KeyUnknown extends Schema.TaggedError<KeyUnknown>()("KeyUnknown", {}) {}

/** The keys cannot be fetched at present, and no known key matches the token. */
export class KeySetUnavailable extends Schema.TaggedError<KeySetUnavailable>()("KeySetUnavailable", {}) {}

/** The token was not signed with the key that was tried. */
export class WrongKey extends Schema.TaggedError<WrongKey>()("WrongKey", {}) {}

type Jwk = JSONWebKeySet["keys"][number]

/** A public key in the form that `jose` uses. */
export type Key = Awaited<ReturnType<ReturnType<typeof createLocalJWKSet>>>

/** The header of a token, as far as it selects a key (RFC 7515, 4.1). */
export interface Header {
  readonly alg: string
  readonly kid?: string | undefined
}

/** Milliseconds between two requests for the keys. */
const pauses = {
  regular: Duration.toMillis("10 minutes"),
  /** The minimum after an unknown key or a failure. */
  least: Duration.toMillis("30 seconds"),
  /** The minimum while no keys are known. */
  first: 1000
}

const timeLimit = Duration.seconds(5)

/** Maximum bytes of a set and number of its keys that are used. A token may have to be tried with all of them. */
const limits = { bytes: 1024 * 1024, keys: 64 }

/** Whether a key verifies tokens. Keys for encryption, for example, do not. */
const isKey = (value: unknown): value is Jwk =>
  typeof value === "object" && value !== null && "kty" in value && ["RSA", "EC", "OKP"].includes(String(value.kty))

const readAnswer = UpstreamHttp.readBy(Schema.Struct({ keys: Schema.Array(Schema.Unknown) }))

/** A key. `jose` imports it for an algorithm, and caches the result. */
interface Entry {
  readonly kid: string | undefined
  readonly find: ReturnType<typeof createLocalJWKSet>
}

/** The keys with a token's key id, or else those without an id. */
const candidates = (entries: ReadonlyArray<Entry>, { kid }: Header): ReadonlyArray<Entry> => {
  if (kid === undefined) return entries
  const named = entries.filter(entry => entry.kid === kid)
  return named.length > 0 ? named : entries.filter(entry => entry.kid === undefined)
}

/** Tries keys one after another. */
const firstOf = <A, E>(
  entries: ReadonlyArray<Entry>,
  { alg }: Header,
  attempt: (key: Key) => Effect.Effect<A, E | WrongKey>
): Effect.Effect<Option.Option<A>, E> => {
  const go = (index: number): Effect.Effect<Option.Option<A>, E> => {
    const entry = entries[index]
    if (entry === undefined) return Effect.succeedNone
    return Effect.tryPromise({ try: () => entry.find({ alg }), catch: () => new WrongKey() }).pipe(
      Effect.flatMap(attempt),
      Effect.asSome,
      Effect.catchIf(
        (error): error is WrongKey => error instanceof WrongKey,
        () => go(index + 1)
      )
    ) as Effect.Effect<Option.Option<A>, E>
  }
  return go(0)
}

/** The public keys of an issuer. Known keys are used while the set cannot be fetched. */
export class KeySet {
  private entries: ReadonlyArray<Entry> | undefined
  private isFresh = false
  private requestedAt = Number.NEGATIVE_INFINITY
  private readonly needed = Effect.unsafeMakeLatch(false)

  constructor(
    /** Requests the set. */
    private readonly request: Effect.Effect<ReadonlyArray<unknown>, UpstreamFailure>,
    private readonly fetching: SingleFlight<"keys", void>,
    private readonly clock: Clock.Clock
  ) {}

  /**
   * Tries the keys that match a token's header until one verifies it.
   *
   * A token whose key is known does not wait. Tokens with unknown keys share one request for the set, which is made at
   * most once in 30 seconds and times out after 5 seconds.
   */
  use<A, E>(
    header: Header,
    attempt: (key: Key) => Effect.Effect<A, E | WrongKey>
  ): Effect.Effect<A, E | WrongKey | KeyUnknown | KeySetUnavailable> {
    return Effect.gen(this, function* () {
      if (this.entries === undefined) {
        yield* this.refresh(pauses.first)
        this.needed.unsafeOpen()
      }
      const known = this.entries
      if (known === undefined) return yield* new KeySetUnavailable()
      const found = yield* firstOf(candidates(known, header), header, attempt)
      if (Option.isSome(found)) return found.value
      if (header.kid !== undefined && known.some(({ kid }) => kid === header.kid)) return yield* new WrongKey()
      yield* this.refresh(pauses.least)
      const renewed = this.entries ?? known
      const again = renewed === known ? found : yield* firstOf(candidates(renewed, header), header, attempt)
      if (Option.isSome(again)) return again.value
      return yield* this.isFresh ? new KeyUnknown() : new KeySetUnavailable()
    })
  }

  /** Fetches the keys periodically, once one was needed. */
  get regularly(): Effect.Effect<never> {
    const next = Effect.suspend(() => {
      const isEnough = this.isFresh || this.fetching.isRunning("keys")
      const due = this.requestedAt + (isEnough ? pauses.regular : pauses.least)
      const wait = due - Monotonic.unsafeMillis(this.clock)
      return wait > 0 ? Effect.sleep(wait) : this.refresh(pauses.least)
    })
    return Effect.zipRight(this.needed.await, Effect.forever(next))
  }

  /** Fetches the keys unless the last request was less than `pause` milliseconds ago. Concurrent calls share it. */
  private refresh(pause: number): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (!this.fetching.isRunning("keys")) {
        const now = Monotonic.unsafeMillis(this.clock)
        if (now - this.requestedAt < pause) return Effect.void
        this.requestedAt = now
        this.isFresh = false
      }
      return this.fetching.run("keys", this.fetch)
    })
  }

  private get fetch(): Effect.Effect<void> {
    return this.request.pipe(
      // A request that cannot be interrupted at once does not delay its callers.
      Effect.disconnect,
      Effect.timeoutFail({ duration: timeLimit, onTimeout: () => ({ message: "No answer in time" }) }),
      Effect.zip(jose),
      Effect.flatMap(([published, { createLocalJWKSet }]) => {
        const keys = published.filter(isKey)
        const used = keys.slice(0, limits.keys)
        this.isFresh = true
        this.entries = used.map(key => ({ kid: key.kid, find: createLocalJWKSet({ keys: [key] }) }))
        if (keys.length <= limits.keys) return Effect.void
        return Effect.logWarning("The key set has more keys than are used").pipe(
          Effect.annotateLogs({ keys: keys.length, used: limits.keys })
        )
      }),
      Effect.catchAll(({ message }) =>
        Effect.logWarning("The key set cannot be fetched").pipe(Effect.annotateLogs({ reason: message }))
      )
    )
  }
}

/** The keys at a URL. */
export const make = (url: URL): Effect.Effect<KeySet, never, HttpClient.HttpClient | Scope.Scope> =>
  Effect.gen(function* () {
    const http = UpstreamHttp.make(yield* HttpClient.HttpClient, {
      service: "key set",
      baseUrl: url.origin,
      apiKey: Option.none()
    })
    const request = http.json("keys", HttpClientRequest.get(`${url.pathname}${url.search}`), readAnswer, limits.bytes)
    const published = Effect.map(request, ({ keys }) => keys)
    const keys = new KeySet(published, new SingleFlight(yield* Effect.scope), yield* Effect.clock)
    yield* Supervision.forkScoped("the refresh of the published keys", keys.regularly)
    return keys
  })
