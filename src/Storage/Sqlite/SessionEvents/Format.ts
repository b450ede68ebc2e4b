/**
 * The database of the events of sessions.
 *
 * It is a file of its own beside the key-value store's. Events are many and short-lived: in the store's file they would
 * enlarge its log and its backups and share its flushes, and a store elsewhere, such as in PostgreSQL, has no such file.
 * No transaction needs both. The record of a session tells what it is, its history what happened; a session whose
 * history is lost begins a new one under another epoch.
 */
import type { Format } from "../Database/Format.ts"

/** Its application id is `CWSE`. */
export const format: Format = {
  name: "sessions",
  applicationId: 0x43575345,
  schemaVersion: 3,
  load: () => import("./Schema.ts")
}
