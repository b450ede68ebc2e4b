/** One connection to the database: how it is made and prepared, and statements on a connection that no pool manages. */
import { Effect, Redacted, type Scope } from "effect"
import pg from "pg"
import { StoreUnavailable } from "../../../Kv/Store.ts"
import { isCanceled, unavailable } from "./DatabaseError.ts"
import { type Parameter, type Row, types } from "./Statement.ts"

/** The address and the session settings of a connection of a pool. */
export interface ClientOptions {
  readonly url: Redacted.Redacted
  /** Whether the address is that of a pooler. Then statements have no names, and sessions get no settings. */
  readonly isPooled: boolean
  /** The `statement_timeout` of the session, in milliseconds. */
  readonly statementTimeout: number
  /** The `idle_in_transaction_session_timeout` of the session, in milliseconds. */
  readonly idleTimeout?: number
}

/** The time limits of a session. A `statementTimeout` or an `idleTimeout` of 0 means none. */
type Timeouts = Pick<ClientOptions, "statementTimeout" | "idleTimeout">

/** How long an open transaction may wait for its next statement by default, in milliseconds. */
const defaultIdleTimeout = 5000

/** How long a client waits for a connection, in milliseconds. */
const connectTimeout = 1500

/** The `lock_timeout` of sessions, in milliseconds. */
const lockTimeout = 1500

/** How long an unused connection stays open, in milliseconds. */
export const unusedTimeout = 60_000

const noop = (): void => {}

/** The options of every client of the service. */
export const clientConfig = (url: Redacted.Redacted): pg.ClientConfig => ({
  connectionString: Redacted.value(url),
  connectionTimeoutMillis: connectTimeout,
  keepAlive: true,
  fallback_application_name: "causeway",
  types
})

/** A client that only fails to connect. It has no address and reads no files. */
const unusable = (error: unknown): pg.Client => {
  const config = { host: "localhost", ssl: false, sslnegotiation: "postgres" } satisfies pg.ClientConfig
  const connect = (callback?: (error: unknown) => void): Promise<never> | undefined => {
    if (callback === undefined) return Promise.reject(error)
    process.nextTick(callback, error)
    return undefined
  }
  return Object.assign(new pg.Client(config), { connect: connect as pg.Client["connect"] })
}

/**
 * Makes a client. The constructor of `pg.Client` reads the files that `sslrootcert`, `sslcert` and `sslkey` name, and
 * throws if it cannot. Such a file may be missing for a moment while it is replaced. Here that is a failure of
 * `connect`, like any other reason why there is no connection. Each client reads the files again.
 */
export const makeClient = (config: pg.ClientConfig): pg.Client => {
  try {
    return new pg.Client(config)
  } catch (error) {
    return unusable(error)
  }
}

/** `makeClient` as the constructor that a pool of `pg` calls, where nothing catches an exception. */
function PoolClient(config: pg.ClientConfig): pg.Client {
  return makeClient(config)
}

/** The option of a pool by which it makes its clients. The types of `pg` declare no parameters of the constructor. */
export const forPool = { Client: PoolClient as unknown as new () => pg.ClientBase }

/**
 * Turns off the limits of a role for whole sessions and transactions. Servers before version 17 do not know the second.
 */
const unlimitedSession =
  "SET idle_session_timeout = 0; " +
  "SELECT set_config('transaction_timeout', '0', false) WHERE current_setting('transaction_timeout', true) IS NOT NULL"

/**
 * The server ends the session of a machine that has vanished after a minute, with its locks, whether the session waits
 * for a statement or sends an answer. By default that may take hours.
 */
const keepAlive =
  "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; " +
  "SET tcp_user_timeout = 60000"

/** The settings that replace the time limits of the role. The first applies to the statements after it. */
const timeouts = ({ idleTimeout = defaultIdleTimeout, statementTimeout }: Timeouts): ReadonlyArray<string> => [
  `SET statement_timeout = ${statementTimeout}`,
  `SET lock_timeout = ${lockTimeout}`,
  `SET idle_in_transaction_session_timeout = ${idleTimeout}`,
  unlimitedSession,
  keepAlive
]

/** The settings that a session of a pool must have, whatever those of its role are. */
const settings = (options: ClientOptions): string =>
  [
    ...timeouts(options),
    "SET client_encoding = 'UTF8'",
    "SET standard_conforming_strings = on",
    "SET default_transaction_isolation = 'read committed'",
    "SET default_transaction_read_only = off",
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
  ].join("; ")

/** The failure of a statement that the server has canceled names its cause. The error of another one is unchanged. */
const nameCause = (error: unknown): never => {
  if (!isCanceled(error)) throw error
  const reason = "the statement_timeout of the role or of the database is too short: it was not replaced in time"
  throw new StoreUnavailable({ reason })
}

