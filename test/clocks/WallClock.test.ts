/** Waits and measurements are unaffected when the machine's clock is set. */
import { describe, expect, it } from "@effect/vitest"
import { Chunk, Duration, Effect, Either, Exit, Fiber, Option, Queue, Redacted, Stream, TestClock } from "effect"
import { exportJWK, generateKeyPair } from "jose"
import * as KeySet from "../../src/Gateway/Authentication/KeySet.ts"
import { ChangeFeed } from "../../src/Kv/ChangeFeed.ts"
import { Store } from "../../src/Kv/Store.ts"
import { withWallClock } from "../../src/Simulator/Testing/Time.ts"
import * as GroupCommit from "../../src/Storage/Commit/GroupCommit.ts"
import * as HealthProbe from "../../src/Upstream/HealthProbe.ts"
import * as Breaker from "../../src/Upstream/Resilience/CircuitBreaker.ts"
import { UpstreamFailure } from "../../src/Upstream/Resilience/UpstreamFailure.ts"
import * as Resilience from "../../src/Upstream/Resilience.ts"
import { alice, make as makeGateways, pass } from "../Gateway/Fixture.ts"
import * as Sockets from "../Gateway/Socket/Fixture.ts"
import { secret, token } from "../Gateway/survival/Token.ts"
import * as Feed from "../Kv/ChangeFeed/Harness.ts"
import { temporaryLayer } from "../Storage/SqliteFixture.ts"
import { set as setEntry, write } from "../suites/Store/Fixture.ts"
import * as Stub from "../Upstream/Stub.ts"

const directions = ["back", "forward"] as const

const durations = Resilience.durations("test_wall_clock_request_duration_ms", "Requests of tests")

const broken = new UpstreamFailure({ operation: "get", reason: "connection", message: "broken" })

