/**
 * A pool of connections to the database.
 */
import type { Socket } from "node:net"
import { Effect, Exit, type Scope } from "effect"
import pg from "pg"
import * as Direct from "../../../Direct.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import * as Supervision from "../../../Supervision.ts"
import { type ClientOptions, clientConfig, heldTimeout, limitTo, prepare, queryOn, unusedTimeout } from "./Client.ts"
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
import type { Parameter, Row, Statement } from "./Statement.ts"

export interface PoolOptions extends ClientOptions {
  /** Connections at a time. */
  readonly max: number
  /** Why nothing may be sent now, if so. */
  readonly refusal?: () => StoreUnavailable | undefined
}

/** Milliseconds that a read may take until its answer begins to arrive, waiting for a connection included. */
export const readTimeout = 1900

/** Milliseconds that the server gives a read. */
export const readStatementTimeout = 10_000

/** Milliseconds for which a pool makes no more connections after the server has refused one for their number. */
const refusedPause = 1000

/** How often a statement may take its limit while its answer arrives. */
const maxWaits = 6

/** Callers that may wait for a connection. */
const maxWaiting = 10_000

/** A connection that is held for several statements. Whoever takes it releases it. */
export interface Connection {
  readonly query: (
    text: string,
    values?: ReadonlyArray<Parameter>
  ) => Effect.Effect<ReadonlyArray<Row>, StoreUnavailable>
  /** Whether each statement had an answer: neither a failure, nor none yet, as when its caller was interrupted. */
  readonly isUsable: () => boolean
  /** Ends the connection rather than give it back. */
  readonly discard: () => void
  readonly release: () => void
}

const noop = (): void => {}

/** What the connections of a pool do. */
export interface PoolUse {
  readonly inUse: number
  readonly idle: number
  /** Statements that wait for one. */
  readonly waiting: number
}

export interface RunOptions {
  /** Milliseconds that the server gives the statement, if that is more than those of the pool; not behind a pooler. */
  readonly serverLimit?: number
  /** Whether the statement must not be sent any more when there is a connection for it. */
  readonly isGivenUp?: () => boolean
}

const isNeverGivenUp = (): boolean => false

/** Runs `other` where the name of a statement was lost. Any other failure becomes that of the store. */
export const orElseWhenLost = <A>(
  attempt: Effect.Effect<A, QueryError>,
  other: () => Effect.Effect<A, StoreUnavailable>
): Effect.Effect<A, StoreUnavailable> =>
  Direct.catchAll(attempt, error => (isStatementLost(error) ? other() : Exit.fail(unavailable(error))))

/** Gives a connection back to its pool, or has it ended. */
type Done = (destroys?: Error | boolean) => void

/** Up to a number of connections, which are made when they are needed. */
export class Pool {
  private readonly pool: pg.Pool
  private isNamed: boolean
  /** Connections that were made and have not ended. */
  private open = 0
  /** Until when there are to be no more, by the monotonic clock. */
  private fullUntil = 0

  constructor(private readonly options: PoolOptions) {
    this.isNamed = !options.isPooled
    this.pool = new pg.Pool({
      ...clientConfig(options.url),
      max: options.max,
      idleTimeoutMillis: unusedTimeout,
      onConnect: async client => {
        await prepare(client, options)
        this.open++
        client.once("end", () => this.open--)
      }
    })
    // An unused connection was lost: there will be another one.
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
      // The server has no more connections, so that those that there are have to do.
      this.fullUntil = performance.now() + refusedPause
      pool.options.max = Math.max(1, this.open)
      pool.connect(callback)
    })
  }

  /**
   * Runs one statement and decodes its rows. It fails after `limit` milliseconds, waiting for a connection included, or
   * as long without a part of the answer, and then ends the connection. An interruption drops the answer. The effect is
   * direct.
   */
  run<A>(
    statement: Statement,
    values: ReadonlyArray<Parameter>,
    limit: number,
    decode: (rows: ReadonlyArray<Row>) => A,
    { isGivenUp = isNeverGivenUp, serverLimit = 0 }: RunOptions = {}
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
      /** How many bytes the connection has received, where there is one. */
      let received = (): number => 0
      let before = 0
      let left = maxWaits
      const look = (): void => {
        // A long answer on its way is no silence.
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
        if (isGivenUp()) return settle(Exit.fail(notSent("nobody waits for it any more")))
        const stream = client.connection.stream as Socket
        before = stream.bytesRead
        received = () => stream.bytesRead
        const text = this.isNamed ? statement : { text: statement.text }
        const config: pg.QueryArrayConfig = { ...text, values: values as Array<unknown>, rowMode: "array" }
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

  /** The same, with any failure as that of the store. */
  read<A>(
    statement: Statement,
    values: ReadonlyArray<Parameter>,
    decode: (rows: ReadonlyArray<Row>) => A,
    limit = readTimeout
  ): Effect.Effect<A, StoreUnavailable> {
    const attempt = this.run(statement, values, limit, decode)
    // After a lost statement the pool uses no names.
    return orElseWhenLost(attempt, () => Direct.catchAll(attempt, error => Exit.fail(unavailable(error))))
  }

  /** Takes a connection out of the pool. */
  readonly take: Effect.Effect<Connection, StoreUnavailable> = Effect.async(resume => {
    let isDropped = false
    this.connect((error, client, done) => {
      if (error !== undefined || client === undefined) return resume(Effect.fail(unavailable(error)))
      if (isDropped) return done()
      let isHeld = true
      // Statements without an answer, and with a failure for one.
      let unanswered = 0
      const end = (destroys: boolean) => (): void => {
        if (!isHeld) return
        isHeld = false
        done(destroys)
      }
      resume(
        Effect.succeed({
          query: (text, values = []) =>
            Effect.suspend(() => {
              unanswered++
              return queryOn(client, text, values, heldTimeout, () => unanswered--)
            }),
          isUsable: () => unanswered === 0,
          release: end(false),
          discard: end(true)
        })
      )
    })
    return Effect.sync(() => {
      isDropped = true
    })
  })

  /** Ends all connections, those last that are in use. */
  readonly close: Effect.Effect<void> = Effect.promise(() => this.pool.end())
}

/** A pool that is closed with the scope; connections in use get a few seconds. */
export const make = (options: PoolOptions): Effect.Effect<Pool, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => new Pool(options)),
    pool => Supervision.within("2 seconds", pool.close)
  )
