/**
 * The migrations of a database file, and whether those that were applied to it are the ones of this code.
 */
import type { Database } from "better-sqlite3"
import { differenceOf, isOfDevelopment, ofDevelopment } from "../../MigrationNames.ts"
import { isUnreadable } from "./DatabaseError.ts"

/** One step from a schema version to the next: statements without parameters. A released one never changes. */
export interface Migration {
  /** In lower case with underscores, as in the table of migrations. */
  readonly name: string
  readonly statements: ReadonlyArray<string>
}

/** The table of a database that lists the applied migrations. */
export const migrationsTable = "effect_sql_migrations"

/** The listed migrations. Only databases of development versions may have no list. */
const listedIn = (db: Database): ReadonlyMap<number, string> | undefined => {
  if (db.prepare("SELECT 1 FROM sqlite_schema WHERE name = ?").get(migrationsTable) === undefined) return undefined
  const rows = db.prepare<[], [number, string]>(`SELECT migration_id, name FROM ${migrationsTable}`).raw().all()
  return new Map(rows)
}

/** Migrations by their names. The position of one is its schema version. */
type Named = ReadonlyArray<{ readonly name: string }>

/** The end of a sentence that refuses a database of a newer schema than this code knows. */
export const newerThan = (known: Named, version: number): string | undefined =>
  version > known.length
    ? `has schema ${version}, newer than the ${known.length} that this version works with`
    : undefined

/**
 * Why this code cannot work with a database of a schema version, as the end of a sentence; `undefined` if it can. A list
 * on a damaged page is ignored: the rest of the database is served.
 */
export const refusalOf = (db: Database, known: Named, version: number): string | undefined => {
  const newer = newerThan(known, version)
  try {
    const listed = listedIn(db)
    if (listed === undefined || isOfDevelopment(listed)) return ofDevelopment("directory")
    if (newer !== undefined) return newer
    const difference = differenceOf(known.slice(0, version), listed)
    return difference && `was written by a version with other migrations: ${difference}`
  } catch (error) {
    if (isUnreadable(error)) return newer
    throw error
  }
}
