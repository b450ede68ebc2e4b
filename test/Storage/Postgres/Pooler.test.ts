/** Nodes behind a pooler in transaction mode. */
import { expect, it } from "@effect/vitest"
import { Effect, Fiber, Option, Redacted, Stream } from "effect"
import * as Pool from "../../../src/Storage/Postgres/Database/Pool.ts"
import type * as Postgres from "../../../src/Storage/Postgres.ts"
import * as Bouncer from "../../postgres/Bouncer.ts"
import { newDatabase, optionsOf, sql } from "../../postgres/Databases.ts"
import { live, onPostgres, quiet } from "../../postgres/Live.ts"
import * as Server from "../../postgres/Server.ts"
import { set } from "../../suites/Store/Fixture.ts"
import { namespace, node } from "./Fixture.ts"

/** Beside other load, a connection may take longer than its time limit. Then nothing was done. */
const connected = <A, E extends { readonly _tag: string }, R>(call: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.retry(call, { while: error => "reason" in error && String(error.reason).includes("when trying to connect") })

const reasonToSkip = Server.reasonToSkip ?? Bouncer.reasonToSkip

onPostgres(
  "Postgres, behind a pooler",
  () => {
    /** Two nodes at once do all that a store does, many times, so that their transactions meet on the same connections. */
    const works = (optionsFor: (pooler: string, direct: string) => Postgres.Options) =>
      Effect.gen(function* () {
        const direct = yield* newDatabase
        const options = optionsFor(yield* Bouncer.make(direct), direct)
        const [one, other] = [yield* node(options), yield* node(options)]
        const count = 40
        const following = yield* Effect.fork(
          Effect.iterate(0, {
            while: seen => seen < count,
            body: seen =>
              Effect.gen(function* () {
                const page = yield* connected(other.log.read({ after: seen, limit: 100, tenant: "t" }))
                if (page.lastSeq === seen) yield* other.log.awaitPast(seen)
                return page.lastSeq
              })
          })
        )
        yield* Effect.forEach(
          Array.from({ length: count }, (_, n) => n),
          n =>
            Effect.gen(function* () {
              const writer = n % 2 === 0 ? one : other
              const reader = n % 2 === 0 ? other : one
              yield* connected(writer.store.commit({ operations: [set(namespace, `k${n}`, n)], actor: "tester" }))
              expect(Option.getOrThrow(yield* connected(reader.store.get(namespace, `k${n}`)))).toMatchObject({
                value: String(n)
              })
              const page = yield* connected(reader.store.list({ namespace, prefix: `k${n}`, after: "", limit: 1 }))
              expect(page.entries[0]?.key).toBe(`k${n}`)
            }),
          { concurrency: 8 }
        )
        yield* Fiber.join(following)
        const { portions } = yield* connected(other.store.listAll({ namespace, prefix: "" }))
        expect([...(yield* Stream.runCollect(portions))].flat()).toHaveLength(count)
        expect(yield* connected(one.log.lastSeq)).toBe(count)
      }).pipe(Effect.provide(quiet))

    it.scopedLive("that STORE_DIRECT_URL declares", () =>
      works((pooler, direct) => ({
        ...optionsOf(pooler),
        directUrl: Option.some(Redacted.make(direct))
      }))
    )

    live("whose connections have no time for a statement: the error says so", function* () {
      const direct = yield* newDatabase
      const name = new URL(direct).pathname.slice(1)
      yield* sql(direct, `ALTER DATABASE ${name} SET statement_timeout = 1`)
      const url = Redacted.make(yield* Bouncer.make(direct))
      const pool = yield* Pool.make({ url, isPooled: true, max: 1, statementTimeout: 10_000 })
      const slow = { text: "SELECT pg_sleep(1)", values: [], decode: () => undefined }
      const error = yield* Effect.flip(pool.read(slow))
      expect(error.reason).toMatch(/statement_timeout of the role|due to statement timeout/)
    })

    it.scopedLive("that is not declared, without notifications", () => works(pooler => optionsOf(pooler)))
  },
  reasonToSkip
)
