import { watch } from "node:fs"
import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Random, type Scope } from "effect"
import * as ServiceNode from "./history/ServiceNode.ts"
import * as Workload from "./history/Workload.ts"
import { isSoak, times } from "./Scale.ts"
import * as Client from "./service/Client.ts"
import * as Environment from "./service/Environment.ts"
import { serve } from "./service/InProcess.ts"
import * as Service from "./service/Service.ts"
import { temporaryDirectory } from "./TemporaryDirectory.ts"

/** Fulfilled by the `count`-th thing that happens to a file of the directory whose name has this beginning. */
const happenings = (
  directory: string,
  beginning: string,
  count: number
): Effect.Effect<Effect.Effect<void>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const reached = yield* Deferred.make<void>()
    let left = count
    yield* Effect.acquireRelease(
      Effect.sync(() =>
        watch(directory, (_, name) => {
          if (name?.startsWith(beginning) === true && --left === 0) Deferred.unsafeDone(reached, Effect.void)
        })
      ),
      watcher => Effect.sync(() => watcher.close())
    )
    return Deferred.await(reached)
  })

/** A service for as long as the effect needs it. */
const withService = <A, E, R>(directory: string, use: (service: Service.Running) => Effect.Effect<A, E, R>) =>
  Effect.scoped(Effect.flatMap(Service.start({ directory }), use))

/** The service within this process, for as long as the effect needs it: what it finds in the files is the same. */
const withFound = <A, E, R>(
  directory: string,
  use: (service: Pick<Service.Running, "url">) => Effect.Effect<A, E, R>
) => Effect.scoped(Effect.flatMap(serve({ DATA_DIR: directory, KV_API_KEY: Service.key }), use))

const killed = (service: Service.Running) => Effect.asVoid(service.end("SIGKILL"))

layer(Environment.layer, { excludeTestServices: true })("the service", it => {
  it.scoped("has a batch of 15 MiB entirely or not at all, whenever it is killed", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const random = Random.make("large")
      const acknowledged: Array<string> = []
      const valueOf = (actor: string) => actor.slice(0, 1).repeat(1_000_000)
      const keys = Array.from({ length: 15 }, (_, index) => `large/${index}`)
      const isWhole = ({ url }: Pick<Service.Running, "url">) =>
        Effect.gen(function* () {
          const client = yield* Client.make(url)
          const log = yield* Client.persist(client.poll(0))
          const actors = [...new Set(log.map(({ actor }) => actor))]
          assert.isTrue(log.every(({ actor, value }) => value === valueOf(actor)))
          assert.deepStrictEqual(
            log.map(({ actor, key }) => `${actor} ${key}`),
            actors.flatMap(actor => keys.map(key => `${actor} ${key}`))
          )
          assert.includeMembers(actors, acknowledged)
          const entries = yield* Client.persist(client.entries("plain"))
          assert.lengthOf(entries, actors.length === 0 ? 0 : keys.length)
          assert.isTrue(
            entries.every(({ updatedBy, value }) => updatedBy === actors.at(-1) && value === valueOf(updatedBy))
          )
        })
      const rounds = times(4)
      for (let round = 0; round < rounds; round++) {
        // Its pages come to some 5,000 writes to the log, and as many again when they are copied into the database.
        const count = (round % 4) * 2000 + (yield* random.nextIntBetween(1, 2000))
        yield* withService(directory, service =>
          Effect.gen(function* () {
            yield* isWhole(service)
            const client = yield* Client.make(service.url)
            const reached = yield* happenings(directory, "kv.db", count)
            const actor = `${String.fromCharCode(97 + (round % 26))}${round}`
            const operations = keys.map(key => ({ op: "set" as const, namespace: "plain", key, value: valueOf(actor) }))
            const sent = yield* Effect.fork(Effect.exit(client.batch(operations, { actor })))
            yield* Effect.raceFirst(reached, Fiber.await(sent))
            yield* killed(service)
            if (Exit.isSuccess(yield* Fiber.join(sent))) acknowledged.push(actor)
          })
        )
      }
      yield* withFound(directory, isWhole)
    })
  )

  /** Starts the service and kills it when something happens to its files for the `count`-th time. */
  const killStart = (directory: string, count: number) =>
    Effect.scoped(
      Effect.gen(function* () {
        const reached = yield* happenings(directory, "kv.", count)
        const service = yield* Service.launch({ directory })
        const first = yield* Effect.raceFirst(
          Effect.as(reached, "killed" as const),
          Effect.as(service.serving, "served" as const)
        )
        service.signal("SIGKILL")
        yield* service.ended
        return first
      })
    )

  const step = (random: Random.Random) => (isSoak ? Effect.succeed(1) : random.nextIntBetween(8, 20))

  it.scoped("leaves nothing that prevents the next process from creating the store", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const random = Random.make("creation")
      let kills = 0
      for (let count = 1; (yield* killStart(directory, count)) === "killed"; count += yield* step(random)) kills++
      assert.isAbove(kills, 0)
      yield* withService(directory, service =>
        Effect.gen(function* () {
          const client = yield* Client.make(service.url)
          yield* Client.once(options => client.set("n", "k", 1, options))
          assert.deepStrictEqual(
            (yield* client.poll(0)).map(({ seq, key, value }) => ({ seq, key, value })),
            [{ seq: 1, key: "k", value: 1 }]
          )
        })
      )
    })
  )

  it.scoped("loses nothing of a store that was killed under load before", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const random = Random.make("recovery")
      const node = yield* ServiceNode.start("node", { directory })
      let kills = 0
      const killStarts = Effect.gen(function* () {
        for (let count = 1; (yield* killStart(directory, count)) === "killed"; count += yield* step(random)) kills++
      })
      yield* Workload.run(
        { seed: "recovery", nodes: [node], key: Service.key, clients: 8, operations: 300, clockError: 50 },
        ({ done }) => Effect.zipRight(done(200), node.restart(Effect.orDie(killStarts)))
      )
      assert.isAbove(kills, 0)
    })
  )

  it.scoped("refuses a second process while the first runs undisturbed, and admits it after the first was killed", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      yield* withService(directory, first =>
        Effect.gen(function* () {
          const client = yield* Client.make(first.url)
          yield* Client.once(options => client.set("n", "k", "before", options))
          const refused = yield* Effect.flip(Service.start({ directory }))
          assert.strictEqual(refused.code, 1)
          assert.include(refused.stderr, join(directory, "kv.lock"))
          assert.include(refused.stderr, "another process has this store open")
          assert.strictEqual(refused.stderr.trim().split("\n").length, 1)
          assert.strictEqual((yield* Client.once(options => client.set("n", "k", "after", options))).version, 2)
          yield* killed(first)
        })
      )
      yield* withFound(directory, second =>
        Effect.gen(function* () {
          const client = yield* Client.make(second.url)
          const { value, version } = yield* client.existing("n", "k")
          assert.deepStrictEqual({ value, version }, { value: "after", version: 2 })
          assert.strictEqual((yield* Client.once(options => client.set("n", "k", "on", options))).version, 3)
        })
      )
    })
  )
})