/** Sends settings, of which the first is the time limit of statements. The limit of the role applies to that one. */
const set = (client: pg.ClientBase, text: string): Promise<unknown> =>
  client.query({ text, query_timeout: connectTimeout } as pg.QueryConfig).catch(nameCause)

/**
 * The server ends a session within seconds after its client has disconnected, also while a long statement runs or
 * waits for a lock. By default the statement continues, with its locks, although nothing reads the answer. Not every
 * platform of the server can do this.
 */
const checkConnection = `DO $$ BEGIN
  PERFORM set_config('client_connection_check_interval', '2s', false);
EXCEPTION WHEN OTHERS THEN
  NULL;
END $$`

/** Connects a client and replaces the time limits of its role. Rejects with the error of `pg` or `StoreUnavailable`. */
export const connectClient = async (client: pg.ClientBase, limits: Timeouts): Promise<void> => {
  await client.connect()
  await set(client, [...timeouts(limits), checkConnection].join("; "))
}

/** How long the end of a connection may take, in milliseconds. */
const endTimeout = 500

/**
 * Ends a connection. Without an answer of the server the socket is destroyed, as `end` would wait for it without limit.
 */
const close = (client: pg.Client): Effect.Effect<void> =>
  Effect.async(resume => {
    const end = (): void => {
      clearTimeout(timer)
      client.connection.stream.destroy()
      resume(Effect.void)
    }
    const timer = setTimeout(end, endTimeout)
    client.end().then(end, end)
  })

/** A connection that no pool manages. It is connected, has its own time limits, and ends with the scope. */
export const scoped = (
  url: Redacted.Redacted,
  { applicationName, ...limits }: Timeouts & { readonly applicationName?: string }
): Effect.Effect<pg.Client, StoreUnavailable, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const name = applicationName === undefined ? {} : { fallback_application_name: applicationName }
      // The statement that fails reports what ends a connection. Without a listener, the event would end the process.
      return makeClient({ ...clientConfig(url), ...name }).on("error", noop)
    }),
    close
  ).pipe(Effect.tap(client => Effect.tryPromise({ try: () => connectClient(client, limits), catch: unavailable })))

/** Stores a new epoch if the database is in another cluster than before. Only new connections can lead to one. */
const identify = `DO $$ BEGIN
  IF NOT pg_is_in_recovery() AND to_regproc('causeway.identify') IS NOT NULL THEN PERFORM causeway.identify(); END IF;
END $$`

/** Prepares a new connection of a pool. Rejects for a standby, whose data may be old. */
export const prepare = async (client: pg.ClientBase, options: ClientOptions): Promise<void> => {
  // The statement that fails reports what ends a connection. Without a listener, the event would end the process.
  client.on("error", noop)
  // Separate from the next statements, whose transaction must already have these settings.
  if (!options.isPooled) await set(client, settings(options))
  const asked = { text: `${identify}; SELECT pg_is_in_recovery() AS standby`, query_timeout: connectTimeout }
  // A pooler's connections cannot replace the time limit of the role.
  const results: unknown = await client.query(asked as pg.QueryConfig).catch(nameCause)
  // `pg` declares one result, and returns one for each statement.
  const [, { rows }] = results as [unknown, pg.QueryResult<{ readonly standby: boolean }>]
  if (rows[0]?.standby === true) throw new StoreUnavailable({ reason: "the database is a standby" })
}

/**
 * Sets the `statement_timeout` of a connection, in milliseconds. The caller must end the connection after a failure.
 */
export const limitTo = (client: pg.ClientBase, millis: number, done: (error?: Error) => void): void =>
  client.query({ text: `SET statement_timeout = ${millis}`, query_timeout: connectTimeout } as pg.QueryConfig, error =>
    done(error ?? undefined)
  )

/** Runs a statement on one connection. A statement that may take long has a limit in milliseconds. */
export type Query = (
  text: string,
  values?: ReadonlyArray<Parameter>,
  limit?: number
) => Effect.Effect<ReadonlyArray<Row>, StoreUnavailable>

/** How long a statement on a connection that is held may take, in milliseconds. */
export const heldTimeout = 10_000

/** Runs a statement on a client. After a failure it is unknown whether the client can be used again. */
export const queryOn = (
  client: pg.ClientBase,
  text: string,
  values: ReadonlyArray<Parameter> = [],
  limit = heldTimeout,
  onAnswer: () => void = noop
): Effect.Effect<ReadonlyArray<Row>, StoreUnavailable> =>
  Effect.tryPromise({
    try: () =>
      client
        .query<Array<unknown>>({
          text,
          values: values as Array<unknown>,
          rowMode: "array",
          query_timeout: limit
        } as pg.QueryArrayConfig)
        .then(result => {
          onAnswer()
          return result
        }),
    catch: unavailable
  }).pipe(Effect.map(({ rows }) => rows))
