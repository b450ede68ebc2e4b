/**
 * The key-value store in one SQLite database.
 */
import { Context, Effect, Layer, type Scope } from "effect"
import { ChangeLog } from "../Kv/ChangeLog.ts"
import { Store } from "../Kv/Store.ts"
import { Limits } from "../Limits.ts"
import * as MetricTags from "../MetricTags.ts"
import * as StoreCommit from "./Commit/StoreCommit.ts"
import * as IdempotencyMetrics from "./IdempotencyMetrics.ts"
import { LastSeq } from "./LastSeq.ts"
import * as StoreBackup from "./Sqlite/Copy/StoreBackup.ts"
import * as Damage from "./Sqlite/Database/Damage.ts"
import * as Database from "./Sqlite/Database/Database.ts"
import { renewEpoch as renewEpochOf } from "./Sqlite/Database/Opening.ts"
import type { StoreRefused } from "./Sqlite/Database/StoreRefused.ts"
import * as DiskMetrics from "./Sqlite/DiskMetrics.ts"
import * as EntryLog from "./Sqlite/Kv/EntryLog.ts"
import * as EntryStore from "./Sqlite/Kv/EntryStore.ts"
import { Queries } from "./Sqlite/Kv/Queries.ts"
import { format, writer } from "./Sqlite/Kv/Writer.ts"
import type { ThreadData } from "./Sqlite/WriterThread.ts"

export type { Options } from "./Sqlite/Database/Database.ts"
export { StoreRefused } from "./Sqlite/Database/StoreRefused.ts"

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
    const skipped = new EntryLog.SkippedPage()
    const reportDamage = Damage.reporter("store database", "store_database_damage_total", tags)
    const database = yield* Database.make(options, {
      ...writer(idempotencyBytes),
      threadData,
      queries: connection => new Queries(connection, skipped.note),
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
    const onComparison = IdempotencyMetrics.make(tags)
    const group = yield* StoreCommit.make({
      commit: (writes, now) =>
        Effect.map(database.commit(writes, now), outcomes =>
          outcomes.map((outcome, index) => EntryStore.outcomeOf(writes[index]!, outcome, onComparison))
        )
    })

    yield* Effect.ignore(Effect.try(() => StoreBackup.removeLeftovers(file)))
    const backup = yield* StoreBackup.make({ file, format, epoch, writer: options.writer ?? "thread" })
    const store = EntryStore.make({ database, group, backup, clock })
    const log = EntryLog.make({ database, end, skipped, reportDamage })
    return Context.make(Store, store).pipe(Context.add(ChangeLog, log))
  })

/**
 * Gives the log of a store a new epoch, because its changes differ from those that readers know. Returns the epoch. The
 * store must not be open.
 */
export const renewEpoch = ({ directory }: Pick<Database.Options, "directory">): Effect.Effect<string, StoreRefused> =>
  renewEpochOf(directory, format)

/** The store in a directory. */
export const layer = (options: Database.Options): Layer.Layer<Store | ChangeLog, StoreRefused> =>
  Layer.scopedContext(make(options))
