/**
 * The ports `Store` and `ChangeLog` over a database.
 */
import { Clock, type Context, Duration, Effect, Either, Exit, Option } from "effect"
import * as Direct from "../../../Direct.ts"
import { ChangeLog, HistoryTrimmed } from "../../../Kv/ChangeLog.ts"
import type { Comparison } from "../../../Kv/IdempotencyShares.ts"
import { EntriesTooLarge, IdempotencyConflict, PreconditionFailed, Store, StoreUnavailable } from "../../../Kv/Store.ts"
import { type Committed, committed, type Write } from "../../../Kv/Write.ts"
import type * as StoreCommit from "../../Commit/StoreCommit.ts"
import type { LastSeq } from "../../LastSeq.ts"
import type * as Damage from "../Database/Damage.ts"
import { type Database, WriterDefect } from "../Database/Database.ts"
import type { WriteFailure } from "../Database/Messages.ts"
import * as Lists from "./Lists.ts"
import type { Queries } from "./Queries.ts"
import type { Outcome } from "./Tables.ts"

/** The maximum number of entries that one transaction expires, and of records that one removes. */
const expiryPortion = 2000
const trimPortion = 200

/** The database and the group commit of the store. */
export interface StoreOptions {
  readonly database: Database<Write, Outcome, Queries>
  readonly group: StoreCommit.StoreCommit<WriteError>
  readonly backup: Context.Tag.Service<Store>["backup"]
  readonly clock: Clock.Clock
}

type WriteError = PreconditionFailed | IdempotencyConflict | StoreUnavailable | WriterDefect

/** The outcome of a write, as the port returns it. `onComparison` is called if tenants were compared. */
export const outcomeOf = (
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
      return Either.left(new WriterDefect({ message: outcome.reason }))
  }
}

/** The port `Store` over a SQLite database. */
export const store = ({ backup, clock, database, group }: StoreOptions) => {
  const { epoch, isWritable, reader } = database
  return Store.of({
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
}

/** The port `ChangeLog` over a SQLite database. */
export const changeLog = (
  { epoch, reader, run }: Database<Write, Outcome, Queries>,
  end: LastSeq,
  reportDamage: Damage.Report
) =>
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
