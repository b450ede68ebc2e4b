import type Database from "better-sqlite3"

/** Counts all entries, where rows were inserted otherwise than by the writer. */
export const recount = `DELETE FROM namespaces;
  INSERT INTO namespaces (namespace, entries) SELECT namespace, count(*) FROM entries GROUP BY namespace`

/** Keeps how many entries each namespace has. All is written by `flush`. */
export class NamespaceCounts {
  private readonly addEntries: Database.Statement<[namespace: string, entries: number]>
  private readonly dropEmpty: Database.Statement<[namespace: string]>
  private changed = new Map<string, number>()

  constructor(db: Database.Database) {
    this.addEntries = db.prepare(
      "INSERT INTO namespaces (namespace, entries) VALUES (?, ?) ON CONFLICT DO UPDATE SET entries = entries + excluded.entries"
    )
    this.dropEmpty = db.prepare("DELETE FROM namespaces WHERE namespace = ? AND entries = 0")
  }

  add(namespace: string, entries: number): void {
    this.changed.set(namespace, (this.changed.get(namespace) ?? 0) + entries)
  }

  flush(): void {
    if (this.changed.size === 0) return
    for (const [namespace, entries] of this.changed) {
      if (entries === 0) continue
      this.addEntries.run(namespace, entries)
      if (entries < 0) this.dropEmpty.run(namespace)
    }
    this.clear()
  }

  /** Drops what was not written yet. */
  clear(): void {
    if (this.changed.size > 0) this.changed = new Map()
  }
}
