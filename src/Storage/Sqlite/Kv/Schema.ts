import { fromStatements, type Migration } from "../Database/Migrations.ts"
import { migration as launchConfigurations } from "./LaunchConfigurations.ts"

/**
 * The tables of the key-value store. Columns that may be large come last, so that the others can be read without them.
 * Tombstones have a table of their own, so that lists never scan deleted keys.
 */
export const migrations: ReadonlyArray<Migration> = [
  fromStatements(
    "initial",
    `CREATE TABLE entries (
      namespace TEXT NOT NULL,
      key TEXT NOT NULL,
      version INTEGER NOT NULL,
      updated_by TEXT NOT NULL,
      updated_at INTEGER NOT NULL,
      expires_at INTEGER,
      value TEXT NOT NULL,
      UNIQUE (namespace, key)
    ) STRICT`,
    "CREATE INDEX entries_expiring ON entries (expires_at) WHERE expires_at IS NOT NULL",
    `CREATE TABLE tombstones (
      namespace TEXT NOT NULL,
      key TEXT NOT NULL,
      version INTEGER NOT NULL,
      seq INTEGER NOT NULL,
      PRIMARY KEY (namespace, key)
    ) STRICT, WITHOUT ROWID`,
    "CREATE INDEX tombstones_by_seq ON tombstones (seq)",
    `CREATE TABLE changes (
      seq INTEGER PRIMARY KEY,
      op TEXT NOT NULL,
      namespace TEXT NOT NULL,
      key TEXT NOT NULL,
      version INTEGER NOT NULL,
      actor TEXT NOT NULL,
      timestamp INTEGER NOT NULL,
      tenant TEXT NOT NULL,
      value TEXT
    ) STRICT`,
    "CREATE INDEX changes_by_tenant ON changes (tenant, seq) WHERE tenant <> ''"
  ),
  launchConfigurations
]
