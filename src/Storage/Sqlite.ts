/**
 * The key-value store in one SQLite database: the ports `Store` and `ChangeLog`. A whole list has a snapshot that lasts
 * over several iterations of the event loop.
 */

import { Clock, Context, Duration, Effect, Either, Exit, Layer, Option, type Scope, Stream } from "effect"
import * as Direct from "../base/Direct.ts"
import { Limits } from "../base/Limits.ts"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import { yieldToEventLoop } from "../base/Time/EventLoop.ts"
import { ChangeLog, HistoryTrimmed } from "../Kv/ChangeLog.ts"
import { tenantOf } from "../Kv/Entry.ts"
import type { Comparison } from "../Kv/IdempotencyShares.ts"
import {
  EntriesTooLarge,
  IdempotencyConflict,
  type ListPage,
  PreconditionFailed,
  type Selection,
  Store,
  StoreUnavailable
} from "../Kv/Store.ts"
import { type Committed, committed, type Write } from "../Kv/Write.ts"
import * as StoreCommit from "./Commit/StoreCommit.ts"
import type { EntryQuery } from "./KeyOrder.ts"
import * as StoreBackup from "./Sqlite/Copy/StoreBackup.ts"
import * as Database from "./Sqlite/Database/Database.ts"
import { renewEpoch as renewEpochOf, type StoreRefused } from "./Sqlite/Database/Opening.ts"
import { damageReporter, type Reader, type ReportDamage, type Snapshot } from "./Sqlite/Database/Reader.ts"
import type { WriteFailure } from "./Sqlite/Database/WriterPort.ts"
import * as DiskMetrics from "./Sqlite/DiskMetrics.ts"
import { Queries } from "./Sqlite/Kv/Queries.ts"
import { format } from "./Sqlite/Kv/Schema.ts"
import { type Outcome, writer } from "./Sqlite/Kv/Tables.ts"
import type { ThreadData } from "./Sqlite/WriterThread.ts"

export type { Options } from "./Sqlite/Database/Database.ts"
export { StoreRefused } from "./Sqlite/Database/Opening.ts"

/** The maximum number of entries that one transaction expires, and of records that one removes. */
const expiryPortion = 2000
const trimPortion = 200

type StoreDatabase = Database.Database<Write, Outcome, Queries>

type WriteError = PreconditionFailed | IdempotencyConflict | StoreUnavailable | Database.WriterDefect

/** The outcome of a write, as the port returns it. `onComparison` is called if tenants were compared. */
const outcomeOf = (
  write: Write,
  outcome: Outcome | WriteFailure,
  onComparison: (comparison: Comparison) => void
): Either.Either<Committed, WriteError> => {
  switch (outcome._tag) {
    case "Committed":
      if (outcome.comparison !== undefined) onComparison(outcome.comparison)
      return Either.right(committed(write, outcome.committed))
    case "Refused": {
      const { index, currentVersion, isChangedBefore } = outcome
      return Either.left(new PreconditionFailed({ index, currentVersion, isChangedBefore }))
    }
    case "KeyReused":
      return Either.left(new IdempotencyConflict({ isInProgress: false }))
    case "Failed":
      return Either.left(new StoreUnavailable({ reason: outcome.reason }))
    case "Defect":
      return Either.left(new Database.WriterDefect({ message: outcome.reason }))
  }
}

/** The size of a portion of a whole list. It is small, so that a client with a slow connection reads it in time. */
const portionSize = { limit: 1000, size: 256 * 1024 }

/** How many names in an index, or rows, are counted in one iteration of the event loop, in some milliseconds. */
const namesAtOnce = 20_000
const rowsAtOnce = 4000

/** The maximum number of expired entries that are counted separately. */
const dueAtOnce = 2000

/** A page, and whether its entries must still be counted. */
const readPage = (queries: Queries, query: EntryQuery, epoch: string): ListPage & { readonly isCounting?: true } => {
  const { after, isCounted = false, now } = query
  const page = { ...queries.entries(query), lastSeq: queries.lastSeq(), epoch }
  if (!isCounted) return page
  if (after === "" && !page.more) return { ...page, count: page.entries.length }
  const due = queries.countDue(query, dueAtOnce, now)
  if (due === undefined) return { ...page, isCounting: true }
  const { count, next } = queries.countNames(query, namesAtOnce)
  return next === undefined ? { ...page, count: count - due } : { ...page, isCounting: true }
}

