/**
 * The port `ChangeLog` over a database.
 */
import { Clock, Duration, Effect, Exit } from "effect"
import * as Direct from "../../../Direct.ts"
import { ChangeLog, HistoryTrimmed } from "../../../Kv/ChangeLog.ts"
import type { Write } from "../../../Kv/Write.ts"
import type { LastSeq } from "../../LastSeq.ts"
import type * as Damage from "../Database/Damage.ts"
import type { Database } from "../Database/Database.ts"
import { describe } from "../Database/DatabaseError.ts"
import type { Queries } from "./Queries.ts"
import type { Outcome } from "./Writer.ts"

/** The maximum number of entries that one transaction expires, and of records that one removes. */
const expiryPortion = 2000
const trimPortion = 200

/** Remembers whether the last read of the log skipped an unreadable page, because only an effect can report it. */
export class SkippedPage {
  private reason: string | undefined

  /** A read has skipped a page. */
  readonly note = (error: unknown): void => {
    this.reason = describe(error)
  }

  /** Why the last read skipped a page, if it did. */
  take(): string | undefined {
    const { reason } = this
    this.reason = undefined
    return reason
  }
}

/** The database, and what its reads and commits report. */
export interface Options {
  readonly database: Pick<Database<Write, Outcome, Queries>, "reader" | "epoch" | "run">
  readonly end: LastSeq
  /** Of the queries of the database. */
  readonly skipped: SkippedPage
  readonly reportDamage: Damage.Report
}

/** The port `ChangeLog` over a SQLite database. */
export const make = ({ database, end, reportDamage, skipped }: Options) => {
  const { epoch, reader, run } = database
  return ChangeLog.of({
    read: query =>
      Direct.flatMap(
        reader.read(queries => queries.changes(query, epoch())),
        page => {
          const answer =
            "_tag" in page
              ? Exit.fail(new HistoryTrimmed({ trimmedSeq: page.trimmedSeq, epoch: epoch() }))
              : Exit.succeed(page)
          const reason = skipped.take()
          return reason === undefined ? answer : Effect.zipRight(reportDamage("read", reason), answer)
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
}
