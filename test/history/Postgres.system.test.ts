/**
 * Several nodes over one PostgreSQL. Nodes are killed or paused and the database is stopped, while clients use all nodes in
 * turn. The answers must form one history.
 */
import { assert, layer } from "@effect/vitest"
import { Effect, Random } from "effect"
import * as Databases from "../postgres/Databases.ts"
import * as Server from "../postgres/Server.ts"
import { isSoak, times } from "../Scale.ts"
import * as Environment from "../service/Environment.ts"
import * as Service from "../service/Service.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { counts } from "./Checker.ts"
import * as ServiceNode from "./ServiceNode.ts"
import * as Workload from "./Workload.ts"

const seed = process.env.HISTORY_SEED ?? "history"

/** A server that ends at once loses no acknowledged write, as the machine continues. */
const settings = { ...Server.fast, synchronous_commit: "on" }

const start = (count: number) =>
  Effect.gen(function* () {
    const database = yield* Databases.server(settings)
    const url = yield* Effect.promise(() => Databases.createDatabase(database))
    const nodes = yield* Effect.forEach(
      Array.from({ length: count }, (_, index) => `node${index}`),
      name =>
        Effect.flatMap(temporaryDirectory, directory =>
          ServiceNode.start(name, { directory, env: { STORE_URL: url } })
        ),
      { concurrency: "unbounded" }
    )
    return { database, nodes }
  })

/** A standby that has what the database has now, and will take its place. */
const standbyOf = ({ directory, port }: Server.Server) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const copy = `${directory}-standby`
      Server.copy(directory, copy)
      return Server.start(copy, port, settings, false)
    }),
    server => Effect.promise(() => server.stop("immediate"))
  )

layer(Environment.layer, { excludeTestServices: true })(
  `the service on PostgreSQL ${Server.reasonToSkip ?? ""}`,
  it => {
    // Processes take long to start.
    for (const count of isSoak ? [2, 3] : [3]) {
      it.scoped.skipIf(Server.reasonToSkip !== undefined)(
        `keeps its promises to concurrent clients of ${count} nodes that are killed and paused`,
        () =>
          Effect.gen(function* () {
            const random = Random.make(`${seed} failures of ${count} nodes`)
            const { database, nodes } = yield* start(count)
            const failures = 3 * times(1)
            const between = 170 * count
            const history = yield* Workload.run(
              {
                ...{ seed: `${seed} ${count}`, nodes, key: Service.key, clients: 16, clockError: 100 },
                operations: (failures + 1) * between
              },
              ({ done, recorder }) =>
                Effect.gen(function* () {
                  for (let failure = 0; failure < failures; failure++) {
                    yield* done((failure + 1) * between - (yield* random.nextIntBetween(0, between / 2)))
                    const node = nodes[yield* random.nextIntBetween(0, count)]!
                    if (failure % 3 === 0) {
                      recorder.note(`${node.name} is killed`)
                      yield* node.restart()
                    } else if (failure % 3 === 1) {
                      recorder.note(`${node.name} is paused`)
                      yield* node.pause(yield* random.nextIntBetween(50, 1500))
                    } else {
                      recorder.note("the database is stopped at once")
                      yield* Effect.promise(() => database.stop("immediate"))
                      yield* Effect.promise(() => database.start())
                    }
                    recorder.note("over")
                  }
                })
            )
            const found = counts(history)
            for (const kind of ["write", "repetition", "removal", "read", "count", "reverse"]) {
              assert.isAbove(found[`${kind} ok`] ?? 0, 0, kind)
            }
          })
      )
    }

    it.scoped.skipIf(Server.reasonToSkip !== undefined)(
      "has another log after a standby was promoted that lacks the last writes, which followers learn from its epoch",
      () =>
        Effect.gen(function* () {
          const { database, nodes } = yield* start(2)
          const between = 150
          const history = yield* Workload.run(
            {
              ...{ seed: `${seed} promoted`, nodes, key: Service.key, clients: 8, clockError: 100 },
              operations: 3 * between
            },
            ({ done, recorder }) =>
              Effect.gen(function* () {
                yield* done(between)
                recorder.note("the standby receives no more")
                yield* Effect.promise(() => database.stop("fast"))
                const standby = yield* standbyOf(database)
                yield* Effect.promise(() => database.start())
                yield* done(2 * between)
                recorder.note("the standby is promoted")
                yield* Effect.promise(() => database.stop("immediate"))
                yield* Effect.promise(() => standby.start("standby"))
                yield* Effect.promise(() => Databases.execute(standby.urlOf("postgres"), "SELECT pg_promote()"))
              })
          )
          assert.isAbove(counts(history).reset ?? 0, 0)
          assert.strictEqual(Workload.epochs(history).size, 2)
        })
    )
  }
)
