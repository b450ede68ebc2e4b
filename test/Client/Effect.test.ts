import { describe, expect, it } from "@effect/vitest"
import { Chunk, Deferred, Effect, Either, Fiber, Logger, Option, Redacted, Stream, TestClock } from "effect"
import * as Client from "../../src/Client/Effect/Client.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import * as SocketFixture from "../Gateway/Socket/Fixture.ts"
import { keys } from "../Harness.ts"
import { quickEdge } from "../Http/Edge/EdgeTransport.ts"
import { test } from "../Tests.ts"

const quiet = Logger.remove(Logger.defaultLogger)

/** The client of a service over an empty store. */
const connected = (options: Partial<Client.ClientOptions> = {}) =>
  Effect.flatMap(Effect.provide(quickEdge.serve(Memory.layer), quiet), ({ url }) =>
    Client.make({ baseUrl: url, token: Redacted.make(keys.write), ...options })
  )

const namespace = "tenant:acme/settings"

describe("the client for Effect", () => {
  test.scoped("has options in place of absent entries, and streams of pages", function* () {
    const client = yield* connected()
    expect(yield* client.get(namespace, "a/b")).toEqual(Option.none())
    const entry = yield* client.set(namespace, "a/b", { dark: true }, { actor: "anna", ifVersion: 0 })
    expect(yield* client.get(namespace, "a/b")).toEqual(Option.some(entry))
    const { items } = yield* client.getMany([entry, { namespace, key: "absent" }])
    expect(items).toEqual([Option.some(entry), Option.none()])
    const { items: known } = yield* client.getManyKeys([entry, { namespace, key: "absent" }])
    const { value: _, ...rest } = entry
    expect(known).toEqual([Option.some(rest), Option.none()])
    yield* client.set(namespace, "x", 1)
    const pages = yield* Stream.runCollect(client.list(namespace, { limit: 1 }))
    expect(Chunk.toReadonlyArray(pages).map(({ items }) => items.map(({ key }) => key))).toEqual([["a/b"], ["x"]])
    const [owners] = yield* Stream.runCollect(client.tenants())
    expect(owners?.tenants).toEqual([{ tenant: "acme", namespaces: 1, entries: 2 }])
  })

  test.scoped("fails with errors that have their data", function* () {
    const client = yield* connected()
    yield* client.set(namespace, "k", 1)
    const refused = yield* Effect.either(client.set(namespace, "k", 2, { ifVersion: 7 }))
    expect(Either.getLeft(refused)).toEqual(Option.some(expect.any(Client.PreconditionFailed)))
    const version = yield* client
      .set(namespace, "k", 2, { ifVersion: 7 })
      .pipe(Effect.catchTag("PreconditionFailed", error => Effect.succeed({ version: error.currentVersion })))
    expect(version).toEqual({ version: 1 })
    const malformed = yield* Effect.flip(client.set(namespace, "k", 2, { ttlMs: -1 }))
    expect(malformed).toMatchObject({ _tag: "BadRequest", status: 400, requestId: expect.any(String) })
    expect(malformed.message).toContain("ttlMs")
    const unknown = yield* Effect.flip(Stream.runDrain(client.list("..")))
    expect(unknown).toBeInstanceOf(Client.BadRequest)
    const unsendable = yield* Effect.flip(client.set(namespace, "k", 1n))
    expect(unsendable).toBeInstanceOf(Client.BadRequest)
  })

  test.scoped("runs the effect of the token at each try, with what it needs", function* () {
    const tokens = ["wrong", keys.write]
    const token = Effect.map(
      Effect.sync(() => tokens.shift()!),
      Redacted.make
    )
    const client = yield* connected({ token })
    expect(yield* Effect.flip(client.get("n", "k"))).toBeInstanceOf(Client.Unauthorized)
    expect(yield* client.get("n", "k")).toEqual(Option.none())
    const without = yield* connected({ token: Effect.fail("no session") as Effect.Effect<never> })
    expect(yield* Effect.flip(without.get("n", "k"))).toBeInstanceOf(Client.TokenUnavailable)
  })

  test.scoped("ends a call after its time limit, by the test's clock", function* () {
    const asked = yield* Deferred.make<void>()
    const token = Effect.zipRight(Deferred.succeed(asked, undefined), Effect.never)
    const client = yield* connected({ token, timeout: "5 seconds" })
    const call = yield* Effect.fork(Effect.flip(client.get("n", "k")))
    yield* Deferred.await(asked)
    yield* TestClock.adjust("5 seconds")
    expect(yield* Fiber.join(call)).toMatchObject({ _tag: "ConnectionFailed", isTimeout: true })
  })

  test.scoped("follows as a stream, which ends when it is interrupted", function* () {
    const client = yield* connected()
    yield* client.set(namespace, "k", 1)
    const live = yield* Deferred.make<void>()
    const seen: Array<string> = []
    const options = {
      namespace,
      onStatus: () => {
        Deferred.unsafeDone(live, Effect.void)
      }
    }
    const follower = yield* Effect.fork(
      Stream.runForEach(client.follow(options), event => Effect.sync(() => seen.push(event.type)))
    )
    yield* Deferred.await(live)
    expect(seen).toEqual(["entry", "synced"])
    yield* client.set(namespace, "k", 2)
    const changes = yield* Stream.runCollect(Stream.take(client.follow({ after: 1, tenant: "acme" }), 1))
    expect(Chunk.toReadonlyArray(changes)).toMatchObject([{ type: "change", change: { seq: 2, value: 2 } }])
    yield* Fiber.interrupt(follower)
    expect(seen.slice(0, 2)).toEqual(["entry", "synced"])
  })

  test.scoped("is a service of a program", function* () {
    const { url } = yield* Effect.provide(quickEdge.serve(Memory.layer), quiet)
    const program = Effect.flatMap(Client.Client, client => client.set("n", "k", 1))
    const entry = yield* Effect.provide(program, Client.layer({ baseUrl: url, token: keys.write }))
    expect(entry).toMatchObject({ version: 1 })
  })
})

