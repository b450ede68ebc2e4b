/**
 * The key-value store in a PostgreSQL database that several nodes share.
 */
import { Context, Duration, Effect, Either, Exit, Layer, Option, type Scope } from "effect"
import * as Direct from "../Direct.ts"
import * as HousekeepingMetrics from "../HousekeepingMetrics.ts"
import { ChangeLog, HistoryTrimmed } from "../Kv/ChangeLog.ts"
import {
  BackupRefused,
  EntriesTooLarge,
  IdempotencyConflict,
  PreconditionFailed,
  Store,
  type StoreUnavailable
} from "../Kv/Store.ts"
import { type Committed, committed, type Write } from "../Kv/Write.ts"
import { Limits, type LimitsShape } from "../Limits.ts"
import * as MetricTags from "../MetricTags.ts"
import { DirectFlight } from "../SingleFlight.ts"
import * as Supervision from "../Supervision.ts"
import * as IdempotencyMetrics from "./IdempotencyMetrics.ts"
import { Database } from "./Postgres/Connections.ts"
import * as DatabaseClock from "./Postgres/Database/DatabaseClock.ts"
import * as GroupCall from "./Postgres/Database/GroupCall.ts"
import * as Metrics from "./Postgres/Database/Metrics.ts"
import * as Pipeline from "./Postgres/Database/Pipeline.ts"
import * as Pool from "./Postgres/Database/Pool.ts"
import * as Portions from "./Postgres/Database/Portions.ts"
import * as Snapshots from "./Postgres/Database/Snapshots.ts"
import type { Query } from "./Postgres/Database/Statement.ts"
import * as TableMetrics from "./Postgres/Database/TableMetrics.ts"
import * as Counts from "./Postgres/Kv/Counts.ts"
import * as Expiry from "./Postgres/Kv/Expiry.ts"
import type { Outcome } from "./Postgres/Kv/Group.ts"
import * as Lists from "./Postgres/Kv/Lists.ts"
import { LogEnd } from "./Postgres/Kv/LogEnd.ts"
import * as Namespaces from "./Postgres/Kv/Namespaces.ts"
import * as Queries from "./Postgres/Kv/Queries.ts"
import * as Writer from "./Postgres/Kv/Writer.ts"
import * as Opening from "./Postgres/Opening.ts"
import * as Readiness from "./Postgres/Readiness.ts"
import { maxNameBytes } from "./Postgres/Schema.ts"
import { SessionSignals } from "./Postgres/SessionEvents/SessionSignals.ts"
import * as WakeUps from "./Postgres/WakeUps.ts"
import * as StoreCommit from "./StoreCommit.ts"
import type { PostgresLocation } from "./StoreUrl.ts"

export { StoreRefused } from "./Postgres/Opening.ts"

export type Options = PostgresLocation

/** Connections beside those for reads and whole lists: for writes and background work, and one that listens. */
const writeConnections = 5

/** Milliseconds that a group waits for more writes at most: a commit that takes long is no reason to be late. */
const maxBatchWaitMillis = 5

/** Milliseconds that a portion of expiry or of retention may take. */
const portionTimeout = 6000

const checkLimits = ({ keyBytes, namespaceBytes }: LimitsShape) =>
  keyBytes + namespaceBytes <= maxNameBytes
    ? Effect.void
    : new Opening.StoreRefused({
        message:
          `LIMIT_NAMESPACE_BYTES (${namespaceBytes}) and LIMIT_KEY_BYTES (${keyBytes}) come to ` +
          `${namespaceBytes + keyBytes} bytes; an index of PostgreSQL can hold ${maxNameBytes} of both together.`
      })

/** Counts how often what is asked for was another than the time before. */
const countChanges = (): ((now: string) => number) => {
  let known: string | undefined
  let count = 0
  return now => {
    if (now !== known) count++
    known = now
    return count
  }
}

/**
 * The ports of a store in a database. The layer is there before the database is, and fails with what it can never use.
 */
