/** A pool of connections to the database. */
import type { Socket } from "node:net"
import { Effect, Exit, type Scope } from "effect"
import pg from "pg"
import * as Direct from "../../../base/Direct.ts"
import * as Supervision from "../../../base/Supervision.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import {
  type ClientOptions,
  clientConfig,
  forPool,
  heldTimeout,
  limitTo,
  prepare,
  queryOn,
  unusedTimeout
} from "./Client.ts"
import {
  isOutcomeUnknown,
  isOverLimit,
  isStatementLost,
  notSent,
  ofAnswer,
  type QueryError,
  Unanswered,
  unavailable
} from "./DatabaseError.ts"
import { nameOf, orElseWhenLost, type Parameter, type Query, type Row } from "./Statement.ts"

export interface PoolOptions extends ClientOptions {
  /** The maximum number of connections. */
  readonly max: number
  /** Returns the reason why nothing may be sent now, if there is one. */
  readonly refusal?: () => StoreUnavailable | undefined
}

/** The timeout of a read until its answer starts to arrive, with the wait for a connection, in milliseconds. */
export const readTimeout = 1900

/** The `statement_timeout` of a read, in milliseconds. */
export const readStatementTimeout = 10_000

/** How long a pool makes no more connections after the server has refused one for their number, in milliseconds. */
const refusedPauseMillis = 1000

/** The maximum number of timeouts in a row during which a statement continues because its answer is arriving. */
const maxWaits = 6

/** The maximum number of callers that wait for a connection. */
const maxWaiting = 10_000

/** A connection that is held for several statements. Its caller must release or discard it, once. */
export interface Connection {
  readonly query: (
    text: string,
    values?: ReadonlyArray<Parameter>
  ) => Effect.Effect<ReadonlyArray<Row>, StoreUnavailable>
  /**
   * Whether each statement was answered without a failure. The caller of one without an answer may have been
   * interrupted.
   */
  readonly isUsable: () => boolean
  /** Ends the connection instead of returning it to the pool. */
  readonly discard: () => void
  readonly release: () => void
}

const noop = (): void => {}

export interface PoolUse {
  readonly inUse: number
  readonly idle: number
  /** Statements that wait for a connection. */
  readonly waiting: number
}

export interface RunOptions {
  /** The `statement_timeout`, in milliseconds, if it is more than that of the pool. Ignored behind a pooler. */
  readonly serverLimit?: number
  /** Returns whether the statement must no longer be sent when a connection is available. */
  readonly isGivenUp?: () => boolean
  /** Called when the statement is sent. The argument returns whether a part of the answer has arrived, but not all. */
  readonly onSent?: ((isArriving: () => boolean) => void) | undefined
}

const isNeverGivenUp = (): boolean => false

/** Returns a connection to its pool, or ends it. */
type Done = (destroys?: Error | boolean) => void

/** Connections that are made when they are needed, up to a maximum number. */
export class Pool {
  private readonly pool: pg.Pool
  private isNamed: boolean
  /** The number of connections that were made and have not ended. */
  private open = 0
  /** Until when no more connections are made, by the monotonic clock. */
  private fullUntil = 0

  constructor(private readonly options: PoolOptions) {
    this.isNamed = !options.isPooled
    this.pool = new pg.Pool({
      ...clientConfig(options.url),
      ...forPool,
      max: options.max,
      idleTimeoutMillis: unusedTimeout,
      onConnect: async client => {
        await prepare(client, options)
        this.open++
        client.once("end", () => this.open--)
      }
    })
    // An unused connection was lost. The pool makes another one when it needs it.
    this.pool.on("error", () => undefined)
  }

  get use(): PoolUse {
    const { idleCount: idle, totalCount, waitingCount: waiting } = this.pool
    return { inUse: totalCount - idle, idle, waiting }
  }

  private connect(callback: (error: Error | undefined, client: pg.PoolClient | undefined, done: Done) => void): void {
    const refusal = this.options.refusal?.()
    if (refusal !== undefined) return callback(refusal, undefined, noop)
    const { pool } = this
    if (performance.now() >= this.fullUntil) pool.options.max = this.options.max
    pool.connect((error, client, done) => {
      if (error === undefined || pool.totalCount === 0 || !isOverLimit(error)) return callback(error, client, done)
      // The server allows no more connections. Statements wait for the existing ones.
      this.fullUntil = performance.now() + refusedPauseMillis
      pool.options.max = Math.max(1, this.open)
      pool.connect(callback)
    })
  }

