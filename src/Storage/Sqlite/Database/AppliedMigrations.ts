/**
 * Which migrations have run in a database file.
 */
import type { Database } from "better-sqlite3"
import { differenceOf } from "../../MigrationNames.ts"
import { isUnreadable } from "./DatabaseError.ts"

/** The table of a database that lists the migrations that have run. */
export const migrationsTable = "effect_sql_migrations"

/** The migrations that are listed; `undefined` where there is no list, as in a file of before there was one. */
const listedIn = (db: Database): ReadonlyMap<number, string> | undefined => {
  if (db.prepare("SELECT 1 FROM sqlite_schema WHERE name = ?").get(migrationsTable) === undefined) return undefined
  const rows = db.prepare<[], [number, string]>(`SELECT migration_id, name FROM ${migrationsTable}`).raw().all()
  return new Map(rows)
}

/**
 * How the migrations of a database with a schema version differ from those of this code; `undefined` where they do not. A
 * list that cannot be read for a damaged page tells nothing: the rest of the database is to be served.
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
