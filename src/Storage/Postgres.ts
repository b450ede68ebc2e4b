/**
 * The key-value store in a PostgreSQL database that several nodes share.
 */
import { Context, Effect, Layer, Option, type Scope } from "effect"
import { Limits, type LimitsShape } from "../base/Limits.ts"
import * as MetricTags from "../base/MetricTags.ts"
import { ChangeLog } from "../Kv/ChangeLog.ts"
import { Store } from "../Kv/Store.ts"
import * as StoreCommit from "./Commit/StoreCommit.ts"
import { Database } from "./Postgres/Connections.ts"
import * as DatabaseClock from "./Postgres/Database/DatabaseClock.ts"
import * as GroupCall from "./Postgres/Database/GroupCall.ts"
import * as Metrics from "./Postgres/Database/Metrics.ts"
import * as Pipeline from "./Postgres/Database/Pipeline.ts"
import * as Pool from "./Postgres/Database/Pool.ts"
import * as Snapshots from "./Postgres/Database/Snapshots.ts"
import * as TableMetrics from "./Postgres/Database/TableMetrics.ts"
import * as BackgroundWork from "./Postgres/Kv/BackgroundWork.ts"
import * as EntryLog from "./Postgres/Kv/EntryLog.ts"
import * as EntryStore from "./Postgres/Kv/EntryStore.ts"
import { LogEnd } from "./Postgres/Kv/LogEnd.ts"
import * as Queries from "./Postgres/Kv/Queries.ts"
import * as Writer from "./Postgres/Kv/Writer.ts"
import * as LogNotifications from "./Postgres/LogNotifications.ts"
import * as Opening from "./Postgres/Opening.ts"
import * as Readiness from "./Postgres/Readiness.ts"
import { maxNameBytes } from "./Postgres/Schema.ts"
import { SessionNotifications } from "./Postgres/SessionEvents/SessionNotifications.ts"
import type { PostgresLocation } from "./StoreUrl.ts"

export { StoreRefused } from "./Postgres/Opening.ts"

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
  refusal: Readiness.Readiness["refusal"]
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
    const { atNow, refusal } = yield* DatabaseClock.bySystemClock(Readiness.make(directUrl, clock))
    const { lists, reads, writes } = yield* makePools(options, limits, isPooled, refusal)
    const pipeline = isPooled
      ? undefined
      : yield* Pipeline.make({ url: options.url, statementTimeout: Pool.readStatementTimeout, refusal })
    const end = new LogEnd()
    const sessions = new SessionNotifications()
    const tags = yield* MetricTags.current
    Metrics.register(tags)
    const sample = Effect.sync(() => {
      const pools = { reads: reads.use, writes: writes.use, lists: lists.use }
      Metrics.sample({ pools, isListening: sessions.isListening, clockOffset: clock.ahead() }, tags)
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
      LogNotifications.make({ pool: writes, url: directUrl, end, ask: askForEnd, sessions })
    )
    yield* DatabaseClock.bySystemClock(TableMetrics.make(reads))
    const commit = Writer.make(writes, clock.lastServerTime, {
      onLastSeq: (lastSeq, base) => {
        end.committed(lastSeq, base)
        notifications.committed(lastSeq)
      },
      onLockWait: millis => Metrics.lockWaited(millis, tags),
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
    const store = EntryStore.make({ reads, pipeline, lists, maxLists: limits.wholeLists, group, clock })
    const onLastSeq = (lastSeq: number): void => {
      end.advance(lastSeq)
      notifications.committed(lastSeq)
    }
    const log = yield* EntryLog.make({ reads, writes, clock, atNow, end, onLastSeq })
    yield* BackgroundWork.run(writes, atNow)
    return Context.make(Store, store).pipe(
      Context.add(ChangeLog, log),
      Context.add(Database, { reads, writes, atNow, lastServerTime: clock.lastServerTime, sessions })
    )
  })

/** The store in a database, and the connections for the other data in that database. */
export const layer = (options: Options): Layer.Layer<Store | ChangeLog | Database, Opening.StoreRefused> =>
  Layer.scopedContext(make(options))
