/**
 * Connections on which short statements follow each other without waiting for answers. A read of one entry costs about
 * half as much as on a connection that is taken from a pool for each read.
 */
import type { Socket } from "node:net"
import { Effect, Exit, type Scope } from "effect"
import type pg from "pg"
import * as Direct from "../../../base/Direct.ts"
import { Backoff } from "../../../base/Time/Backoff.ts"
import { type ClientOptions, clientConfig, makeClient, prepare, unusedTimeout } from "./Client.ts"
import { notSent, ofAnswer, type QueryError, Unanswered } from "./DatabaseError.ts"
import type { PoolOptions } from "./Pool.ts"
import { nameOf, type Query, type Row } from "./Statement.ts"

/** The number of connections of a node. A single server process executes more reads than one node can send. */
export const lanes = 2

/** The maximum number of statements without an answer on one connection. */
const maxPending = 5000

/** The time between two checks of the connections, in milliseconds. */
const checkIntervalMillis = 100

/** The number of checks in a row without a received byte, while answers are due, after which a connection ends. */
const maxSilent = 17

/** The number of checks during the same answer after which a connection ends. */
const maxUnanswered = 100

/** The number of checks after which an unused connection ends. */
const maxUnused = unusedTimeout / checkIntervalMillis

/** The pauses after attempts to connect that failed, in milliseconds, while another connection is open. */
const pauses = { first: 1000, longest: 30_000 } as const

/** The address and settings of the connections, none of which is behind a pooler. */
type Options = Omit<ClientOptions, "isPooled"> & Pick<PoolOptions, "refusal">

type Callback = (error: QueryError | undefined, rows: ReadonlyArray<Row>) => void

interface Waiting {
  readonly query: Query<unknown>
  readonly callback: Callback
}

/** One connection, made on demand. Statements wait until it is open, and fail when it is lost. */
class Lane {
  /** The connection that is open or being made. */
  private client: pg.Client | undefined
  private hasConnected = false
  private readonly backoff = new Backoff(pauses.first, pauses.longest)
  /** The number of checks before the next attempt to connect, unless no other connection is open. */
  private pausedChecks = 0
  /** Statements that wait until the connection is open. */
  private waiting: Array<Waiting> = []
  /** The number of statements without an answer. */
  pending = 0
  /** The number of checks since the last answer, or since the first statement after a pause. */
  private checks = 0
  /** The number of checks since the last bytes of an answer, and how many bytes the connection had received then. */
  private silentChecks = 0
  private received = 0

  /** @param onOpen called when the connection is open and the waiting statements are sent */
  constructor(
    private readonly options: Options,
    private readonly onOpen: (lane: Lane) => void
  ) {}

  /** Whether a connection is open or being made. */
  get isMade(): boolean {
    return this.client !== undefined
  }

  /** Whether statements are sent at once. */
  get isOpen(): boolean {
    return this.hasConnected
  }

  /** Whether an attempt to connect has failed a short time ago. */
  get isPaused(): boolean {
    return this.pausedChecks > 0
  }

  /** Whether an answer has been due for longer than short reads take. */
  get isSlow(): boolean {
    return this.pending > 0 && this.checks > 1
  }

  query(query: Query<unknown>, done: Callback): void {
    const refusal = this.options.refusal?.()
    if (refusal !== undefined) return done(notSent(refusal), [])
    if (this.pending >= maxPending) return done(notSent("too many statements wait for an answer"), [])
    if (this.pending++ === 0) this.checks = this.silentChecks = 0
    const callback: Callback = (error, rows) => {
      this.pending--
      this.checks = this.silentChecks = 0
      done(error, rows)
    }
    if (this.hasConnected) this.send({ query, callback })
    else {
      this.waiting.push({ query, callback })
      this.open()
    }
  }

  /** Ends a connection that has not answered for too long, so that its statements fail, or that is unused. */
  check(): void {
    if (this.client === undefined) {
      if (this.isPaused) this.pausedChecks--
      return
    }
    this.checks++
    if (this.pending === 0) {
      if (this.checks >= maxUnused) this.fail(notSent("the connection was not used"))
      return
    }
    // Part of a long answer may have arrived.
    const { bytesRead } = this.client.connection.stream as Socket
    if (bytesRead === this.received) this.silentChecks++
    else this.silentChecks = 0
    this.received = bytesRead
    if (this.silentChecks > maxSilent)
      this.fail(new Unanswered({ reason: `no answer within ${maxSilent * checkIntervalMillis} ms` }))
    else if (this.checks > maxUnanswered)
      this.fail(new Unanswered({ reason: `no complete answer within ${maxUnanswered * checkIntervalMillis} ms` }))
  }

