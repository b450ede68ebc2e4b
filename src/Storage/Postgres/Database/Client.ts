/**
 * One connection to the database: how it is made and prepared, and statements on it that nothing is pooled for.
 */
import { Effect, Redacted } from "effect"
import type pg from "pg"
import { StoreUnavailable } from "../../../Kv/Store.ts"
import { isCanceled, unavailable } from "./DatabaseError.ts"
import type { Parameter, Row } from "./Statement.ts"

/** Where a connection leads, and what holds for its session. */
export interface ClientOptions {
  readonly url: Redacted.Redacted
  /** Whether the address is that of a pooler, so that statements have no names and sessions no settings. */
  readonly isPooled: boolean
  /** Milliseconds that the server gives a statement. */
  readonly statementTimeout: number
  /** Milliseconds that the server lets a transaction wait for the next statement. */
  readonly idleTimeout?: number
}

/** Milliseconds to wait for a connection. */
const connectTimeout = 1500

/** Milliseconds that a statement waits for a lock on the server. */
const lockTimeout = 1500

/** Milliseconds for which an unused connection is kept. */
export const unusedTimeout = 60_000

const int8 = 20

/** Whole numbers are numbers: none is beyond 2^53. All else is text. */
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid: number) => (oid === int8 || oid === 23 ? Number : oid === 16 ? isTrue : asText)
} as pg.CustomTypesConfig

const isTrue = (text: string): boolean => text === "t"

const asText = (text: string): string => text

/** The options of a client of its own, such as one that listens. */
export const clientConfig = (url: Redacted.Redacted): pg.ClientConfig => ({
  connectionString: Redacted.value(url),
  connectionTimeoutMillis: connectTimeout,
  keepAlive: true,
  fallback_application_name: "causeway",
  types
})

/** Limits of a role for a session as a whole, of which the newer one is not known to every server. */
const unlimitedSession =
  "SET idle_session_timeout = 0; " +
  "SELECT set_config('transaction_timeout', '0', false) WHERE current_setting('transaction_timeout', true) IS NOT NULL"

/** The settings that a session must have, whatever those of its role are. The first one holds for those after it. */
const settings = ({ idleTimeout = 5000, statementTimeout }: ClientOptions): string =>
  [
    `SET statement_timeout = ${statementTimeout}`,
    "SET client_encoding = 'UTF8'",
    "SET standard_conforming_strings = on",
    "SET default_transaction_isolation = 'read committed'",
    "SET default_transaction_read_only = off",
    `SET lock_timeout = ${lockTimeout}`,
    `SET idle_in_transaction_session_timeout = ${idleTimeout}`,
    unlimitedSession,
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
  ].join("; ")

/** How often the time limit of a role is tried to be replaced. */
const maxAttempts = 10

const tooShort = (reason: string): StoreUnavailable =>
  new StoreUnavailable({ reason: `the statement_timeout of the role or of the database is too short: ${reason}` })

/**
 * Sends settings, of which the first is the time limit of statements. The limit of the role applies to that one alone,
 * but it may be as short as a millisecond, in which a busy server executes nothing.
 */
const set = async (client: pg.ClientBase, text: string): Promise<void> => {
  for (let attempt = 1; ; attempt++) {
    try {
      await client.query({ text, query_timeout: connectTimeout } as pg.QueryConfig)
      return
    } catch (error) {
      if (!isCanceled(error)) throw error
      if (attempt === maxAttempts) throw tooShort(`it was not replaced in ${maxAttempts} attempts`)
    }
  }
}

/** Connects a client of its own. The server gives its statements so many milliseconds, and 0 for any time. */
export const connectClient = async (client: pg.ClientBase, statementTimeout: number): Promise<void> => {
  await client.connect()
  await set(client, `SET statement_timeout = ${statementTimeout}; ${unlimitedSession}`)
}

/** Makes a new epoch where the database has become part of another cluster: only new connections can lead there. */
const identify = `DO $$ BEGIN
  IF NOT pg_is_in_recovery() AND to_regproc('causeway.identify') IS NOT NULL THEN PERFORM causeway.identify(); END IF;
END $$`

/** Prepares a new connection, and refuses one to a standby: what that holds may be old. */
export const prepare = async (client: pg.ClientBase, options: ClientOptions): Promise<void> => {
  // What ends a connection is reported by the statement that it ends; without a listener it would end the process.
  client.on("error", () => undefined)
  // Apart from the next statements, whose transaction must have these settings already.
  if (!options.isPooled) await set(client, settings(options))
  const asked = { text: `${identify}; SELECT pg_is_in_recovery() AS standby`, query_timeout: connectTimeout }
  const results = await client.query(asked as pg.QueryConfig).catch(error => {
    throw options.isPooled && isCanceled(error) ? tooShort("a pooler's connections cannot replace it") : error
  })
  const { rows } = (results as unknown as ReadonlyArray<pg.QueryResult<{ standby: boolean }>>).at(-1)!
  if (rows[0]?.standby === true) throw new StoreUnavailable({ reason: "the database is a standby" })
}

/** Sets the milliseconds that the server gives a statement of this connection. A failure ends the connection. */
export const limitTo = (client: pg.ClientBase, millis: number, done: (error?: Error) => void): void =>
  client.query({ text: `SET statement_timeout = ${millis}`, query_timeout: connectTimeout } as pg.QueryConfig, error =>
    done(error ?? undefined)
  )

/** Runs a statement on one connection. One that may take long has a limit in milliseconds. */
export type Query = (
  text: string,
  values?: ReadonlyArray<Parameter>,
  limit?: number
) => Effect.Effect<ReadonlyArray<Row>, StoreUnavailable>

const noop = (): void => {}

/** Milliseconds that a statement on a connection that is held may take. */
export const heldTimeout = 10_000

/** Runs a statement on a client. A failure leaves open whether the client can be used again. */
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
