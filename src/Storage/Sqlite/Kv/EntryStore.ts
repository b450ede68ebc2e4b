/**
 * The port `Store` over a database.
 */
import { type Clock, type Context, Duration, Effect, Either, Exit, Option } from "effect"
import * as Direct from "../../../Direct.ts"
import type { Comparison } from "../../../Kv/IdempotencyShares.ts"
import { EntriesTooLarge, IdempotencyConflict, PreconditionFailed, Store, StoreUnavailable } from "../../../Kv/Store.ts"
import { type Committed, committed, type Write } from "../../../Kv/Write.ts"
import type * as StoreCommit from "../../Commit/StoreCommit.ts"
import { type Database, WriterDefect } from "../Database/Database.ts"
import type { WriteFailure } from "../Database/Messages.ts"
import * as Lists from "./Lists.ts"
import type { Queries } from "./Queries.ts"
import type { Outcome } from "./Writer.ts"

/** The database and the group commit of the store. */
export interface Options {
  readonly database: Pick<Database<Write, Outcome, Queries>, "reader" | "epoch" | "isWritable">
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
export const make = ({ backup, clock, database, group }: Options) => {
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