  /** Ends the connection. */
  fail(error: QueryError): void {
    const { client, waiting } = this
    if (client !== undefined && !this.hasConnected) this.pausedChecks = this.backoff.next() / checkIntervalMillis
    this.client = undefined
    this.hasConnected = false
    this.waiting = []
    client?.connection.stream.destroy()
    for (const { callback } of waiting) callback(error, [])
  }

  /** Makes the connection, unless it is open or being made. */
  open(): void {
    if (this.client !== undefined) return
    this.checks = this.pausedChecks = 0
    const client = makeClient({ ...clientConfig(this.options.url), pipeline: true })
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
          this.hasConnected = true
          this.backoff.reset()
          const { waiting } = this
          this.waiting = []
          for (const each of waiting) this.send(each)
          this.onOpen(this)
        }, lose),
      lose
    )
  }

  private send({ callback, query: { text, values } }: Waiting): void {
    this.client!.query(
      { name: nameOf(text), text, values: values as Array<unknown>, rowMode: "array" },
      (error, result) => callback(error ? ofAnswer(error) : undefined, error ? [] : result.rows)
    )
  }
}

/**
 * Chooses the connection for a statement: the open one with the fewest unanswered statements. It avoids one that
 * receives a long answer, as later statements are answered after it. If the statement has to wait for others, it also
 * makes another connection, if there can be one.
 *
 * One connection is made at a time. The server counts those that are being made, and may refuse all of them at its
 * limit, although it would admit one.
 */
const choose = (all: ReadonlyArray<Lane>): Lane => {
  let open: Lane | undefined
  let closed: Lane | undefined
  for (const lane of all) {
    if (!lane.isOpen) {
      if (closed === undefined || lane.isMade) closed = lane
    } else if (open === undefined || (lane.isSlow === open.isSlow ? lane.pending < open.pending : open.isSlow)) {
      open = lane
    }
  }
  if (open === undefined) return closed ?? all[0]!
  if (open.pending === 0 || closed === undefined || closed.isPaused) return open
  closed.open()
  return open.isSlow ? closed : open
}

/** Sends each statement on one of the connections. */
export interface Pipeline {
  /**
   * Runs one statement and decodes its rows. It fails if nothing is received for about two seconds, or if the answer is
   * not complete after ten. The effect is direct.
   */
  readonly run: <A>(query: Query<A>) => Effect.Effect<A, QueryError>
}

const noop = (): void => {}

/** Makes the connections of a node, which end with the scope. */
export const make = (options: Options): Effect.Effect<Pipeline, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        // Statements that came together may all have waited for the first connection.
        const onOpen = ({ pending }: Lane): void => {
          if (pending > 1) all.find(lane => !lane.isMade && !lane.isPaused)?.open()
        }
        const all: ReadonlyArray<Lane> = Array.from({ length: lanes }, () => new Lane(options, onOpen))
        const checking = setInterval(() => {
          for (const lane of all) lane.check()
        }, checkIntervalMillis)
        return { all, checking }
      }),
      ({ all, checking }) =>
        Effect.sync(() => {
          clearInterval(checking)
          for (const lane of all) lane.fail(notSent("the store is closed"))
        })
    ),
    ({ all }) => ({
      run: <A>(query: Query<A>) =>
        Direct.async<A, QueryError>(resume => {
          const best = choose(all)
          const answer: Callback = (error, rows) =>
            resume(error === undefined ? Direct.attempt(() => query.decode(rows)) : Exit.fail(error))
          best.query(query, (error, rows) => {
            // The server may allow no more connections. Another one may be open.
            const other = error?._tag === "NotSent" ? all.find(lane => lane !== best && lane.isMade) : undefined
            if (other === undefined) answer(error, rows)
            else other.query(query, answer)
          })
          return noop
        })
    })
  )
