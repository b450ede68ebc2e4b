/** Waits and measurements are unaffected when the machine's clock is set. */
import { describe, expect, it } from "@effect/vitest"
import { Chunk, Duration, Effect, Fiber, Option, Queue, Redacted, Stream, TestClock } from "effect"
import { exportJWK, generateKeyPair } from "jose"
import * as KeySet from "../../src/Gateway/Authentication/KeySet.ts"
import { ChangeFeed } from "../../src/Kv/ChangeFeed.ts"
import { withWallClock } from "../../src/Simulator/Testing/Time.ts"
import * as HealthProbe from "../../src/Upstream/HealthProbe.ts"
import { alice, make as makeGateways, pass } from "../Gateway/Fixture.ts"
import * as Sockets from "../Gateway/Socket/Fixture.ts"
import { secret, token } from "../Gateway/survival/Token.ts"
import * as Feed from "../Kv/ChangeFeed/Harness.ts"
import * as Stub from "../Upstream/Stub.ts"

const directions = ["back", "forward"] as const

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
