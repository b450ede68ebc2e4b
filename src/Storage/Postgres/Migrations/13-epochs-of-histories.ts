import { writeSessions } from "../SessionEvents/write_sessions.sql.ts"

export const statements: ReadonlyArray<string> = [
  // The epoch of the database in which the history was last opened; null if that was before this column existed.
  "ALTER TABLE causeway.histories ADD COLUMN database_epoch text",
  writeSessions
]