/** The number of entries of a selection, counted with other requests in between. */
const countAll = ({ snapshots }: Reader<Queries>, snapshot: Snapshot<Queries>, selection: Selection, now: number) =>
  Effect.gen(function* () {
    const due = yield* snapshots.read(snapshot, queries => queries.countDue(selection, dueAtOnce, now))
    let total = due === undefined ? 0 : -due
    for (let from: string | undefined = ""; from !== undefined; ) {
      const start: string = from
      const { count, next } = yield* snapshots.read(snapshot, queries =>
        due === undefined
          ? queries.countVisible(selection, rowsAtOnce, now, start)
          : queries.countNames(selection, namesAtOnce, start)
      )
      total += count
      from = next
      yield* yieldToEventLoop
    }
    return total
  })

/** Reads pages. A count that is too large for one iteration takes a snapshot. */
const pages = (reader: Reader<Queries>, epoch: () => string): Context.Tag.Service<Store>["list"] => {
  const { snapshots } = reader
  return query => {
    const short = reader.read((queries, now) => queries.inSnapshot(() => readPage(queries, { ...query, now }, epoch())))
    if (query.isCounted !== true) return short
    return Direct.flatMap(short, ({ isCounting, ...page }) =>
      isCounting === undefined
        ? Exit.succeed(page)
        : Effect.scoped(
            Effect.gen(function* () {
              const now = yield* Clock.currentTimeMillis
              const snapshot = yield* snapshots.take(tenantOf(query.namespace))
              const { isCounting: _, ...page } = yield* snapshots.read(snapshot, queries =>
                readPage(queries, { ...query, now, isCounted: false }, epoch())
              )
              return { ...page, count: yield* countAll(reader, snapshot, query, now) }
            })
          )
    )
  }
}

const wholeLists =
  (reader: Reader<Queries>, epochNow: () => string): Context.Tag.Service<Store>["listAll"] =>
  query =>
    Effect.gen(function* () {
      const { snapshots } = reader
      const now = yield* Clock.currentTimeMillis
      const snapshot = yield* snapshots.take(tenantOf(query.namespace))
      const { epoch, lastSeq } = yield* snapshots.read(snapshot, queries => ({
        epoch: epochNow(),
        lastSeq: queries.lastSeq()
      }))
      const count = query.isCounted === true ? { count: yield* countAll(reader, snapshot, query, now) } : {}
      const portion = (after: string) =>
        snapshots.read(snapshot, queries => {
          const rows = queries.entries({ ...query, ...portionSize, after, now })
          // A list that was read to its end needs no snapshot, even if the scope lasts longer.
          if (!rows.more) snapshots.release(snapshot)
          return rows
        })
      const portions = Stream.paginateEffect("", after =>
        // A client on a fast connection takes each portion at once. Other requests must run in between.
        Effect.map(Effect.zipRight(yieldToEventLoop, portion(after)), ({ entries, more }) => [
          entries,
          more ? Option.some(entries.at(-1)!.key) : Option.none()
        ])
      )
      return { lastSeq, epoch, portions, ...count }
    })

const storeOf = (
  { epoch, isWritable, reader }: StoreDatabase,
  group: StoreCommit.StoreCommit<WriteError>,
  backup: Context.Tag.Service<Store>["backup"],
  clock: Clock.Clock
) =>
  Store.of({
    get: (namespace, key) => reader.read((queries, now) => Option.fromNullable(queries.get(namespace, key, now))),
    getMany: (addresses, maxBytes, keysOnly = false) =>
      Direct.flatMap(
        reader.read((queries, now) =>
          queries.inSnapshot(() => ({
            entries: keysOnly ? queries.getManyKeys(addresses, now) : queries.getMany(addresses, maxBytes, now),
            lastSeq: queries.lastSeq(),
            epoch: epoch()
          }))
        ),
        ({ entries, ...position }) =>
          entries === undefined
            ? Exit.fail(new EntriesTooLarge({ limitBytes: maxBytes }))
            : Exit.succeed({ entries, ...position })
      ),
    list: pages(reader, epoch),
    listAll: wholeLists(reader, epoch),
    namespaces: query =>
      reader.read((queries, now) => queries.inSnapshot(() => queries.namespaces(query, now, epoch()))),
    tenants: query => reader.read((queries, now) => queries.inSnapshot(() => queries.tenants(query, now, epoch()))),
    // A bug in the writer is a defect of the commit.
    commit: write =>
      Direct.catchAll(group.commit(write), error =>
        error._tag === "WriterDefect" ? Exit.die(error) : Exit.fail(error)
      ),
    backup,
    now: () => clock.unsafeCurrentTimeMillis(),
    ready: Effect.gen(function* () {
      if (group.isStuck() || !(yield* isWritable)) return false
      yield* reader.read(queries => queries.lastSeq())
      return true
    }).pipe(
      Effect.timeoutTo({ duration: Duration.seconds(1), onSuccess: answer => answer, onTimeout: () => false }),
      Effect.catchAll(() => Effect.succeed(false))
    )
  })

