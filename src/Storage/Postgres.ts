/** The key-value store in a PostgreSQL database that several nodes share. */
import { Context, Effect, Layer, Metric, MetricBoundaries, MetricLabel, Option, type Scope } from "effect"
import { Limits, type LimitsShape } from "../base/Limits.ts"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import { ChangeLog } from "../Kv/ChangeLog.ts"
import { Store } from "../Kv/Store.ts"
import * as StoreCommit from "./Commit/StoreCommit.ts"
import { Database } from "./Postgres/Connections.ts"
import * as DatabaseClock from "./Postgres/Database/DatabaseClock.ts"
import * as GroupCall from "./Postgres/Database/GroupCall.ts"
import * as Pool from "./Postgres/Database/Pool.ts"
import * as Snapshots from "./Postgres/Database/Snapshots.ts"
import * as TableMetrics from "./Postgres/Database/TableMetrics.ts"
import * as EntryLog from "./Postgres/Kv/EntryLog.ts"
import * as EntryStore from "./Postgres/Kv/EntryStore.ts"
import * as LogEnd from "./Postgres/Kv/LogEnd.ts"
import * as Queries from "./Postgres/Kv/Queries.ts"
import * as Writer from "./Postgres/Kv/Writer.ts"
import * as Opening from "./Postgres/Opening.ts"
import { maxNameBytes } from "./Postgres/Schema.ts"
import { SessionNotifications } from "./Postgres/SessionEvents/SessionNotifications.ts"
import type { PostgresLocation } from "./StoreUrl.ts"

export { StoreRefused } from "./Postgres/Opening.ts"

const connections = Metric.gauge("postgres_connections", {
  description: "Connections to PostgreSQL, by pool and whether they are in use."
})

const waiting = Metric.gauge("postgres_statements_waiting", {
  description: "Statements that wait for a connection to PostgreSQL, by pool."
})

const pools = ["reads", "writes", "lists"] as const

type PoolName = (typeof pools)[number]

const seriesOf = (pool: PoolName) => {
  const label = MetricLabel.make("pool", pool)
  const inState = (state: string) => Metric.taggedWithLabels(connections, [label, MetricLabel.make("state", state)])
  return {
    inUse: inState("in_use"),
    idle: inState("idle"),
    waiting: Metric.taggedWithLabels(waiting, [label])
  }
}

const byPool = { reads: seriesOf("reads"), writes: seriesOf("writes"), lists: seriesOf("lists") }

const listener = Metric.gauge("postgres_listener_connected", {
  description: "1 while notifications of other nodes arrive, 0 while the node polls for their changes."
})

const clockOffset = Metric.gauge("postgres_clock_offset_ms", {
  description: "Milliseconds by which the clock of PostgreSQL is ahead of the node's."
})

const lockWaits = Metric.histogram(
  "postgres_log_lock_wait_ms",
  MetricBoundaries.fromIterable([0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000]),
  "Milliseconds that a group of writes has waited in PostgreSQL for the lock of the log, which other nodes held."
)

/** The values of the gauges, which are sampled each second. */
interface Sample {
  readonly pools: Readonly<Record<PoolName, Pool.PoolUse>>
  readonly isListening: boolean
  /** Milliseconds. */
  readonly clockOffset: number
}

const updateGauges = (found: Sample, tags: MetricTags.MetricTags): void => {
  for (const name of pools) {
    const { idle, inUse, waiting } = found.pools[name]
    byPool[name].idle.unsafeUpdate(idle, tags)
    byPool[name].inUse.unsafeUpdate(inUse, tags)
    byPool[name].waiting.unsafeUpdate(waiting, tags)
  }
  listener.unsafeUpdate(found.isListening ? 1 : 0, tags)
  clockOffset.unsafeUpdate(found.clockOffset, tags)
}

const series = [...Object.values(byPool).flatMap(Object.values), listener, clockOffset, lockWaits]

/** The address of the database, and the number of connections. */
export type Options = PostgresLocation

/** The number of connections for writes and background work. Reads and whole lists have others, and one listens. */
const writeConnections = 5

/** The maximum wait of a group for more writes, in milliseconds. It applies also if a commit takes much longer. */
const maxBatchWaitMillis = 5

