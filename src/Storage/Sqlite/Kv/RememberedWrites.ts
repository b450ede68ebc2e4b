import type Database from "better-sqlite3"
import { lifetime, overheadBytes } from "../../../Kv/Idempotency.ts"
import type { IdempotencyKey } from "../../../Kv/Write.ts"

/** What is kept of a write. */
interface Remembered {
  readonly digest: string
  readonly outcome: string
}

/**
 * The table of writes with idempotency keys that were applied. A row has the bytes of all rows up to it, `up_to`, by
 * which rows are ordered, so that the bytes of all follow from the first and the last.
 */
export class RememberedWrites {
  private readonly statements: ReturnType<typeof prepare>
  /** The bytes up to the last row; `undefined` where it was not asked for in this transaction. */
  private end: number | undefined
  /** Bytes that this transaction has added. */
  private added = 0

  constructor(
    db: Database.Database,
    private readonly limitBytes: number
  ) {
    this.statements = prepare(db)
  }

  find(id: string, now: number): Remembered | undefined {
    return this.statements.find.get(id, now - lifetime)
  }

  keep({ digest, id }: IdempotencyKey, outcome: string, now: number): void {
    const bytes = overheadBytes + outcome.length
    this.end = (this.end ?? this.statements.end.get() ?? 0) + bytes
    this.added += bytes
    this.statements.keep.run(this.end, id, digest, now, outcome)
  }

  /** Removes rows that are too old, and the oldest above the limit: twice as many bytes as were added, at least. */
  flush(now: number): void {
    const { added, end } = this
    if (end === undefined) return
    const isDue = ([upTo, start, keptAt]: readonly [number, number, number]) =>
      upTo < end && (start < end - this.limitBytes || keptAt <= now - lifetime)
    const first = this.statements.oldest.get(1)
    if (first !== undefined && isDue(first)) {
      const last = this.statements.oldest.all(2 * Math.ceil(added / overheadBytes)).findLast(isDue)
      this.statements.forget.run(last?.[0])
    }
    this.clear()
  }

  /** Forgets what a transaction has done. */
  clear(): void {
    this.end = undefined
    this.added = 0
  }
}

const prepare = (db: Database.Database) => ({
  find: db.prepare<[id: string, after: number], Remembered>(
    "SELECT digest, outcome FROM remembered_writes WHERE id = ? AND kept_at > ?"
  ),
  end: db.prepare<[], number | null>("SELECT max(up_to) FROM remembered_writes").pluck(),
  // A row of the same id is too old, or it would have been found.
  keep: db.prepare(
    "INSERT OR REPLACE INTO remembered_writes (up_to, id, digest, kept_at, outcome) VALUES (?, ?, ?, ?, ?)"
  ),
  oldest: db
    .prepare<[limit: number], [upTo: number, start: number, keptAt: number]>(
      `SELECT up_to, up_to - ${overheadBytes} - length(outcome), kept_at FROM remembered_writes ORDER BY up_to LIMIT ?`
    )
    .raw(),
  forget: db.prepare("DELETE FROM remembered_writes WHERE up_to <= ?")
})
