/**
 * The content of a backup, as the file `backup.json` lists it. A restore uses it to check that the databases are
 * complete and match.
 */
import { type Option, Schema } from "effect"
import type { Format } from "../Sqlite/Database/Connection.ts"
import { format as kv } from "../Sqlite/Kv/Schema.ts"
import { format as sessions } from "../Sqlite/SessionEvents/Schema.ts"

/** The name of a manifest in the directory of a backup. */
export const manifestName = "backup.json"

/** A database that can be part of a backup. */
export interface Part {
  readonly name: "kv" | "sessions"
  /** Its file name, in a backup and in a data directory. */
  readonly file: string
  readonly format: Format
  /** The query for the number of its records. */
  readonly count: string
}

/** The key-value store. */
export const store: Part = { name: "kv", file: "kv.db", format: kv, count: "SELECT count(*) FROM entries" }

/** The histories of sessions. */
export const histories: Part = {
  name: "sessions",
  file: "sessions.db",
  format: sessions,
  count: "SELECT count(*) FROM histories"
}

const File = Schema.Struct({
  bytes: Schema.NonNegativeInt,
  /** Of the whole file, in hexadecimal digits. */
  sha256: Schema.String,
  schemaVersion: Schema.NonNegativeInt
})

/** A backup of both databases at one moment. */
export const Manifest = Schema.Struct({
  /** The version of the format of this file. */
  backup: Schema.Literal(1),
  /** When the backup was started, in ISO 8601. */
  createdAt: Schema.String,
  /** The version of Causeway that made the backup. */
  version: Schema.String,
  store: Schema.Struct({
    ...File.fields,
    entries: Schema.NonNegativeInt,
    lastSeq: Schema.NonNegativeInt,
    epoch: Schema.String
  }),
  /** Null if the store had no histories of sessions. */
  sessions: Schema.NullOr(Schema.Struct({ ...File.fields, histories: Schema.NonNegativeInt }))
})

export type Manifest = typeof Manifest.Type

/** The text of a manifest. */
export const print = (manifest: Manifest): string => `${JSON.stringify(manifest, null, 2)}\n`

/** Parses a manifest. Returns `None` for texts that this version does not know. */
export const parse: (text: string) => Option.Option<Manifest> = Schema.decodeUnknownOption(Schema.parseJson(Manifest))
