import { trim } from "../Kv/log.sql.ts"
import { trimSessions } from "../SessionEvents/trim_sessions.sql.ts"
import { writeSessions } from "../SessionEvents/write_sessions.sql.ts"

/**
 * Removals of tombstones, events and receipts start where earlier ones ended. They visited all rows that were removed
 * while a snapshot is held. Replacing the functions locks no table: calls that run continue with the former texts.
 */
export const statements: ReadonlyArray<string> = [
  "INSERT INTO causeway.positions (name, id, up_to) VALUES ('events', 1, 0)",
  trim,
  trimSessions,
  writeSessions
]
