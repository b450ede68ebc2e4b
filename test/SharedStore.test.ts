/** Services that share one PostgreSQL. test/history/Postgres.system.test.ts has nodes and databases that fail. */
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, Option, Random, Stream } from "effect"
import { createDatabase } from "./postgres/Databases.ts"
import { reasonToSkip } from "./postgres/Server.ts"
import * as Client from "./service/Client.ts"
import * as Environment from "./service/Environment.ts"
import * as InProcess from "./service/InProcess.ts"
import * as Service from "./service/Service.ts"
import { temporaryDirectory } from "./TemporaryDirectory.ts"

/** A service over the database, with a directory of its own. */
const start = (url: string) =>
  Effect.flatMap(temporaryDirectory, directory =>
    Service.start({ directory, env: { STORE_URL: url, LOG_LEVEL: "info" } })
  )

/** The same within this process. */
const serve = (url: string) => InProcess.serve({ STORE_URL: url, KV_API_KEY: Service.key })

layer(Environment.layer, { excludeTestServices: true })(`services with one PostgreSQL ${reasonToSkip ?? ""}`, it => {
  if (reasonToSkip !== undefined) {
    it.skip("see each other's writes")
    return
  }

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
