/**
 * Which store the service keeps its entries in.
 */
import { basename, dirname } from "node:path"
import { Config, Option } from "effect"
import * as Setting from "../Setting.ts"

/** A store of SQLite files in a directory. */
export interface StoreLocation {
  /** Relative to the working directory, or absolute. */
  readonly directory: string
}

/** The database file within the directory; its path stands for the directory's. */
const file = "kv.db"

/**
 * The path behind `sqlite:` (also `sqlite://`), `""` where it is left to `DATA_DIR`, nothing where the text is no
 * such address.
 */
export const parse = (text: string): Option.Option<string> => {
  const match = /^sqlite:(?:\/\/)?(.*)$/i.exec(text)
  if (match === null) return Option.none()
  const path = match[1]!
  // SQLite would take these for something else than a path.
  if (path.startsWith(":") || path.includes("?") || path.includes("\0")) return Option.none()
  return Option.some(basename(path) === file ? dirname(path) : path)
}

/** The directory where `STORE_URL` names none. */
export const dataDirectory = Setting.string("DATA_DIR", {
  description: "Directory of the database, made when it is missing",
  default: "./data"
})

/** The store that the environment names. */
export const config: Config.Config<StoreLocation> = Config.all({
  dataDirectory,
  path: Setting.declare(
    "STORE_URL",
    {
      description: "Where entries are kept; sqlite: means DATA_DIR",
      allowed: "sqlite: or sqlite:<path of a directory> (PostgreSQL is not in this build)",
      default: "",
      shown: "sqlite:"
    },
    parse,
    // Addresses of other stores hold passwords.
    true
  )
}).pipe(Config.map(({ dataDirectory, path }) => ({ directory: path === "" ? dataDirectory : path })))
