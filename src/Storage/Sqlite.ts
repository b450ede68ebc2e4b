/**
 * The key-value store in one SQLite database.
 */
import { Clock, Context, Duration, Effect, Either, Exit, Layer, Option, type Scope } from "effect"
import * as Direct from "../Direct.ts"
import { ChangeLog, HistoryTrimmed } from "../Kv/ChangeLog.ts"
import type { Comparison } from "../Kv/IdempotencyShares.ts"
import { EntriesTooLarge, IdempotencyConflict, PreconditionFailed, Store, StoreUnavailable } from "../Kv/Store.ts"
import { type Committed, committed, type Write } from "../Kv/Write.ts"
import { Limits } from "../Limits.ts"
import * as MetricTags from "../MetricTags.ts"
import * as IdempotencyMetrics from "./IdempotencyMetrics.ts"
import { LastSeq } from "./LastSeq.ts"
import * as StoreBackup from "./Sqlite/Copy/StoreBackup.ts"
import * as Damage from "./Sqlite/Database/Damage.ts"
import * as Database from "./Sqlite/Database/Database.ts"
import { describe } from "./Sqlite/Database/DatabaseError.ts"
import type { WriteFailure } from "./Sqlite/Database/Messages.ts"
import { renewEpoch as renewEpochOf } from "./Sqlite/Database/Opening.ts"
import type { StoreRefused } from "./Sqlite/Database/StoreRefused.ts"
import * as DiskMetrics from "./Sqlite/DiskMetrics.ts"
import * as Lists from "./Sqlite/Kv/Lists.ts"
import { Queries } from "./Sqlite/Kv/Queries.ts"
import { format, type Outcome, writer } from "./Sqlite/Kv/Writer.ts"
import type { ThreadData } from "./Sqlite/WriterThread.ts"
import * as StoreCommit from "./StoreCommit.ts"

export type { Options } from "./Sqlite/Database/Database.ts"
export { StoreRefused } from "./Sqlite/Database/StoreRefused.ts"

/** The maximum number of entries that one transaction expires, and of records that one removes. */
const expiryPortion = 2000
const trimPortion = 200

/** The ports of a store in the file `kv.db` of a directory. This process owns the store until the scope closes. */
export const make = (
  options: Database.Options
): Effect.Effect<Context.Context<Store | ChangeLog>, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const { idempotencyBytes, walBytes, wholeLists } = yield* Limits
    const threadData: ThreadData = { database: "kv", idempotencyBytes: idempotencyBytes }
    const clock = yield* Effect.clock
    const tags = yield* MetricTags.current
    const end = new LastSeq()
    const reportDamage = Damage.reporter("store database", "store_database_damage_total", tags)
    /** Why the last read of the log skipped an unreadable page. */
    let passed: string | undefined
    const { commit, epoch, file, isWritable, reader, run } = yield* Database.make(options, {
      ...writer(idempotencyBytes),
      threadData,
      queries: connection =>
        new Queries(connection, error => {
          passed = describe(error)
        }),
      maxSnapshots: wholeLists,
      startsLazily: false,
      onLastSeq: lastSeq => end.set(lastSeq),
      reportDamage,
      describe: writes => ({
        writes: writes.length,
        operations: writes.reduce((sum, write) => sum + write.operations.length, 0)
      })
    })
    yield* DiskMetrics.files("kv.db", file)
    // The write-ahead log may grow to this size before it is truncated.
    yield* DiskMetrics.disk(file, walBytes)
    const onComparison = IdempotencyMetrics.make(tags)
    const group = yield* StoreCommit.make({
      commit: (writes, now) =>
        Effect.map(commit(writes, now), outcomes =>
          outcomes.map((outcome, index) => outcomeOf(writes[index]!, outcome, onComparison))
        )
    })

    yield* Effect.ignore(Effect.try(() => StoreBackup.removeLeftovers(file)))
    const backup = yield* StoreBackup.make({ file, format, epoch, writer: options.writer ?? "thread" })

    const store = Store.of({
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
      list: Lists.page(reader, epoch),
      listAll: Lists.whole(reader, epoch),
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

    const log = ChangeLog.of({
      read: query =>
        Direct.flatMap(
          reader.read(queries => queries.changes(query, epoch())),
          page => {
            const answer =
              "_tag" in page
                ? Exit.fail(new HistoryTrimmed({ trimmedSeq: page.trimmedSeq, epoch: epoch() }))
                : Exit.succeed(page)
            if (passed === undefined) return answer
            const reason = passed
            passed = undefined
            return Effect.zipRight(reportDamage("read", reason), answer)
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

    return Context.make(Store, store).pipe(Context.add(ChangeLog, log))
  })

type WriteError = PreconditionFailed | IdempotencyConflict | StoreUnavailable | Database.WriterDefect

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

/**
 * Gives the log of a store a new epoch, because its changes differ from those that readers know. Returns the epoch. The
 * store must not be open.
 */
export const renewEpoch = ({ directory }: Pick<Database.Options, "directory">): Effect.Effect<string, StoreRefused> =>
  renewEpochOf(directory, format)

/** The store in a directory. */
export const layer = (options: Database.Options): Layer.Layer<Store | ChangeLog, StoreRefused> =>
  Layer.scopedContext(make(options))
