/**
 * Connections on which short statements follow each other without waiting for answers. A read of one entry costs about
 * half of what it costs on a connection that is taken from a pool for each.
 */
import { Effect, Exit, type Scope } from "effect"
import pg from "pg"
import * as Direct from "../../Direct.ts"
import { clientConfig, type Parameter, type PoolOptions, prepare, type Row, type Statement } from "./Connections.ts"

/** Connections of a node. A server process for each is busy with more reads than a node can ask for. */
export const lanes = 2

/** Statements that may be without an answer on one connection. */
const maxPending = 5000

/** Milliseconds between two looks at what is without an answer, and for how many of them it may stay so. */
const lookInterval = 100
const patience = 17

type Callback = (error: unknown, rows: ReadonlyArray<Row>) => void

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
  /** How often the lane was looked at without an answer in between. */
  private idleLooks = 0

  constructor(private readonly options: PoolOptions) {}

  query(statement: Statement, values: ReadonlyArray<Parameter>, done: Callback): void {
    if (this.pending >= maxPending) return done("too many statements wait for an answer", [])
    if (this.pending++ === 0) this.idleLooks = 0
    const callback: Callback = (error, rows) => {
      this.pending--
      this.idleLooks = 0
      done(error, rows)
    }
    if (this.isOpen) this.send({ statement, values, callback })
    else {
      this.waiting.push({ statement, values, callback })
      if (this.client === undefined) this.open()
    }
  }

  /** Ends a connection that has not answered for too long, which fails what waits for it. */
  look(): void {
    if (this.pending > 0 && ++this.idleLooks > patience)
      this.fail(new Error(`no answer within ${patience * lookInterval} ms`))
  }

  /** Ends the connection. */
  fail(error: unknown): void {
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
      if (this.client === client) this.fail(error)
    }
    client.on("error", lose)
    client.once("end", () => lose(new Error("the connection ended")))
    client.connect().then(
      () =>
        prepare(client, this.options).then(() => {
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
      callback(error ?? undefined, error ? [] : result.rows)
    )
  }
}

/** Statements on a few connections, that with the fewest unanswered ones first. */
export interface Pipeline {
  /**
   * Runs one statement and decodes its rows. It fails within two seconds, with what the client or the database reported.
   * The effect is direct.
   */
  readonly run: <A>(
    statement: Statement,
    values: ReadonlyArray<Parameter>,
    decode: (rows: ReadonlyArray<Row>) => A
  ) => Effect.Effect<A, unknown>
}

const noop = (): void => {}

/** The connections of a node, which end with the scope. */
export const make = (
  given: Pick<PoolOptions, "url" | "statementTimeout" | "closedFor">
): Effect.Effect<Pipeline, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        const options: PoolOptions = { ...given, isPooled: false, max: lanes }
        const all = Array.from({ length: lanes }, () => new Lane(options))
        const looking = setInterval(() => {
          for (const lane of all) lane.look()
        }, lookInterval)
        return { all, looking }
      }),
      ({ all, looking }) =>
        Effect.sync(() => {
          clearInterval(looking)
          for (const lane of all) lane.fail(new Error("the store is closed"))
        })
    ),
    ({ all }) => ({
      run: <A>(statement: Statement, values: ReadonlyArray<Parameter>, decode: (rows: ReadonlyArray<Row>) => A) =>
        Direct.async<A, unknown>(resume => {
          let best = all[0]!
          for (const lane of all) if (lane.pending < best.pending) best = lane
          best.query(statement, values, (error, rows) => {
            if (error !== undefined) return resume(Exit.fail(error))
            let exit: Exit.Exit<A>
            try {
              exit = Exit.succeed(decode(rows))
            } catch (defect) {
              exit = Exit.die(defect)
            }
            resume(exit)
          })
          return noop
        })
    })
  )
