import { describe, expect, it } from "@effect/vitest"
import { Chunk, Deferred, Effect, Fiber, Logger, Redacted, Stream, TestClock } from "effect"
import * as Client from "../../../src/Client/Effect/Client.ts"
import * as SocketFixture from "../../Gateway/Socket/Fixture.ts"

const quiet = Logger.remove(Logger.defaultLogger)

/** The client of a gateway with a simulated platform. */
const connected = Effect.gen(function* () {
  const { start } = yield* SocketFixture.make()
  const { port } = yield* start
  return yield* Client.makeSessions({ baseUrl: `http://127.0.0.1:${port}` })
}).pipe(Effect.provide(quiet))

describe("the client of sessions for Effect", () => {
  it.scopedLive("holds a conversation, and reads events as a stream", () =>
    Effect.gen(function* () {
      const sessions = yield* connected
      yield* sessions.connect
      const { id } = yield* sessions.create("echo", { title: "mine" })
      const { turnId } = yield* sessions.send(id, "hello")
      const updates = yield* sessions.subscribe(id).pipe(
        Stream.takeUntil(update => update.type === "event" && update.event.type === "turn_completed"),
        Stream.runCollect
      )
      const events = Chunk.toReadonlyArray(updates).flatMap(update => (update.type === "event" ? [update.event] : []))
      expect(events.at(-1)).toMatchObject({ type: "turn_completed", turnId })
      const after = { epoch: (yield* sessions.get(id)).epoch, seq: events.length }
      const first = yield* Stream.runHead(sessions.subscribe(id, { after }))
      expect(first).toMatchObject({ value: { type: "synced", position: after } })
      const pages = yield* Stream.runCollect(sessions.list())
      expect(Chunk.toReadonlyArray(pages).flatMap(page => page.sessions.map(({ title }) => title))).toEqual(["mine"])
      const files = yield* sessions.listFiles(id)
      expect(files.length).toBeGreaterThan(0)
      yield* sessions.delete(id)
    })
  )

  it.scopedLive("fails with errors that have their data, and ends with its scope", () =>
    Effect.gen(function* () {
      const sessions = yield* connected
      const refused = yield* Effect.flip(sessions.get("none"))
      expect(refused).toMatchObject({ _tag: "RequestRefused", code: "not_found", retryable: false })
      const code = yield* sessions.readFile("none", "a.md").pipe(
        Effect.as("read"),
        Effect.catchTag("RequestRefused", error => Effect.succeed(error.code))
      )
      expect(code).toBe("not_found")
      const { id } = yield* sessions.create("echo")
      const { start } = yield* Effect.provide(SocketFixture.make(), quiet)
      const { port } = yield* Effect.provide(start, quiet)
      const ended = yield* Effect.scoped(Client.makeSessions({ baseUrl: `http://127.0.0.1:${port}` }))
      expect(yield* Effect.flip(ended.get(id))).toMatchObject({ _tag: "ConnectionClosed", code: 1000 })
      expect(yield* Effect.flip(Stream.runDrain(ended.subscribe(id)))).toBeInstanceOf(Client.ConnectionClosed)
    })
  )

  it.effect("goes by the test's clock, and runs the effect of the token at each try", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const failed = yield* Deferred.make<void>()
        let tries = 0
        const token = Effect.suspend(() => {
          tries++
          return Effect.fail("offline" as const)
        })
        const sessions = yield* Client.makeSessions({
          baseUrl: "http://127.0.0.1:9",
          token: Effect.map(token, () => Redacted.make("never")),
          timeout: "20 seconds",
          onStatus: () => {
            if (tries === 2) Deferred.unsafeDone(failed, Effect.void)
          }
        })
        const call = yield* Effect.fork(Effect.flip(sessions.get("s")))
        while (!(yield* Deferred.isDone(failed))) {
          yield* TestClock.adjust("1 second")
          yield* Effect.promise(() => new Promise(resolve => setImmediate(resolve)))
        }
        yield* TestClock.adjust("20 seconds")
        expect(yield* Fiber.join(call)).toBeInstanceOf(Client.TokenUnavailable)
      })
    )
  )

  it.scopedLive("is a service of a program", () =>
    Effect.gen(function* () {
      const { start } = yield* Effect.provide(SocketFixture.make(), quiet)
      const { port } = yield* Effect.provide(start, quiet)
      const program = Effect.flatMap(Client.Sessions, sessions => sessions.create("echo"))
      const made = yield* Effect.provide(program, Client.layerSessions({ baseUrl: `http://127.0.0.1:${port}` }))
      expect(made).toMatchObject({ state: "inactive" })
    })
  )
})
