/**
 * The migrations that were applied to a database file.
 */
import type { Database } from "better-sqlite3"
import { differenceOf } from "../../MigrationNames.ts"
import { isUnreadable } from "./DatabaseError.ts"

/** The table of a database that lists the applied migrations. */
export const migrationsTable = "effect_sql_migrations"

/** The listed migrations; `undefined` if there is no list, as in files of old versions. */
const listedIn = (db: Database): ReadonlyMap<number, string> | undefined => {
  if (db.prepare("SELECT 1 FROM sqlite_schema WHERE name = ?").get(migrationsTable) === undefined) return undefined
  const rows = db.prepare<[], [number, string]>(`SELECT migration_id, name FROM ${migrationsTable}`).raw().all()
  return new Map(rows)
}

/**
 * The difference between the migrations of a database with a schema version and those of this code; `undefined` if
 * there is none. A list on a damaged page is ignored: the rest of the database is served.
 */
export const differenceIn = (db: Database, known: ReadonlyArray<string>, version: number): string | undefined => {
  try {
    const listed = listedIn(db)
    return listed === undefined ? undefined : differenceOf(known, version, listed)
  } catch (error) {
    if (isUnreadable(error)) return undefined
    throw error
  }
}
