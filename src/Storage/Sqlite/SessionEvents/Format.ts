/**
 * The database of the sessions' events: its name, and how the one connection that writes opens it.
 *
 * It is a file of its own beside the store's. Events are many, short-lived and of no use without their session: in
 * the store's file they would swell its log and its backups and share its flushes, and with the store in another
 * place, such as PostgreSQL, there would be no such file. Nothing has to commit in both: a session's record says what
 * it is, its history what became of it, and a history that is lost begins anew under another epoch.
 */
import { join } from "node:path"
import Database from "better-sqlite3"
import type { Format } from "../Database/Opening.ts"

/** `CWSE`, in the header of every database of sessions' events (PRAGMA application_id). */
export const applicationId = 0x43575345

/** The newest schema that this code knows (PRAGMA user_version). */
export const schemaVersion = 3

/** The files in the data directory. */
export const filesIn = (directory: string) => ({
  database: join(directory, "sessions.db"),
  lock: join(directory, "sessions.lock")
})

/** What marks the database of sessions' events, and what brings it up to date. */
export const format: Format = { filesIn, applicationId, schemaVersion, load: () => import("./Schema.ts") }

/** Opens the database for writing. What cannot be opened durably is not opened. */
export const openForWriting = (file: string): Database.Database => {
  const db = new Database(file, { fileMustExist: true, timeout: 250 })
  try {
    if (db.pragma("application_id", { simple: true }) !== applicationId) throw new Error(`${file} is not ours`)
    if (db.pragma("user_version", { simple: true }) !== schemaVersion) throw new Error(`${file} has another schema`)
    if (db.pragma("journal_mode = WAL", { simple: true }) !== "wal") throw new Error(`${file} cannot be in WAL mode`)
    db.pragma("synchronous = FULL")
    db.pragma("wal_autocheckpoint = 4000")
    db.pragma(`journal_size_limit = ${64 * 1024 * 1024}`)
    db.pragma("mmap_size = 0")
    db.prepare("SELECT count(*) FROM sqlite_schema").get()
    // Where SQLite finds no word on it, a write-ahead log that is opened again goes down to NORMAL at its first read.
    if (db.pragma("synchronous", { simple: true }) !== 2) throw new Error(`${file} cannot be opened durably`)
    return db
  } catch (error) {
    db.close()
    throw error
  }
}