export const make = (
  options: Options
): Effect.Effect<Context.Context<Store | ChangeLog | Database>, Opening.StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const limits = yield* Limits
    yield* checkLimits(limits)
    const directUrl = Option.getOrElse(options.directUrl, () => options.url)
    const clock = yield* DatabaseClock.make
    const { atNow, refusal } = yield* DatabaseClock.bySystemClock(Readiness.make(directUrl, clock))
    const pooled = { url: options.url, isPooled: Option.isSome(options.directUrl), refusal }
    const reads = yield* Pool.make({
      ...pooled,
      max: options.connections,
      statementTimeout: Pool.readStatementTimeout
    })
    const pipeline = yield* Pipeline.make({
      url: options.url,
      statementTimeout: Pool.readStatementTimeout,
      refusal
    })
    const writes = yield* Pool.make({
      ...pooled,
      max: writeConnections,
      statementTimeout: GroupCall.statementTimeout
    })
    const lists = yield* Pool.make({
      ...pooled,
      max: limits.wholeLists,
      statementTimeout: Pool.readStatementTimeout,
      idleTimeout: Snapshots.idleTimeout
    })
    const end = new LogEnd()
    const sessions = new SessionSignals()
    const tags = yield* MetricTags.current
    Metrics.register(tags)
    const sample = Effect.sync(() => {
      const pools = { reads: reads.use, writes: writes.use, lists: lists.use }
      Metrics.sample({ pools, isListening: sessions.isListening, clockOffset: clock.ahead() }, tags)
    })
    const ask = Effect.suspend(() => {
      const known = end.last
      return Effect.map(
        clock.measure(writes.read(Queries.pulse.statement, [], Queries.pulse.decode)),
        ({ epoch, lastSeq }) => end.found({ epoch, lastSeq }, known)
      )
    }).pipe(Effect.ensuring(sample))
    // So that a store that is there knows its end from the start.
    yield* Effect.ignore(ask)
    const wakeUps = yield* DatabaseClock.bySystemClock(
      WakeUps.make({ pool: writes, url: directUrl, end, ask, sessions })
    )
    yield* DatabaseClock.bySystemClock(TableMetrics.make(reads))
    const onLastSeq = (lastSeq: number): void => {
      end.advance(lastSeq)
      wakeUps.announce(lastSeq)
    }
    const writer = Writer.make(writes, clock.lastTold, {
      onLastSeq,
      onLockWait: millis => Metrics.lockWaited(millis, tags),
      idempotencyBytes: limits.idempotencyBytes,
      onComparison: IdempotencyMetrics.make(tags)
    })
    const marks = yield* HousekeepingMetrics.make("marks")
    yield* DatabaseClock.bySystemClock(
      Supervision.repeatScoped("removing marks of commits", "20 seconds", marks(writer.prune))
    )

    const group = yield* StoreCommit.make({
      commit: (group, _, isGivenUp) =>
        Effect.map(
          atNow(now => DatabaseClock.bySystemClock(writer.commit(group, now, isGivenUp))),
          outcomes =>
            outcomes.map((outcome, index) => Either.flatMap(outcome, decided => outcomeOf(group[index]!, decided)))
        ),
      maxBatchWaitMillis
    })

    const run = <A>({ decode, statement, values }: Query<A>): Effect.Effect<A, StoreUnavailable> =>
      reads.read(statement, values, decode)
    /** A pooler hands connections on, so that statements on them cannot follow each other. */
    const runShort = <A>(query: Query<A>): Effect.Effect<A, StoreUnavailable> =>
      pooled.isPooled
        ? run(query)
        : Pool.orElseWhenLost(pipeline.run(query.statement, query.values, query.decode), () => run(query))

    const store = Store.of({
      get: (namespace, key) =>
        Direct.map(
          Direct.suspend(() => runShort(Queries.get(namespace, key, clock.now()))),
          Option.fromNullable
        ),
      getMany: (addresses, maxBytes, keysOnly = false) =>
        Direct.flatMap(
          Direct.suspend(() => run(Queries.getMany(addresses, maxBytes, keysOnly, clock.now()))),
          read => (read === undefined ? Exit.fail(new EntriesTooLarge({ limitBytes: maxBytes })) : Exit.succeed(read))
        ),
      ...Lists.make({ reads, snapshot: Snapshots.make(lists, limits.wholeLists), now: clock.now }),
      namespaces: query => Direct.suspend(() => run(Namespaces.namespaces(query, clock.now()))),
      tenants: query => Direct.suspend(() => run(Namespaces.tenants(query, clock.now()))),
      commit: group.commit,
      backup: new BackupRefused({
        cause: "Unsupported",
        message:
          "The store is in PostgreSQL: back it up by pg_basebackup or pg_dump. causeway migrate-store copies it into SQLite"
      }),
      now: clock.now,
      ready: Effect.suspend(() =>
        group.isStuck() ? Effect.succeed(false) : Effect.as(run(Queries.history), true)
      ).pipe(
        Effect.timeoutTo({ duration: "1 second", onSuccess: answer => answer, onTimeout: () => false }),
        Effect.catchAll(() => Effect.succeed(false))
      )
    })

    const runPortion = <A>({ decode, statement, values }: Query<A>) =>
      writes.read(statement, values, decode, portionTimeout)
    const counts = yield* HousekeepingMetrics.make("counts")
    yield* DatabaseClock.bySystemClock(
      Supervision.repeatScoped(
        "folding of counts",
        Counts.interval,
        counts(Effect.repeat(runPortion(Counts.fold), { while: more => more }))
      )
    )

    const expiry = Portions.make()
    const expirePortion = (size: number, now: number) =>
      Direct.map(runPortion(Queries.expire(now, size)), ({ count, lastSeq }) => {
        if (lastSeq !== null) onLastSeq(lastSeq)
        return count
      })
    const expiring = yield* HousekeepingMetrics.make("expiry")
    yield* DatabaseClock.bySystemClock(
      Supervision.repeatScoped(
        "position of expiry",
        Expiry.interval,
        expiring(atNow(now => writes.read(Expiry.advance, [now], () => undefined, portionTimeout)))
      )
    )
    const retention = Portions.make()

    const histories = new DirectFlight<string, number, StoreUnavailable>(
      yield* Effect.runtime<never>(),
      "A reader of the log's history failed"
    )

    const log = ChangeLog.of({
      read: query =>
        Direct.flatMap(
          Direct.suspend(() => run(Queries.changes(query))),
          page =>
            "_tag" in page
              ? Exit.fail(new HistoryTrimmed({ trimmedSeq: page.trimmedSeq, epoch: page.epoch }))
              : Exit.succeed(page)
        ),
      history: histories.next("", Direct.map(run(Queries.history), countChanges())),
      lastSeq: Direct.suspend(() => run(Queries.end)),
      awaitPast: seq => end.awaitPast(seq),
      trim: age => atNow(now => retention(size => runPortion(Queries.trim(now - Duration.toMillis(age), size)))),
      expire: expiry(size => atNow(now => expirePortion(size, now))),
      due: Direct.map(
        Direct.suspend(() => run(Queries.due)),
        ({ expiresAt, oldestAt }) => {
          const ahead = clock.ahead()
          return {
            expiresAt: expiresAt === null ? null : expiresAt - ahead,
            oldestAt: oldestAt === null ? null : oldestAt - ahead
          }
        }
      )
    })

    return Context.make(Store, store).pipe(
      Context.add(ChangeLog, log),
      Context.add(Database, { reads, writes, atNow, lastTold: clock.lastTold, sessions })
    )
  })

const outcomeOf = (
  write: Write,
  outcome: Outcome
): Either.Either<Committed, PreconditionFailed | IdempotencyConflict> => {
  if (outcome._tag === "Committed") return Either.right(committed(write, outcome.committed))
  if (outcome._tag === "KeyReused") return Either.left(new IdempotencyConflict({ isInProgress: false }))
  const { currentVersion, index, isChangedBefore } = outcome
  return Either.left(new PreconditionFailed({ index, currentVersion, isChangedBefore }))
}

/** The store in a database, and the connections to it for what else is kept there. */
export const layer = (options: Options): Layer.Layer<Store | ChangeLog | Database, Opening.StoreRefused> =>
  Layer.scopedContext(make(options))
