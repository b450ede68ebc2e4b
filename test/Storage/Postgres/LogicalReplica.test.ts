/** The statement of docs/postgresql.md for the sequences of a promoted logical replica, which are not replicated. */
import { expect } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { Store } from "../../../src/Kv/Store.ts"
import { fencesOf } from "../../Docs/Page.ts"
import { newDatabase, nodeLayer, optionsOf, sql } from "../../postgres/Databases.ts"
import { live, onPostgres } from "../../postgres/Live.ts"
import { set } from "../../suites/Store/Fixture.ts"
import { namespace } from "./Fixture.ts"

onPostgres("Postgres, a promoted logical replica", () => {
  live("stores sessions and counts entries after its sequences were set", function* () {
    const url = yield* newDatabase
    const run = (...statements: ReadonlyArray<string>) => sql(url, ...statements)
    const started = Effect.map(Layer.build(nodeLayer(optionsOf(url))), context => ({
      events: Context.get(context, SessionEvents),
      store: Context.get(context, Store)
    }))
    const write = (store: Context.Tag.Service<Store>, ...keys: ReadonlyArray<string>) =>
      Effect.forEach(keys, key => store.commit({ operations: [set(namespace, key, 1)], actor: "tester" }))
    yield* Effect.scoped(
      Effect.gen(function* () {
        const { events, store } = yield* started
        yield* write(store, "a", "b", "c")
        yield* events.open("t/before", "e")
      })
    )
    yield* run("SELECT causeway.fold_counts(1, 1000)")
    const sequences = yield* run("SELECT sequencename AS name FROM pg_sequences WHERE schemaname = 'causeway'")
    expect(sequences).toHaveLength(4)
    yield* run(...sequences.map(({ name }) => `ALTER SEQUENCE causeway.${name} RESTART`))

    const [statement] = fencesOf("docs/postgresql.md").filter(({ code }) => code.includes("setval("))
    yield* run(statement!.code)
    const { events, store } = yield* started
    yield* events.open("t/after", "e")
    yield* write(store, "d")
    const { namespaces } = yield* store.namespaces({ prefix: "", after: "", limit: 10, tenant: "" })
    expect(namespaces).toEqual([{ namespace, count: 4 }])
  })
})
