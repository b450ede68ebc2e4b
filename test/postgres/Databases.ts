/**
 * Databases for tests. A cluster is initialized once in a test run, on first use, and copied for each server.
 */
import { randomUUID } from "node:crypto"
import { existsSync, mkdirSync, renameSync } from "node:fs"
import { join } from "node:path"
import { Effect, Layer, Option, Redacted, type Scope } from "effect"
import type { YieldWrap } from "effect/Utils"
import pg from "pg"
import { inject } from "vitest"
import type { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import type { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import type { Store } from "../../src/Kv/Store.ts"
import * as PostgresSessionEvents from "../../src/Storage/Postgres/SessionEvents.ts"
import type * as Postgres from "../../src/Storage/Postgres.ts"
import * as Opened from "./Opened.ts"
import * as Server from "./Server.ts"

/** An initialized cluster, which test processes that start together make once. */
const template = async (): Promise<string> => {
  const root = inject("clusters")
  const ready = join(root, "template")
  try {
    mkdirSync(join(root, "lock"))
    Server.initialize(join(root, "initializing"))
    renameSync(join(root, "initializing"), ready)
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error
    while (!existsSync(ready)) await new Promise(resolve => setTimeout(resolve, 20))
  }
  return ready
}

/** Starts a server over a new cluster. */
export const startServer = async (settings: Readonly<Record<string, string>>): Promise<Server.Server> => {
  const from = await template()
  // No counter: `vi.resetModules` of another file of this process would set it back.
  const directory = join(inject("clusters"), randomUUID())
  Server.copy(from, directory)
  return Server.start(directory, await Server.freePort(), settings)
}

/** A server of its own, until the scope closes. */
export const server = (settings: Readonly<Record<string, string>>): Effect.Effect<Server.Server, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(() => startServer(settings)),
    server => Effect.promise(() => server.stop("immediate"))
  )

/** A server over a copy of the cluster of another one that does not run. It has yet to be started. */
export const copyOf = ({ directory }: Server.Server): Effect.Effect<Server.Server, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const copy = `${directory}-copy`
      Server.copy(directory, copy)
      return Server.start(copy, await Server.freePort(), {}, false)
    }),
    server => Effect.promise(() => server.stop("immediate"))
  )

/** The server that all test files of this process share. It flushes nothing, and ends with the process. */
let shared: Promise<Server.Server> | undefined
const sharedServer = (): Promise<Server.Server> => {
  shared ??= startServer(Server.fast)
  return shared
}

/** Runs statements on a connection of their own. */
export const execute = async (
  url: string,
  ...statements: ReadonlyArray<string>
): Promise<ReadonlyArray<Record<string, unknown>>> => {
  const client = new pg.Client({ connectionString: url })
  client.on("error", () => undefined)
  await client.connect()
  try {
    let rows: ReadonlyArray<Record<string, unknown>> = []
    for (const statement of statements) rows = (await client.query(statement)).rows
    return rows
  } finally {
    await client.end()
  }
}

/** Runs statements of one connection. */
export const withClient = <Eff extends YieldWrap<Effect.Effect<unknown, unknown, unknown>>, A>(
  url: string,
  use: (query: (text: string) => Effect.Effect<void>) => Generator<Eff, A, never>
) =>
  Effect.acquireUseRelease(
    Effect.promise(async () => {
      const client = new pg.Client({ connectionString: url })
      client.on("error", () => undefined)
      await client.connect()
      return client
    }),
    client => Effect.gen(() => use(text => Effect.promise(() => client.query(text)))),
    client => Effect.promise(() => client.end())
  )

/**
 * Gives a database that is still empty a clock of its own. Returns how to set it forward from the true time, by
 * milliseconds; connections are to be made after this.
 */
export const withOwnClock = async (url: string): Promise<(ahead: number) => Promise<void>> => {
  await execute(
    url,
    "CREATE SCHEMA own",
    "CREATE TABLE own.clock AS SELECT 0 AS ahead",
    `CREATE FUNCTION own.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
       $$ SELECT pg_catalog.clock_timestamp() + ahead * interval '1 millisecond' FROM own.clock $$`,
    `ALTER DATABASE ${new URL(url).pathname.slice(1)} SET search_path = own, pg_catalog`
  )
  return async ahead => {
    await execute(url, `UPDATE own.clock SET ahead = ${ahead}`)
  }
}

