/** Stores to copy: their places, what is written to them, and what can be read of them; and copies that are refused. */
import { expect } from "@effect/vitest"
import { Effect, Layer, Option, Redacted } from "effect"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { type ChangeLog, HistoryTrimmed } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import * as Backends from "../../../src/Storage/Backends.ts"
import * as StoreCopy from "../../../src/Storage/StoreCopy.ts"
import { nodeLayer, optionsOf } from "../../postgres/Databases.ts"
import { quiet } from "../../postgres/Live.ts"
import { feed, lastSeq, list, put, remove, set, start } from "../../suites/Store/Fixture.ts"

export const files = (directory: string): StoreCopy.Location => ({ directory, postgres: Option.none() })

export const database = (url: string): StoreCopy.Location => ({
  directory: "",
  postgres: Option.some({ url: Redacted.make(url), directUrl: Option.none(), connections: 1 })
})

/** Why a copy is refused. */
export const refusal = <A>(copying: Effect.Effect<A, StoreCopy.StoreCopyRefused | StoreCopy.StoreCopyFailed>) =>
  Effect.map(Effect.flip(copying), error => {
    expect(error).toBeInstanceOf(StoreCopy.StoreCopyRefused)
    return error.message
  })

type Ports = Store | ChangeLog | SessionEvents

/** Uses the store in a directory, and closes it. */
export const inSqlite =
  (directory: string) =>
  <A, E>(body: Effect.Effect<A, E, Ports>) =>
    Effect.provide(body, Layer.provide(Backends.sqlite({ directory, writer: "inline" }), quiet))

/** Uses the store in a database as a node does, and closes it. */
export const inPostgres =
  (url: string) =>
  <A, E>(body: Effect.Effect<A, E, Ports>) =>
    Effect.provide(body, Layer.provide(nodeLayer(optionsOf(url)), quiet))

/** The sessions that tests write to, and the ids that clients give to requests there. */
export const sessions = ["t/one", "t/two"]
export const requests = ["a\u0000b", "😀", "r".repeat(256)]

/** The records after a position, read in pages, or that some of them were removed. */
const feedAfter = (after: number, limit?: number) =>
  Effect.catchAll(feed(after, limit), error =>
    error instanceof HistoryTrimmed ? Effect.succeed({ trimmedSeq: error.trimmedSeq }) : Effect.fail(error)
  )

/** Writes that a store remembers from the first time: of a tenant, and of an API key, which belongs to none. */
const keyed = Effect.forEach(["t", ""], tenant =>
  Effect.flatMap(Store, store =>
    store.commit({
      operations: [set("n", `keyed${tenant}`, 1, { expiresAt: start + 20_000 })],
      actor: "tester",
      idempotencyKey: { tenant, id: `id of ${tenant}`, digest: "digest" }
    })
  )
)

/** All that can be read of a store but epochs; the log from every twentieth position. */
export const contentOf = Effect.gen(function* () {
  const { find, read, receipt, configuration, unfinished } = yield* SessionEvents
  const store = yield* Store
  const namespaces = ["n", "tenant:t/sessions", "m".repeat(512)]
  return {
    feeds: yield* Effect.forEach(Array.from({ length: 1 + (yield* lastSeq) / 20 }), (_, index) =>
      feedAfter(20 * index, 4)
    ),
    lists: yield* Effect.forEach(namespaces, namespace => list(namespace)),
    counts: (yield* store.namespaces({ prefix: "", after: "", limit: 1000, tenant: "" })).namespaces,
    tenants: (yield* store.tenants({ prefix: "", limit: 1000, tenant: "" })).tenants,
    unfinished: yield* unfinished,
    remembered: (yield* keyed).map(({ isReplay, lastSeq, timestamp }) => ({ isReplay, lastSeq, timestamp })),
    sessions: yield* Effect.forEach(sessions, session =>
      Effect.all({
        history: Effect.map(
          find(session),
          Option.map(({ epoch: _, ...history }) => history)
        ),
        events: Effect.map(
          read(session, 0, 1000),
          Option.map(({ events }) => events)
        ),
        configuration: configuration(session),
        receipts: Effect.forEach(requests, id => receipt(session, id))
      })
    )
  }
})

/** Writes something of each kind. */
export const fill = Effect.gen(function* () {
  yield* put("n", "a", 1)
  yield* put("n", "gone", "soon")
  yield* remove("n", "gone")
  yield* keyed
  yield* put("n", "due", null, { expiresAt: start + 10_000 })
  const events = yield* SessionEvents
  const { epoch } = yield* events.open("t/one", "e1")
  yield* events.append({ session: "t/one", epoch, after: 0, timestamp: 1, texts: ["{}", "[]"], recoveryState: "{}" })
  yield* events.configure("t/one", { environment: '{"A":"b"}', deployment: null })
})