const checkLimits = ({ keyBytes, namespaceBytes }: LimitsShape) =>
  keyBytes + namespaceBytes <= maxNameBytes
    ? Effect.void
    : new Opening.StoreRefused({
        message:
          `LIMIT_NAMESPACE_BYTES (${namespaceBytes}) and LIMIT_KEY_BYTES (${keyBytes}) come to ` +
          `${namespaceBytes + keyBytes} bytes; an index of PostgreSQL can hold ${maxNameBytes} of both together.`
      })

/** The pools of a node. Those for reads and for whole lists have limits of the configuration. */
const makePools = (
  { connections, url }: Options,
  { wholeLists }: LimitsShape,
  isPooled: boolean,
  refusal: DatabaseClock.DatabaseClock["refusal"]
) => {
  const pool = (max: number, statementTimeout: number, idleTimeout?: number) =>
    Pool.make({ url, isPooled, refusal, max, statementTimeout, ...(idleTimeout === undefined ? {} : { idleTimeout }) })
  return Effect.all({
    reads: pool(connections, Pool.readStatementTimeout),
    writes: pool(writeConnections, GroupCall.statementTimeout),
    lists: pool(wholeLists, Pool.readStatementTimeout, Snapshots.idleTimeout)
  })
}

/**
 * The ports of a store in a database. They are usable as soon as the database is. Fails with `StoreRefused` if the
 * database can never be used.
 */
export const make = (
  options: Options
): Effect.Effect<Context.Context<Store | ChangeLog | Database>, Opening.StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const limits = yield* Limits
    yield* checkLimits(limits)
    const isPooled = Option.isSome(options.directUrl)
    const directUrl = Option.getOrElse(options.directUrl, () => options.url)
    const clock = yield* DatabaseClock.make
    const { atNow, refusal } = clock
    yield* DatabaseClock.bySystemClock(Opening.whenAvailable(directUrl, clock))
    const { lists, reads, writes } = yield* makePools(options, limits, isPooled, refusal)
    const end = new LogEnd.LogEnd()
    const sessions = new SessionNotifications()
    const tags = yield* MetricTags.current
    MetricTags.register(series, tags)
    const sample = Effect.sync(() => {
      const pools = { reads: reads.use, writes: writes.use, lists: lists.use }
      updateGauges({ pools, isListening: sessions.isListening, clockOffset: clock.ahead() }, tags)
    })
    const askForEnd = end
      .read(clock.measure(writes.read(Queries.clockAndLogEnd)), ({ epoch, lastSeq }) =>
        Effect.logWarning("The change log lacks changes that this node has seen: it gets a new epoch").pipe(
          Effect.annotateLogs({ lastSeq }),
          Effect.zipRight(writes.read(Queries.renewEpoch(epoch)))
        )
      )
      .pipe(Effect.ensuring(sample))
    // A store whose database is available knows the end of its log from the start.
    yield* Effect.ignore(askForEnd)
    const notifications = yield* DatabaseClock.bySystemClock(
      LogEnd.make({ pool: writes, url: directUrl, end, ask: askForEnd, sessions })
    )
    yield* DatabaseClock.bySystemClock(TableMetrics.make(reads))
    const commit = Writer.make(writes, clock.lastServerTime, {
      onLastSeq: (lastSeq, base) => {
        end.committed(lastSeq, base)
        notifications.committed(lastSeq)
      },
      onLockWait: millis => lockWaits.unsafeUpdate(millis, tags),
      idempotencyBytes: limits.idempotencyBytes,
      onComparison: StoreCommit.idempotencyMetrics(tags)
    })
    const group = yield* StoreCommit.make({
      commit: (group, _, isGivenUp) =>
        atNow(now => {
          end.sending()
          return DatabaseClock.bySystemClock(commit(group, { now, isGivenUp }))
        }),
      maxBatchWaitMillis
    })
    const store = EntryStore.make({ reads, lists, maxLists: limits.wholeLists, group, clock })
    const onLastSeq = (lastSeq: number): void => {
      end.advance(lastSeq)
      notifications.committed(lastSeq)
    }
    const log = yield* EntryLog.make({ reads, writes, clock, atNow, end, onLastSeq })
    yield* EntryLog.upkeep(writes, atNow)
    return Context.make(Store, store).pipe(
      Context.add(ChangeLog, log),
      Context.add(Database, { reads, writes, atNow, lastServerTime: clock.lastServerTime, sessions })
    )
  })

/** The store in a database, and the connections for the other data in that database. */
export const layer = (options: Options): Layer.Layer<Store | ChangeLog | Database, Opening.StoreRefused> =>
  Layer.scopedContext(make(options))
