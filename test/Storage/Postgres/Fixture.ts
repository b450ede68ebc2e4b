/** A node on PostgreSQL, and what tests ask of it. */
import { Context, Effect, Either, Layer, Logger, LogLevel } from "effect"
import * as Change from "../../../src/Kv/Change.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store, StoreUnavailable } from "../../../src/Kv/Store.ts"
import { type Migration, Migrations, migrations } from "../../../src/Storage/Postgres/Schema.ts"
import type * as Postgres from "../../../src/Storage/Postgres.ts"
import { execute, newStore, optionsOf, sql } from "../../postgres/Databases.ts"
import * as Opened from "../../postgres/Opened.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { set } from "../../suites/Store/Fixture.ts"

export const namespace = "tenant:t/node"

/** A store of its own over a database, until the scope closes. */
export const node = (options: Postgres.Options | string) =>
  Effect.gen(function* () {
    const context = yield* Layer.build(Opened.layer(typeof options === "string" ? optionsOf(options) : options))
    return { store: Context.get(context, Store), log: Context.get(context, ChangeLog) }
  })

/** Waits until a statement of the database waits for a lock. */
export const someoneWaits = (url: string) =>
  Effect.repeat(sql(url, "SELECT FROM pg_locks WHERE NOT granted"), { until: waiting => waiting.length > 0 })

/** A node whose connections lead through a proxy. */
export const behindProxy = Effect.gen(function* () {
  const url = yield* newStore
  const proxy = yield* Proxy.make(url)
  return { url, proxy, started: yield* node(proxy.url) }
})

export type Node = Effect.Effect.Success<ReturnType<typeof node>>

export const put = ({ store }: Node, key: string, value: unknown) =>
  store.commit({ operations: [set(namespace, key, value)], actor: "tester" })

export const isUnavailable = (outcome: Either.Either<unknown, unknown>): boolean =>
  Either.isLeft(outcome) && outcome.left instanceof StoreUnavailable

/** Waits until the store says that it is ready. */
export const ready = ({ store }: Node) =>
  Effect.repeat(
    Effect.tap(store.ready, isReady => (isReady ? Effect.void : Opened.pause)),
    { until: isReady => isReady }
  )

/** A step after those of this version. It locks tables against reads and against writes. */
export const laterStep: Migration = {
  name: "later",
  statements: [
    "ALTER TABLE causeway.log ADD COLUMN later text",
    "LOCK TABLE causeway.entries IN SHARE ROW EXCLUSIVE MODE",
    "ALTER TABLE causeway.remembered_tenants ADD COLUMN later text",
    "ALTER TABLE causeway.nodes ADD COLUMN later text"
  ],
  locks: {
    log: "ACCESS EXCLUSIVE",
    entries: "SHARE ROW EXCLUSIVE",
    remembered_tenants: "ACCESS EXCLUSIVE",
    nodes: "ACCESS EXCLUSIVE"
  }
}

/** The steps of a version that has one more. */
export const laterSteps: ReadonlyArray<Migration> = [...migrations, laterStep]

/** As a node of that version. */
export const later = Effect.provideService(Migrations, laterSteps)

/** Gives the role time limits that end each transaction whose statements arrive late. */
export const limitRole = (url: string) => {
  const name = new URL(url).pathname.slice(1)
  const limits = { idle_in_transaction_session_timeout: 10, lock_timeout: 1, statement_timeout: 50 }
  return execute(url, ...Object.entries(limits).map(([limit, ms]) => `ALTER DATABASE ${name} SET ${limit} = ${ms}`))
}

/** The address for sessions to which those time limits do not apply, for a busy machine could exceed them. */
export const unlimited = (url: string): string => {
  const address = new URL(url)
  const limits = ["idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout"]
  address.searchParams.set("options", limits.map(limit => `-c ${limit}=0`).join(" "))
  return address.href
}

/** The first thousand records of the log. */
export const records = ({ log }: Node) =>
  Effect.map(log.read({ after: 0, limit: 1000, tenant: "" }), ({ changes }) => changes.map(Change.decode))

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