for (const direction of directions) {
  describe(`a clock that is set ${direction} an hour`, () => {
    it.scoped("leaves a stream of events its keep-alive", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          const feed = yield* ChangeFeed
          const events = yield* feed.events(Feed.query())
          const blocks = yield* Queue.unbounded<string>()
          yield* Effect.forkScoped(
            Stream.runForEach(events, bytes => Queue.offer(blocks, Buffer.from(bytes).toString()))
          )
          yield* Queue.take(blocks)
          yield* TestClock.adjust("1 second")
          set("1 hour", direction)
          yield* TestClock.adjust("13 seconds")
          expect(yield* Queue.size(blocks)).toBe(0)
          yield* TestClock.adjust("1 second")
          expect(yield* Queue.takeAll(blocks)).toEqual(Chunk.of(`: keep-alive\nid: 0@${yield* Feed.epochNow}\n\n`))
        }).pipe(Effect.provide(Feed.layer()))
      )
    )

    it.scoped("leaves a WebSocket of the feed its heartbeat", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          const client = yield* Feed.connect(yield* Feed.serve, "")
          yield* Feed.untilFollowers(1)
          set("1 hour", direction)
          yield* TestClock.adjust("14 seconds")
          expect(client.messages).toEqual([])
          yield* TestClock.adjust("1 second")
          expect(yield* client.message(0)).toMatchObject({ type: "heartbeat", lastSeq: 0 })
        }).pipe(Effect.provide(Feed.layer()))
      )
    )

    it.scoped("leaves a client of the gateway its ping, and ends its credential by the date", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          const gateways = yield* Sockets.make({ authentication: { secret: Option.some(Redacted.make(secret)) } })
          const { url } = yield* gateways.start
          const headers = { authorization: `Bearer ${yield* token("acme")}` }
          const client = yield* Sockets.connect(url, { headers })
          let pings = 0
          client.socket.on("ping", () => {
            pings++
          })
          set("30 minutes", direction)
          yield* TestClock.adjust("24 seconds")
          yield* client.ask({ type: "ping" })
          expect(pings).toBe(0)
          yield* TestClock.adjust("1 second")
          yield* Sockets.until(() => pings === 1)
          set("31 minutes", "forward")
          yield* TestClock.adjust("1 second")
          if (direction === "forward") expect((yield* client.closed).code).toBe(4501)
          else expect((yield* client.ask({ type: "ping" })).type).toBe("pong")
        })
      )
    )

    it.scoped("leaves a session its idle time", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          const gateways = yield* makeGateways({ settings: { idleTimeout: Duration.minutes(2) } })
          const { sessions } = yield* gateways.start
          const { id } = yield* sessions.create(alice, { agentType: "echo" })
          const time = yield* Effect.forkScoped(Effect.forever(pass("10 millis", "10 millis")))
          yield* sessions.start(alice, id)
          yield* Fiber.interrupt(time)
          set("1 hour", direction)
          yield* pass("100 seconds")
          expect((yield* sessions.get(alice, id)).state).toBe("active")
          // Being asked for was a use of it.
          yield* pass("130 seconds")
          expect((yield* sessions.get(alice, id)).state).toBe("inactive")
        })
      )
    )

    it.scoped("leaves a breaker its cooldown", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          const breaker = yield* Breaker.make("wall_clock")
          const fail = Effect.ignore(breaker.protect(Effect.fail("no"), () => "failure"))
          yield* Effect.replicateEffect(fail, 5)
          set("1 hour", direction)
          yield* TestClock.adjust("9999 millis")
          expect(yield* breaker.state).toBe("open")
          expect(yield* Effect.flip(breaker.protect(Effect.void, () => "success"))).toMatchObject({
            _tag: "CircuitOpen",
            retryAfterMillis: 1
          })
          yield* TestClock.adjust("1 millis")
          expect(yield* breaker.state).toBe("half_open")
        })
      )
    )

    it.scoped("leaves the result of a probe its second", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          let looks = 0
          const probe = yield* HealthProbe.shared(Effect.sync(() => ++looks))
          yield* probe
          set("1 hour", direction)
          yield* TestClock.adjust("999 millis")
          expect(yield* probe).toBe(1)
          yield* TestClock.adjust("1 millis")
          expect(yield* probe).toBe(2)
        })
      )
    )

    it.scoped("leaves a hanging disk its time limit", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          const committer = yield* GroupCommit.make<string, void, never>({
            commit: () => Effect.never,
            weigh: () => ({ operations: 1, bytes: 1 }),
            timeout: "5 seconds"
          })
          const fiber = yield* Effect.fork(Effect.flip(committer.submit("a")))
          yield* TestClock.adjust("1 second")
          set("1 hour", direction)
          yield* TestClock.adjust("3999 millis")
          expect(committer.isStuck()).toBe(false)
          yield* TestClock.adjust("1 millis")
          expect((yield* Fiber.join(fiber))._tag).toBe("StoreUnavailable")
        })
      )
    )

    it.scoped("leaves a whole list the time that it may pause", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          yield* write(Array.from({ length: 3001 }, (_, index) => setEntry("n", `k${index}`, 1)))
          const { portions } = yield* (yield* Store).listAll({ namespace: "n", prefix: "" })
          let taken = 0
          const pauses = ["59 seconds", "60 seconds"] as const
          const outcome = yield* Effect.either(
            Stream.runForEach(portions, () =>
              Effect.suspend(() => {
                set("1 hour", direction)
                return TestClock.adjust(pauses[taken++] ?? "60 seconds")
              })
            )
          )
          expect(taken).toBe(2)
          expect(Either.getLeft(outcome)).toMatchObject({ value: { reason: expect.stringContaining("60 s") } })
        }).pipe(Effect.provide(temporaryLayer("inline")))
      )
    )

    it.scoped("leaves a call its time limit over all tries", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          const { call } = yield* Resilience.make({ upstream: "wall_clock", durations })
          let tries = 0
          const attempt = Effect.suspend(() => {
            tries++
            set("1 hour", direction)
            return Effect.never
          })
          const policy = {
            operation: "get",
            repeatable: true,
            tryTimeout: "6 seconds",
            timeout: "15 seconds"
          } as const
          const fiber = yield* Effect.fork(Effect.flip(call(policy, attempt)))
          yield* TestClock.adjust("14999 millis")
          expect(fiber.unsafePoll()).toBeNull()
          expect(tries).toBe(3)
          // The jitter makes fractions of milliseconds, which TestClock rounds.
          yield* TestClock.adjust("2 millis")
          expect((yield* Fiber.join(fiber)).reason).toBe("timeout")
        })
      )
    )

    it.scoped("leaves a stream its time limit", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          const { stream } = yield* Resilience.make({ upstream: "wall_clock", durations })
          const seen: Array<number> = []
          const elements = Stream.concat(
            Stream.make(1),
            Stream.fromEffect(Effect.zipRight(Effect.sleep("9 seconds"), Effect.succeed(2)))
          ).pipe(Stream.concat(Stream.fromEffect(Effect.never)))
          const run = Stream.runForEach(
            stream({ operation: "get", timeout: "10 seconds" }, Effect.succeed(elements)),
            element => Effect.sync(() => void seen.push(element))
          )
          const fiber = yield* Effect.fork(Effect.exit(run))
          yield* TestClock.adjust("1 second")
          set("1 hour", direction)
          yield* TestClock.adjust("8999 millis")
          expect(seen).toEqual([1, 2])
          expect(fiber.unsafePoll()).toBeNull()
          yield* TestClock.adjust("1 millis")
          expect(yield* Fiber.join(fiber)).toMatchObject(Exit.fail({ reason: "timeout" }))
        })
      )
    )

    it.scoped("leaves the window of retries and of calls as it is", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          const { call } = yield* Resilience.make({
            upstream: "wall_clock",
            durations,
            budget: { ratio: 0, perSecond: 1, window: { slotMillis: 1000, slots: 2 } }
          })
          let tries = 0
          const attempt = Effect.suspend(() => {
            tries++
            return tries % 2 === 1 ? Effect.fail(broken) : Effect.void
          })
          const policy = { operation: "get", repeatable: true, tryTimeout: "1 second", timeout: "1 second" } as const
          const run = Effect.flatMap(Effect.fork(Effect.exit(call(policy, attempt))), fiber =>
            Effect.zipRight(TestClock.adjust("200 millis"), Fiber.join(fiber))
          )
          yield* run
          yield* run
          expect(tries).toBe(4)
          set("1 hour", direction)
          // Two retries were made within two seconds, and a third is not allowed before those have passed.
          expect(Exit.isFailure(yield* run)).toBe(true)
          expect(tries).toBe(5)
          tries = 0
          yield* TestClock.adjust("2 seconds")
          yield* run
          expect(tries).toBe(2)
        })
      )
    )

    it.scoped("leaves published keys their age", () =>
      withWallClock(set =>
        Effect.gen(function* () {
          const { publicKey } = yield* Effect.promise(() => generateKeyPair("ES256"))
          const jwk = { ...(yield* Effect.promise(() => exportJWK(publicKey))), kid: "k" }
          const stub = Stub.make([Stub.status(200, { keys: [jwk] })])
          const keys = yield* Effect.provide(KeySet.make(new URL("http://keys.test/set")), stub.layer)
          yield* keys.use({ alg: "ES256", kid: "k" }, () => Effect.void)
          set("1 hour", direction)
          yield* TestClock.adjust("599 seconds")
          expect(stub.seen).toHaveLength(1)
          yield* TestClock.adjust("1 second")
          expect(stub.seen).toHaveLength(2)
        })
      )
    )
  })
}
