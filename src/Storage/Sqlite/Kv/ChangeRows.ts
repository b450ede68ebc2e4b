import type Database from "better-sqlite3"
import type { StoredChange } from "../../../Kv/Change.ts"
import { tenantOf } from "../../../Kv/Entry.ts"

/** The number of rows that one statement inserts. More rows are not faster. */
const rowsAtOnce = 8

const columns = ["seq", "op", "namespace", "key", "version", "actor", "timestamp", "tenant", "value"] as const

// OR FAIL: SQLite need not copy pages to undo the statement, because the transaction is rolled back when it fails.
const insert = (db: Database.Database, rows: number) =>
  db.prepare(
    `INSERT OR FAIL INTO changes (${columns.join(", ")}) VALUES ${Array.from({ length: rows }, () => `(${columns.map(() => "?").join(", ")})`).join(", ")}`
  )

/** Inserts change records into the log, several with each statement. After `flush` all are inserted. */
export class ChangeRows {
  private readonly insertOne: Database.Statement
  private readonly insertMany: Database.Statement
  private waiting: Array<StoredChange> = []

  constructor(db: Database.Database) {
    this.insertOne = insert(db, 1)
    this.insertMany = insert(db, rowsAtOnce)
  }

  add(change: StoredChange): void {
    if (this.waiting.push(change) < rowsAtOnce) return
    const parameters: Array<unknown> = []
    for (const waiting of this.waiting) pushRow(parameters, waiting)
    this.insertMany.run(parameters)
    this.waiting = []
  }

  flush(): void {
    for (const change of this.waiting) this.insertOne.run(pushRow([], change))
    this.waiting = []
  }

  /** Drops records that were not inserted yet. */
  clear(): void {
    this.waiting = []
  }
}

const pushRow = (parameters: Array<unknown>, change: StoredChange): Array<unknown> => {
  const { seq, op, namespace, key, version, actor, timestamp, value } = change
  parameters.push(seq, op, namespace, key, version, actor, timestamp, tenantOf(namespace), value)
  return parameters
}
