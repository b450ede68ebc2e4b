import { describe, expect, it } from "@effect/vitest"
import { Chunk, Deferred, Effect, Either, Fiber, Logger, Option, Redacted, Stream, TestClock } from "effect"
import * as Client from "../../../src/Client/Effect/Client.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { keys } from "../../Harness.ts"
import { quickEdge } from "../../Http/Edge/EdgeTransport.ts"

const quiet = Logger.remove(Logger.defaultLogger)

/** The client of a service over an empty store. */
const connected = (options: Partial<Client.ClientOptions> = {}) =>
  Effect.flatMap(Effect.provide(quickEdge.serve(Memory.layer), quiet), ({ url }) =>
    Client.make({ baseUrl: url, token: Redacted.make(keys.write), ...options })
  )

const namespace = "tenant:acme/settings"

describe("the client for Effect", () => {
  it.scoped("sets, reads, lists and deletes", () =>
    Effect.gen(function* () {
      const client = yield* connected()
      expect(yield* client.get(namespace, "a/b")).toEqual(Option.none())
      const entry = yield* client.set(namespace, "a/b", { dark: true }, { actor: "anna", ifVersion: 0 })
      expect(yield* client.get(namespace, "a/b")).toEqual(Option.some(entry))
      const results = yield* client.batch(
        ["x", "y", "z"].map(key => ({ op: "set", namespace, key, value: key })),
        { actor: "anna" }
      )
      expect(results).toEqual([{ version: 1 }, { version: 1 }, { version: 1 }])
      const pages = yield* Stream.runCollect(client.list(namespace, { limit: 3 }))
      expect(Chunk.toReadonlyArray(pages).map(({ items }) => items.map(({ key }) => key))).toEqual([
        ["a/b", "x", "y"],
        ["z"]
      ])
      const [keysOf] = yield* Stream.runCollect(client.listKeys(namespace, { start: "x", reverse: true, count: true }))
      expect([keysOf?.items.map(({ key }) => key), keysOf?.count]).toEqual([["z", "y", "x"], 3])
      expect(keysOf?.items[0]).not.toHaveProperty("value")
      const { items } = yield* client.getMany([entry, { namespace, key: "absent" }])
      expect(items).toEqual([Option.some(entry), Option.none()])
      const { items: known } = yield* client.getManyKeys([entry, { namespace, key: "absent" }])
      const { value: _, ...rest } = entry
      expect(known).toEqual([Option.some(rest), Option.none()])
      const [spaces] = yield* Stream.runCollect(client.namespaces({ prefix: namespace }))
      expect(spaces?.namespaces).toEqual([{ namespace, count: 4 }])
      const [owners] = yield* Stream.runCollect(client.tenants({ prefix: "none" }))
      expect(owners?.tenants).toEqual([])
      expect(yield* client.delete(namespace, "x", { ifVersion: 1 })).toBe(true)
      expect(yield* client.delete(namespace, "x")).toBe(false)
      expect(yield* client.deletePrefix(namespace, "", { limit: 2 })).toEqual({ deleted: true, count: 2, more: true })
    })
  )

  it.scoped("fails with errors that have their data", () =>
    Effect.gen(function* () {
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
  )

  it.scoped("runs the effect of the token at each try, with what it needs", () =>
    Effect.gen(function* () {
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
  )

  it.scoped("ends a call after its time limit, by the test's clock", () =>
    Effect.gen(function* () {
      const asked = yield* Deferred.make<void>()
      const token = Effect.zipRight(Deferred.succeed(asked, undefined), Effect.never)
      const client = yield* connected({ token, timeout: "5 seconds" })
      const call = yield* Effect.fork(Effect.flip(client.get("n", "k")))
      yield* Deferred.await(asked)
      yield* TestClock.adjust("5 seconds")
      expect(yield* Fiber.join(call)).toMatchObject({ _tag: "ConnectionFailed", isTimeout: true })
    })
  )

  it.scoped("follows as a stream, which ends when it is interrupted", () =>
    Effect.gen(function* () {
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
  )

  it.scoped("is a service of a program", () =>
    Effect.gen(function* () {
      const { url } = yield* Effect.provide(quickEdge.serve(Memory.layer), quiet)
      const program = Effect.flatMap(Client.Client, client => client.set("n", "k", 1))
      const entry = yield* Effect.provide(program, Client.layer({ baseUrl: url, token: keys.write }))
      expect(entry).toMatchObject({ version: 1 })
    })
  )
})
