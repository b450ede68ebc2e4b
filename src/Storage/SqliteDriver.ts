/** The driver of SQLite. Its native module is loaded with the first connection. */
import Database from "better-sqlite3"
import * as NodeVersion from "../base/Process/NodeVersion.ts"

/** Opens a connection. Throws on a Node that the native module would crash. */
export const connect = (file: string, options: Database.Options): Database.Database => {
  const problem = NodeVersion.problem()
  if (problem !== undefined) throw new Error(problem)
  return new Database(file, options)
}
