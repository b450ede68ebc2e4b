/** The location of the store of the service. */
import { basename, dirname } from "node:path"
import { Config, Duration, Option, Redacted } from "effect"
import * as Setting from "../base/Setting.ts"

/** A database that nodes share. Addresses contain passwords. */
export interface PostgresLocation {
  /** The address of the database, or of a pooler. */
  readonly url: Redacted.Redacted
  /** The address of the database itself, if `url` is that of a pooler. */
  readonly directUrl: Option.Option<Redacted.Redacted>
  /** The maximum number of connections for reads. */
  readonly connections: number
}

export interface StoreLocation {
  /** Of SQLite files, relative to the working directory or absolute. With PostgreSQL it has the id of the node. */
  readonly directory: string
  readonly postgres: Option.Option<PostgresLocation>
  /** How long a node keeps its sessions in a shared database without renewing its lease. */
  readonly lease: Duration.Duration
}

/** The database file within the directory. A path of this file means its directory. */
const file = "kv.db"

/** The path after `sqlite:` (also `sqlite://`); `""` if `DATA_DIR` has it; `None` if the text is no such address. */
export const parse = (text: string): Option.Option<string> => {
  const match = /^sqlite:(?:\/\/)?(.*)$/i.exec(text)
  if (match === null) return Option.none()
  const path = match[1]!
  // SQLite would not interpret these as paths.
  if (path.startsWith(":") || path.includes("?") || path.includes("\0")) return Option.none()
  return Option.some(basename(path) === file ? dirname(path) : path)
}

/** The address of a PostgreSQL database. The host may be missing if the query names a socket's directory. */
const postgresUrl = (text: string): Option.Option<Redacted.Redacted> =>
  /^postgres(?:ql)?:\/\//i.test(text) && URL.canParse(text) && new URL(text).pathname.length > 1
    ? Option.some(Redacted.make(text))
    : Option.none()

/** The location of an address; `None` if the text is none. `sqlite:` alone names no directory. */
export const locate = (text: string): Option.Option<Pick<StoreLocation, "directory" | "postgres">> =>
  Option.orElse(
    parse(text).pipe(
      Option.filter(directory => directory !== ""),
      Option.map(directory => ({ directory, postgres: Option.none() }))
    ),
    () =>
      Option.map(postgresUrl(text), url => ({
        directory: "",
        postgres: Option.some({ url, directUrl: Option.none(), connections: 1 })
      }))
  )

/** The directory if `STORE_URL` names none. */
export const dataDirectory = Setting.string("DATA_DIR", {
  description: "Directory of the database, created when it is missing",
  default: "./data"
})

type Address = { readonly path: string } | { readonly url: Redacted.Redacted }

const address: Config.Config<Address> = Setting.declare<Address>(
  "STORE_URL",
  {
    description: "Where entries are kept; sqlite: means DATA_DIR",
    allowed: "sqlite:, sqlite:<path of a directory> or postgres://<user>:<password>@<host>:<port>/<database>",
    default: { path: "" },
    shown: "sqlite:"
  },
  text =>
    Option.orElse(
      Option.map(parse(text), path => ({ path })),
      () => Option.map(postgresUrl(text), url => ({ url }))
    ),
  true
)

const directUrl: Config.Config<Option.Option<Redacted.Redacted>> = Setting.declare(
  "STORE_DIRECT_URL",
  {
    description: "The PostgreSQL database itself, if STORE_URL is the address of a pooler",
    allowed: "postgres://<user>:<password>@<host>:<port>/<database>",
    default: Option.none<Redacted.Redacted>(),
    shown: ""
  },
  text => Option.map(postgresUrl(text), Option.some),
  true
)

const connections = Setting.integer("STORE_CONNECTIONS", {
  description:
    "Maximum number of connections of a node to PostgreSQL for reads; it has up to 7 more, and one for each whole list",
  default: 10,
  min: 1,
  max: 1000
})

const shortestLease = Duration.seconds(1)
const longestLease = Duration.minutes(1)

const lease: Config.Config<Duration.Duration> = Setting.declare(
  "SESSION_LEASE",
  {
    description: "With PostgreSQL: how long a node that does not answer keeps its sessions",
    allowed: "a duration from 1 second to 1 minute",
    default: Duration.seconds(10),
    shown: "10 seconds"
  },
  text =>
    Option.filter(Duration.decodeUnknown(text), Duration.between({ minimum: shortestLease, maximum: longestLease }))
)

/** The store that the environment names. */
export const config: Config.Config<StoreLocation> = Config.all({
  dataDirectory,
  address,
  directUrl,
  connections,
  lease
}).pipe(
  Config.map(({ address, connections, dataDirectory, directUrl, lease }) =>
    "url" in address
      ? { directory: dataDirectory, postgres: Option.some({ url: address.url, directUrl, connections }), lease }
      : { directory: address.path === "" ? dataDirectory : address.path, postgres: Option.none(), lease }
  )
)