  /**
   * Runs one statement and decodes its rows. It fails after `limit` milliseconds, including the wait for a connection,
   * or after as long without a part of the answer; then the connection ends. An interruption drops the answer. The
   * effect is direct.
   */
  run<A>(
    { decode, text, values }: Query<A>,
    limit: number,
    { isGivenUp = isNeverGivenUp, onSent, serverLimit = 0 }: RunOptions = {}
  ): Effect.Effect<A, QueryError> {
    return Direct.async<A, QueryError>(resume => {
      if (this.pool.waitingCount >= maxWaiting) {
        resume(Exit.fail(notSent("too many statements wait for a connection")))
        return noop
      }
      let release: ((destroy?: boolean) => void) | undefined
      let isOver = false
      let isSent = false
      const settle = (exit: Exit.Exit<A, QueryError>, destroys = false): void => {
        if (isOver) return
        isOver = true
        clearTimeout(timer)
        release?.(destroys)
        resume(exit)
      }
      /** Returns how many bytes the connection has received, if there is one. */
      let received = (): number => 0
      let before = 0
      let left = maxWaits
      const look = (): void => {
        // Part of a long answer has arrived.
        if (--left > 0 && received() > before) {
          before = received()
          timer = setTimeout(look, limit)
          return
        }
        const reason = `no answer within ${limit} ms`
        settle(Exit.fail(isSent ? new Unanswered({ reason }) : notSent(reason)), true)
      }
      let timer = setTimeout(look, limit)
      this.connect((error, client, done) => {
        if (error !== undefined || client === undefined) return settle(Exit.fail(notSent(error)))
        if (isOver) return done()
        release = done
        if (isGivenUp()) return settle(Exit.fail(notSent("no caller waits for the statement any longer")))
        const stream = client.connection.stream as Socket
        const atStart = stream.bytesRead
        before = atStart
        received = () => stream.bytesRead
        const config: pg.QueryArrayConfig = { text, values: values as Array<unknown>, rowMode: "array" }
        if (this.isNamed) config.name = nameOf(text)
        const onAnswer = (error: Error | null | undefined, result: pg.QueryArrayResult): void => {
          if (error) {
            const failure = ofAnswer(error)
            if (isStatementLost(failure)) this.isNamed = false
            return settle(Exit.fail(failure), isOutcomeUnknown(failure) || isStatementLost(failure))
          }
          settle(Direct.attempt(() => decode(result.rows)))
        }
        const { isPooled, statementTimeout } = this.options
        const send = (): void => {
          isSent = true
          client.query(config, onAnswer)
          onSent?.(() => !isOver && stream.bytesRead > atStart)
        }
        if (isPooled || serverLimit <= statementTimeout) return send()
        release = destroys => (destroys === true ? done(true) : limitTo(client, statementTimeout, done))
        limitTo(client, serverLimit, error => {
          if (error !== undefined) settle(Exit.fail(notSent(error)), true)
          else if (!isOver) send()
        })
      })
      return noop
    })
  }

  /** Like `run`, but any failure becomes `StoreUnavailable`. */
  read<A>(
    query: Query<A>,
    limit = readTimeout,
    options: Pick<RunOptions, "onSent"> = {}
  ): Effect.Effect<A, StoreUnavailable> {
    const attempt = this.run(query, limit, options)
    // After a lost statement, the pool no longer uses names.
    return orElseWhenLost(attempt, () => Direct.catchAll(attempt, error => Exit.fail(unavailable(error))))
  }

  /** Takes a connection out of the pool. It must not be interrupted. */
  readonly take: Effect.Effect<Connection, StoreUnavailable> = Effect.async(resume => {
    this.connect((error, client, done) => {
      if (error !== undefined || client === undefined) return resume(Effect.fail(unavailable(error)))
      // The number of statements without an answer or with a failure.
      let unanswered = 0
      resume(
        Effect.succeed({
          query: (text, values = []) =>
            Effect.suspend(() => {
              unanswered++
              return queryOn(client, text, values, heldTimeout, () => unanswered--)
            }),
          isUsable: () => unanswered === 0,
          release: () => done(),
          discard: () => done(true)
        })
      )
    })
  })

  /** Ends all connections. Those in use end when they are released. */
  readonly close: Effect.Effect<void> = Effect.promise(() => this.pool.end())
}

/** Makes a pool that closes with the scope. Connections in use have 2 seconds to be released. */
export const make = (options: PoolOptions): Effect.Effect<Pool, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => new Pool(options)),
    pool => Supervision.within("2 seconds", pool.close)
  )