let databases = 0

/** The address of a new database, which is empty or has what another one has. */
export const createDatabase = async (server?: Server.Server, copied = "template1"): Promise<string> => {
  const { urlOf } = server ?? (await sharedServer())
  const name = `test_${process.pid}_${++databases}`
  await execute(urlOf("postgres"), `CREATE DATABASE ${name} TEMPLATE ${copied}`)
  return urlOf(name)
}

/** The name of a database of the shared server with the schema of a store. */
let made: Promise<string> | undefined
const storeTemplate = (): Promise<string> => {
  const make = async () => {
    const url = await createDatabase()
    await Effect.runPromise(Opened.open(url))
    return new URL(url).pathname.slice(1)
  }
  made ??= make()
  return made
}

/** The address of a new database with the schema of a store. To copy it takes a third of the time of its steps. */
export const createStore = async (): Promise<string> => {
  const url = await createDatabase(undefined, await storeTemplate())
  await execute(url, "SELECT causeway.renew_epoch()")
  return url
}

/** The address of a new database. */
export const newDatabase = Effect.promise(() => createDatabase())

/** The address of a new database with the schema of a store. */
export const newStore = Effect.promise(createStore)

/** Runs statements on a connection of their own. */
export const sql = (url: string, ...statements: ReadonlyArray<string>) =>
  Effect.promise(() => execute(url, ...statements))

/** How tests open a store. */
export const optionsOf = (url: string): Postgres.Options => ({
  url: Redacted.make(url),
  directUrl: Option.none(),
  connections: 4
})

/** A database that is emptied each time its address is asked for, by one connection: a new one takes longer. */
const emptying = () => {
  let made: Promise<{ readonly url: string; readonly client: pg.Client }> | undefined
  const make = async () => {
    const url = await createStore()
    const client = new pg.Client({ connectionString: url })
    client.on("error", () => undefined)
    await client.connect()
    return { url, client }
  }
  return async (): Promise<string> => {
    made ??= make()
    const { client, url } = await made
    await client.query(
      // TRUNCATE makes new files of all tables and indexes, which takes three times as long.
      `DO $$
      DECLARE
        name text;
      BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'causeway' AND tablename <> 'migrations' LOOP
          IF name = 'log' THEN
            UPDATE causeway.log SET trimmed_seq = 0;
          ELSIF name = 'positions' THEN
            UPDATE causeway.positions SET up_to = 0;
          ELSE
            EXECUTE format('DELETE FROM causeway.%I', name);
          END IF;
        END LOOP;
      END $$`
    )
    return url
  }
}

/** Few connections, each of which costs the server a process. */
const fewOf = (url: string): Postgres.Options => ({ ...optionsOf(url), connections: 2 })

/** A layer over a database that is emptied for each build of it. */
const emptied = <A, E>(layerOf: (options: Postgres.Options) => Layer.Layer<A, E>): Layer.Layer<A, E> => {
  const next = emptying()
  return Layer.unwrapEffect(Effect.map(Effect.promise(next), url => layerOf(fewOf(url))))
}

/** Stores that are opened one after the other, each in a directory: the first one there finds its database empty. */
export const emptiedAt = (): ((directory: string) => Layer.Layer<Store | ChangeLog, unknown>) => {
  const next = emptying()
  let last: { readonly directory: string; readonly url: string } | undefined
  return directory =>
    Layer.unwrapEffect(
      Effect.promise(async () => {
        if (last?.directory !== directory) last = { directory, url: await next() }
        return Opened.layer(fewOf(last.url))
      })
    )
}

/** A store whose database is emptied for each build of the layer. */
export const emptiedLayer = (): Layer.Layer<Store | ChangeLog, unknown> => emptied(Opened.layer)

/** The store of a node, with its session event log. */
export const nodeLayer = (
  options: Postgres.Options,
  sessions: PostgresSessionEvents.Options = {}
): Layer.Layer<Store | ChangeLog | SessionEvents, unknown> =>
  Layer.provideMerge(PostgresSessionEvents.layer(sessions), Opened.layer(options))

/** The same, over a database that is emptied for each build of the layer. */
export const emptiedNode = (sessions: PostgresSessionEvents.Options = {}) =>
  emptied(options => nodeLayer(options, sessions))
