/** A node on PostgreSQL, and what tests ask of it. */
import { Context, Effect, Either, Layer, Logger, LogLevel } from "effect"
import * as Change from "../../../src/Kv/Change.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store, StoreUnavailable } from "../../../src/Kv/Store.ts"
import { migrations } from "../../../src/Storage/Postgres/Schema.ts"
import * as Postgres from "../../../src/Storage/Postgres.ts"
import { createDatabase, execute } from "../../postgres/Databases.ts"
import { set } from "../../suites/Store/Fixture.ts"

export const namespace = "tenant:t/node"

/** True time, whatever the clock of the test: sockets and timers have their turn. */
const pause = Effect.promise(() => new Promise<void>(resolve => setTimeout(resolve, 10)))

const isLate = (error: unknown): boolean =>
  error instanceof StoreUnavailable &&
  /not open: (?:no answer within|timeout expired|its schema is brought)/.test(error.reason)

/**
 * On a busy machine the database may open later than a node waits for it at its start. An unavailable one is
 * not waited for.
 */
export const opening = ({ log }: { readonly log: Context.Tag.Service<ChangeLog> }): Effect.Effect<void> =>
  Effect.ignore(Effect.retry(log.lastSeq, { while: error => Effect.as(pause, isLate(error)) }))

/** A store of its own over a database, until the scope closes. */
export const node = (options: Postgres.Options) =>
  Effect.gen(function* () {
    const context = yield* Layer.build(Postgres.layer(options))
    const made = { store: Context.get(context, Store), log: Context.get(context, ChangeLog) }
    yield* opening(made)
    return made
  })

export type Node = Effect.Effect.Success<ReturnType<typeof node>>

export const put = ({ store }: Node, key: string, value: unknown) =>
  store.commit({ operations: [set(namespace, key, value)], actor: "tester" })

export const isUnavailable = (outcome: Either.Either<unknown, unknown>): boolean =>
  Either.isLeft(outcome) && outcome.left instanceof StoreUnavailable

/** Tries again while the store is unavailable. */
export const persist = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.retry(effect, { while: error => Effect.as(pause, error instanceof StoreUnavailable) })

/** Waits until the store says that it is ready. */
export const ready = ({ store }: Node) =>
  Effect.repeat(
    Effect.tap(store.ready, isReady => (isReady ? Effect.void : pause)),
    { until: isReady => isReady }
  )

/** A database with the schema as an earlier version left it. */
export const databaseAt = (version: number) =>
  Effect.gen(function* () {
    const url = yield* Effect.promise(() => createDatabase())
    const statements = [
      "BEGIN",
      "CREATE SCHEMA causeway",
      `CREATE TABLE causeway.migrations (
        version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
      )`,
      ...migrations
        .slice(0, version)
        .flatMap(({ name, statements }, index) => [
          ...statements,
          `INSERT INTO causeway.migrations (version, name) VALUES (${index + 1}, '${name}')`
        ]),
      "COMMIT"
    ]
    yield* Effect.promise(() => execute(url, ...statements))
    return url
  })

/** Gives the role time limits that end each transaction whose statements arrive late. */
export const limitRole = (url: string) => {
  const name = new URL(url).pathname.slice(1)
  const limits = { idle_in_transaction_session_timeout: 10, lock_timeout: 1, statement_timeout: 50 }
  return execute(url, ...Object.entries(limits).map(([limit, ms]) => `ALTER DATABASE ${name} SET ${limit} = ${ms}`))
}

/** The first thousand records of the log. */
export const records = ({ log }: Node) =>
  Effect.map(log.read({ after: 0, limit: 1000, tenant: "" }), ({ changes }) => changes.map(Change.decode))

/** Without a log. */
export const quiet = Logger.remove(Logger.defaultLogger)

/** Collects what is logged. */
export const logged = () => {
  const lines: Array<string> = []
  const layer = Logger.replace(
    Logger.defaultLogger,
    Logger.map(Logger.jsonLogger, line => {
      lines.push(line)
    })
  )
  return { lines, layer: Layer.merge(layer, Logger.minimumLogLevel(LogLevel.Debug)) }
}

/** Sets the wall clock of this process ahead of the true time, by milliseconds, until the scope closes. */
export const withClockAhead = (millis: number) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const original = Date.now
      Date.now = () => original() + millis
      return original
    }),
    original =>
      Effect.sync(() => {
        Date.now = original
      })
  )
