/**
 * The format of the session database.
 */
import type { Format, Migration } from "../Database/Connection.ts"

/** The tables of the session database: histories, their events, the configurations of instances, and receipts. */
const migrations: ReadonlyArray<Migration> = [
  {
    name: "first_release",
    statements: [
      `CREATE TABLE histories (
        id INTEGER PRIMARY KEY,
        session TEXT NOT NULL UNIQUE,
        epoch TEXT NOT NULL,
        head INTEGER NOT NULL,
        trimmed INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        recovery_state TEXT
      ) STRICT`,
      "CREATE INDEX histories_unfinished ON histories (id) WHERE recovery_state IS NOT NULL",
      `CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        history INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        timestamp INTEGER NOT NULL,
        size INTEGER NOT NULL,
        text TEXT NOT NULL,
        UNIQUE (history, seq)
      ) STRICT`,
      // The names of the parts come before the parts: they can be read without the large texts.
      `CREATE TABLE launch_configurations (
        id INTEGER PRIMARY KEY,
        session TEXT NOT NULL UNIQUE,
        has_environment INTEGER NOT NULL,
        has_deployment INTEGER NOT NULL,
        environment TEXT,
        deployment TEXT
      ) STRICT`,
      `CREATE TABLE receipts (
        id INTEGER PRIMARY KEY,
        history INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        name TEXT NOT NULL,
        digest TEXT NOT NULL,
        turn TEXT,
        UNIQUE (history, name)
      ) STRICT`,
      "CREATE INDEX receipts_by_age ON receipts (history, seq)"
    ]
  }
]

/**
 * The database of the events of sessions.
 *
 * It is separate from the key-value store's file. Events are many and short-lived: in the store's file they would
 * enlarge its log and its backups and share its flushes. A store in PostgreSQL has no such file at all. No transaction
 * needs both. The record of a session is in the store, its history here. A session whose history is lost, or
 * the end of it, continues with what is left in another epoch.
 *
 * Its application id is `CWSE`.
 */
export const format: Format = {
  name: "sessions",
  applicationId: 0x43575345,
  migrations
}