/** The client of a gateway with a simulated platform. */
const sessionsOf = (options: Partial<Client.SessionsOptions> = {}) =>
  Effect.gen(function* () {
    const { start } = yield* SocketFixture.make()
    const { port } = yield* start
    return yield* Client.makeSessions({ baseUrl: `http://127.0.0.1:${port}`, ...options })
  }).pipe(Effect.provide(quiet))

describe("the client of sessions for Effect", () => {
  test.scopedLive("fails with errors that have their data, and ends with its scope", function* () {
    const sessions = yield* sessionsOf()
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

  test.scopedLive("works over HTTP too", function* () {
    const sessions = yield* sessionsOf({ transport: "http" })
    const refused = yield* Effect.flip(sessions.get("none"))
    expect(refused).toMatchObject({ _tag: "RequestRefused", code: "not_found", retryable: false })
    const { id } = yield* sessions.create("echo")
    const { turnId } = yield* sessions.send(id, "hello")
    const ended = yield* sessions.subscribe(id).pipe(
      Stream.filter(update => update.type === "event" && update.event.type === "turn_completed"),
      Stream.runHead
    )
    expect(ended).toMatchObject({ value: { event: { turnId } } })
    expect(yield* Effect.flip(sessions.readFile(id, "a.md"))).toBeInstanceOf(Client.BadRequest)
  })

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

  test.scopedLive("is a service of a program", function* () {
    const { start } = yield* Effect.provide(SocketFixture.make(), quiet)
    const { port } = yield* Effect.provide(start, quiet)
    const program = Effect.flatMap(Client.Sessions, sessions => sessions.create("echo"))
    const made = yield* Effect.provide(program, Client.layerSessions({ baseUrl: `http://127.0.0.1:${port}` }))
    expect(made).toMatchObject({ state: "inactive" })
  })
})
