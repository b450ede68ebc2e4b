/**
 * Connections on which short statements follow each other without waiting for answers. A read of one entry costs about
 * half of what it costs on a connection that is taken from a pool for each.
 */
import type { Socket } from "node:net"
import { Effect, Exit, type Scope } from "effect"
import pg from "pg"
import * as Direct from "../../../Direct.ts"
import { type ClientOptions, clientConfig, prepare, unusedTimeout } from "./Client.ts"
import { notSent, ofAnswer, type QueryError, Unanswered } from "./DatabaseError.ts"
import type { PoolOptions } from "./Pool.ts"
import type { Parameter, Row, Statement } from "./Statement.ts"

/** Connections of a node. One server process already executes more reads than one node can send. */
export const lanes = 2

/** Statements that may be without an answer on one connection. */
const maxPending = 5000

/** Milliseconds between two checks of the connections. */
const checkInterval = 100

/** Checks in a row after which a connection ends that has received nothing though answers are due. */
const maxSilent = 17

/** Checks after which a connection ends that is still receiving the same answer. */
const maxUnanswered = 100

/** Checks after which an unused connection ends. */
const maxUnused = unusedTimeout / checkInterval

/** Where the connections lead. Their number is fixed, and none of them is a pooler's. */
type Options = Omit<ClientOptions, "isPooled"> & Pick<PoolOptions, "refusal">

type Callback = (error: QueryError | undefined, rows: ReadonlyArray<Row>) => void

interface Waiting {
  readonly statement: Statement
  readonly values: ReadonlyArray<Parameter>
  readonly callback: Callback
}

/** One connection, made on demand. Statements wait while it is being made, and fail when it is lost. */
class Lane {
  private client: pg.Client | undefined
  private isOpen = false
  /** What came before the connection is open. */
  private waiting: Array<Waiting> = []
  /** Statements without an answer. */
  pending = 0
  /** Checks since the last answer, or since the first statement after a pause. */
  private checks = 0
  /** Checks since the last bytes of an answer, and the bytes that the connection had received by then. */
  private silentChecks = 0
  private received = 0

  constructor(private readonly options: Options) {}

  /** Whether there is a connection, or will be. */
  get isMade(): boolean {
    return this.client !== undefined
  }

  /** Whether an answer has been due for longer than those of short reads take. */
  get isSlow(): boolean {
    return this.pending > 0 && this.checks > 1
  }

  query(statement: Statement, values: ReadonlyArray<Parameter>, done: Callback): void {
    const refusal = this.options.refusal?.()
    if (refusal !== undefined) return done(notSent(refusal), [])
    if (this.pending >= maxPending) return done(notSent("too many statements wait for an answer"), [])
    if (this.pending++ === 0) this.checks = this.silentChecks = 0
    const callback: Callback = (error, rows) => {
      this.pending--
      this.checks = this.silentChecks = 0
      done(error, rows)
    }
    if (this.isOpen) this.send({ statement, values, callback })
    else {
      this.waiting.push({ statement, values, callback })
      if (this.client === undefined) this.open()
    }
  }

  /** Ends a connection that has not answered for too long, which fails what waits for it, or that is not used. */
  look(): void {
    if (this.client === undefined) return
    this.checks++
    if (this.pending === 0) {
      if (this.checks >= maxUnused) this.fail(notSent("the connection was not used"))
      return
    }
    // A long answer on its way is no silence.
    const { bytesRead } = this.client.connection.stream as Socket
    if (bytesRead === this.received) this.silentChecks++
    else this.silentChecks = 0
    this.received = bytesRead
    if (this.silentChecks > maxSilent)
      this.fail(new Unanswered({ reason: `no answer within ${maxSilent * checkInterval} ms` }))
    else if (this.checks > maxUnanswered)
      this.fail(new Unanswered({ reason: `no whole answer within ${maxUnanswered * checkInterval} ms` }))
  }

  /** Ends the connection. */
  fail(error: QueryError): void {
    const { client, waiting } = this
    this.client = undefined
    this.isOpen = false
    this.waiting = []
    client?.connection.stream.destroy()
    for (const { callback } of waiting) callback(error, [])
  }

  private open(): void {
    const client = new pg.Client({ ...clientConfig(this.options.url), pipeline: true })
    this.client = client
    const lose = (error: unknown): void => {
      if (this.client === client) this.fail(notSent(error))
    }
    client.on("error", lose)
    client.once("end", () => lose(new Error("the connection ended")))
    client.connect().then(
      () =>
        prepare(client, { ...this.options, isPooled: false }).then(() => {
          if (this.client !== client) return
          this.isOpen = true
          const { waiting } = this
          this.waiting = []
          for (const each of waiting) this.send(each)
        }, lose),
      lose
    )
  }

  private send({ callback, statement: { name, text }, values }: Waiting): void {
    this.client!.query({ name, text, values: values as Array<unknown>, rowMode: "array" }, (error, result) =>
      callback(error ? ofAnswer(error) : undefined, error ? [] : result.rows)
    )
  }
}

/**
 * Statements on a few connections, that with the fewest unanswered ones first. One that receives a long answer is
 * avoided, as what is sent there is answered after it.
 */
export interface Pipeline {
  /**
   * Runs one statement and decodes its rows. It fails where nothing was received for about two seconds, or the answer
   * is not whole after ten. The effect is direct.
   */
  readonly run: <A>(
    statement: Statement,
    values: ReadonlyArray<Parameter>,
    decode: (rows: ReadonlyArray<Row>) => A
  ) => Effect.Effect<A, QueryError>
}

const noop = (): void => {}

/** The connections of a node, which end with the scope. */
export const make = (options: Options): Effect.Effect<Pipeline, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        const all = Array.from({ length: lanes }, () => new Lane(options))
        const looking = setInterval(() => {
          for (const lane of all) lane.look()
        }, checkInterval)
        return { all, looking }
      }),
      ({ all, looking }) =>
        Effect.sync(() => {
          clearInterval(looking)
          for (const lane of all) lane.fail(notSent("the store is closed"))
        })
    ),
    ({ all }) => ({
      run: <A>(statement: Statement, values: ReadonlyArray<Parameter>, decode: (rows: ReadonlyArray<Row>) => A) =>
        Direct.async<A, QueryError>(resume => {
          let best = all[0]!
          for (const lane of all) {
            if (lane.isSlow === best.isSlow ? lane.pending < best.pending : best.isSlow) best = lane
          }
          const answer: Callback = (error, rows) =>
            resume(error === undefined ? Direct.attempt(() => decode(rows)) : Exit.fail(error))
          best.query(statement, values, (error, rows) => {
            // The server may have no more connections, so that those that there are have to do.
            const other = error?._tag === "NotSent" ? all.find(lane => lane !== best && lane.isMade) : undefined
            if (other === undefined) answer(error, rows)
            else other.query(statement, values, answer)
          })
          return noop
        })
    })
  )
