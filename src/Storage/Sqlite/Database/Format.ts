import { join } from "node:path"
import type { Migration } from "./Migrations.ts"

/** What marks the files of a database, and its schema. */
export interface Format {
  /** The files are `<name>.db` and `<name>.lock`. */
  readonly name: string
  /** PRAGMA application_id. */
  readonly applicationId: number
  /** The newest schema that this code knows (PRAGMA user_version): how many migrations there are. */
  readonly schemaVersion: number
  /** Loads the migrations, which few starts need. */
  readonly load: () => Promise<{ readonly migrations: ReadonlyArray<Migration> }>
}

/** The file of a database in its directory. */
export const fileOf = (directory: string, { name }: Format): string => join(directory, `${name}.db`)
