/** Service processes that share one PostgreSQL. */
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, Option, Random, Stream } from "effect"
import type { Change } from "../src/Kv/Api.ts"
import { createDatabase, server } from "./postgres/Databases.ts"
import { reasonToSkip } from "./postgres/Server.ts"
import { onlyLong } from "./Scale.ts"
import * as Client from "./service/Client.ts"
import * as Environment from "./service/Environment.ts"
import { History } from "./service/History.ts"
import * as InProcess from "./service/InProcess.ts"
import * as Load from "./service/Load.ts"
import * as Service from "./service/Service.ts"
import { temporaryDirectory } from "./TemporaryDirectory.ts"

/** A service over the database, with a directory of its own. */
const start = (url: string) =>
  Effect.flatMap(temporaryDirectory, directory =>
    Service.start({ directory, env: { STORE_URL: url, LOG_LEVEL: "info" } })
  )

/** The same within this process. */
const serve = (url: string) => InProcess.serve({ STORE_URL: url, KV_API_KEY: Service.key })

/** Waits until a service can read again. */
const readable = (service: Service.Running) =>
  Effect.flatMap(Client.make(service.url), client => Client.persist(client.entries("plain")))

layer(Environment.layer, { excludeTestServices: true })(`services with one PostgreSQL ${reasonToSkip ?? ""}`, it => {
  if (reasonToSkip !== undefined) {
    it.skip("see each other's writes")
    return
  }

  onlyLong(it.scoped)(
    "see each other's writes in order and each once, when one is killed and when the database is stopped at once",
    () =>
      Effect.gen(function* () {
        const database = yield* server({})
        const url = yield* Effect.promise(() => createDatabase(database))
        const history = new History()
        const [one, other] = yield* Effect.all([start(url), start(url)], { concurrency: 2 })
        const followed = { one: [] as Array<typeof Change.Type>, other: [] as Array<typeof Change.Type> }
        const load = { history, writers: 4 }

        // Both write; one is killed during that, and the other continues.
        yield* Effect.all(
          [
            Load.run({
              ...load,
              service: one,
              name: "one",
              followed: followed.one,
              followBy: "webSocket",
              writes: 150,
              end: Effect.asVoid(one.end("SIGKILL"))
            }),
            Load.run({
              ...load,
              service: other,
              name: "other",
              followed: followed.other,
              followBy: "longPolling",
              writes: 600,
              end: Effect.promise(() => database.stop("immediate"))
            })
          ],
          { concurrency: 2 }
        )
        yield* Effect.promise(() => database.start())
        yield* readable(other)
        const again = yield* start(url)
        for (const service of [other, again]) {
          for (const feed of [followed.one, followed.other]) {
            assert.deepStrictEqual(yield* Load.findings(service, history, feed), [])
          }
        }
        assert.isAbove(followed.one.length, 0)
        assert.isAbove(followed.other.length, 0)
      }),
    { timeout: 600_000 }
  )

  it.scoped("wake a follower on one for a write on another", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const [one, other] = yield* Effect.all([start(url), serve(url)], { concurrency: 2 })
      const [writer, reader] = [yield* Client.make(one.url), yield* Client.make(other.url)]
      const first = yield* Deferred.make<void>()
      const count = 30
      const following = yield* Effect.fork(
        reader.follow({ after: 0 }).pipe(
          Stream.filterMap(event => (event.type === "change" ? Option.some(event.change) : Option.none())),
          Stream.tap(() => Deferred.succeed(first, undefined)),
          Stream.take(count),
          Stream.runCollect
        )
      )
      const random = Random.make("follow")
      for (let n = 0; n < count; n++) {
        const key = `k${yield* random.nextIntBetween(0, 3)}`
        yield* Client.once(options => writer.set("plain", key, n, { actor: "one", ...options }))
        if (n === 0) yield* Deferred.await(first)
      }
      const seen = [...(yield* Fiber.join(following))]
      assert.deepStrictEqual(
        seen.map(({ seq, value }) => [seq, value]),
        Array.from({ length: count }, (_, n) => [n + 1, n])
      )
    })
  )
})
