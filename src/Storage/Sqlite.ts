/**
 * The key-value store in one SQLite database.
 */
import { Context, Effect, Layer, type Scope } from "effect"
import { Limits } from "../base/Limits.ts"
import * as MetricTags from "../base/MetricTags.ts"
import { ChangeLog } from "../Kv/ChangeLog.ts"
import { Store } from "../Kv/Store.ts"
import * as StoreCommit from "./Commit/StoreCommit.ts"
import * as IdempotencyMetrics from "./IdempotencyMetrics.ts"
import { LastSeq } from "./LastSeq.ts"
import * as StoreBackup from "./Sqlite/Copy/StoreBackup.ts"
import * as Damage from "./Sqlite/Database/Damage.ts"
import * as Database from "./Sqlite/Database/Database.ts"
import type { StoreRefused } from "./Sqlite/Database/Opening/Identification.ts"
import { renewEpoch as renewEpochOf } from "./Sqlite/Database/Opening.ts"
import * as DiskMetrics from "./Sqlite/DiskMetrics.ts"
import * as Ports from "./Sqlite/Kv/Ports.ts"
import { Queries } from "./Sqlite/Kv/Queries.ts"
import { format } from "./Sqlite/Kv/Schema.ts"
import { writer } from "./Sqlite/Kv/Tables.ts"
import type { ThreadData } from "./Sqlite/WriterThread.ts"

export type { Options } from "./Sqlite/Database/Database.ts"
export { StoreRefused } from "./Sqlite/Database/Opening/Identification.ts"

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
    const onComparison = IdempotencyMetrics.make(tags)
    const group = yield* StoreCommit.make({
      commit: (writes, now) =>
        Effect.map(database.commit(writes, now), outcomes =>
          outcomes.map((outcome, index) => Ports.outcomeOf(writes[index]!, outcome, onComparison))
        )
    })

    yield* Effect.ignore(Effect.try(() => StoreBackup.removeLeftovers(file)))
    const backup = yield* StoreBackup.make({ file, format, epoch, writer: options.writer ?? "thread" })
    return Context.make(Store, Ports.store({ database, group, backup, clock })).pipe(
      Context.add(ChangeLog, Ports.changeLog(database, end, reportDamage))
    )
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