const changeLogOf = ({ epoch, reader, run }: StoreDatabase, end: StoreCommit.LastSeq, reportDamage: ReportDamage) =>
  ChangeLog.of({
    read: query =>
      Direct.flatMap(
        reader.read(queries => queries.changes(query, epoch())),
        page => {
          const answer =
            "_tag" in page
              ? Exit.fail(new HistoryTrimmed({ trimmedSeq: page.trimmedSeq, epoch: epoch() }))
              : Exit.succeed(page)
          return page.damage === undefined ? answer : Effect.zipRight(reportDamage("read", page.damage), answer)
        }
      ),
    history: reader.history,
    lastSeq: reader.read(queries => queries.lastSeq()),
    awaitPast: seq => end.awaitPast(seq),
    trim: age =>
      run(
        "trim",
        Effect.map(Clock.currentTimeMillis, now => now - Duration.toMillis(age)),
        trimPortion
      ),
    expire: run("expire", Clock.currentTimeMillis, expiryPortion),
    due: reader.read(queries => queries.due())
  })

/** The ports of a store in the file `kv.db` of a directory. This process owns the store until the scope closes. */
export const make = (
  options: Database.Options
): Effect.Effect<Context.Context<Store | ChangeLog>, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const { idempotencyBytes, walBytes, wholeLists } = yield* Limits
    const threadData: ThreadData = { database: "kv", idempotencyBytes }
    const clock = yield* Effect.clock
    const tags = yield* MetricTags.current
    const end = new StoreCommit.LastSeq()
    const reportDamage = damageReporter("store database", "store_database_damage_total", tags)
    const database = yield* Database.make(options, {
      ...writer(idempotencyBytes),
      threadData,
      queries: connection => new Queries(connection),
      maxSnapshots: wholeLists,
      startsLazily: false,
      onLastSeq: lastSeq => end.set(lastSeq),
      reportDamage,
      describe: writes => ({
        writes: writes.length,
        operations: writes.reduce((sum, write) => sum + write.operations.length, 0)
      })
    })
    const { epoch, file } = database
    yield* DiskMetrics.files("kv.db", file)
    // The write-ahead log may grow to this size before it is truncated.
    yield* DiskMetrics.disk(file, walBytes)
    const onComparison = StoreCommit.idempotencyMetrics(tags)
    const group = yield* StoreCommit.make({
      commit: (writes, now) =>
        Effect.map(database.commit(writes, now), outcomes =>
          outcomes.map((outcome, index) => outcomeOf(writes[index]!, outcome, onComparison))
        )
    })

    yield* Effect.ignore(Effect.try(() => StoreBackup.removeLeftovers(file)))
    const backup = yield* StoreBackup.make({ file, format, epoch, writer: options.writer ?? "thread" })
    return Context.make(Store, storeOf(database, group, backup, clock)).pipe(
      Context.add(ChangeLog, changeLogOf(database, end, reportDamage))
    )
  })

/** Gives the log of a store that is not open a new epoch, because its changes differ. Returns the epoch. */
export const renewEpoch = ({ directory }: Pick<Database.Options, "directory">): Effect.Effect<string, StoreRefused> =>
  renewEpochOf(directory, format)

export const layer = (options: Database.Options): Layer.Layer<Store | ChangeLog, StoreRefused> =>
  Layer.scopedContext(make(options))
