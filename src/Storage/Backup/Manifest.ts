/**
 * The content of a backup, as the file `backup.json` lists it, and the failure of a backup or a restore. A restore uses
 * the list to check that the databases are complete and match.
 */
import { Effect, type Option, Schema } from "effect"
import { messageOf } from "../../base/ErrorMessage.ts"
import type { Format } from "../Sqlite/Database/Connection.ts"
import { format as kv } from "../Sqlite/Kv/Schema.ts"
import { format as sessions } from "../Sqlite/SessionEvents/Tables.ts"

export const manifestName = "backup.json"

/** A database that can be part of a backup. */
export interface Part {
  readonly name: "kv" | "sessions"
  /** Its file name, in a backup and in a data directory. */
  readonly file: string
  readonly format: Format
  readonly count: string
}

export const store: Part = { name: "kv", file: "kv.db", format: kv, count: "SELECT count(*) FROM entries" }

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

export const print = (manifest: Manifest): string => `${JSON.stringify(manifest, null, 2)}\n`

/** Parses a manifest. Returns `None` for texts that this version does not know. */
export const parse: (text: string) => Option.Option<Manifest> = Schema.decodeUnknownOption(Schema.parseJson(Manifest))

export class BackupFailed extends Schema.TaggedError<BackupFailed>()("BackupFailed", {
  /** The problem: a sentence without its full stop. */
  message: Schema.String,
  /** What the user can do about it. */
  hint: Schema.optionalWith(Schema.String, { exact: true }),
  /** The restore has taken place nevertheless, and is not finished. */
  isRestored: Schema.optionalWith(Schema.Boolean, { exact: true })
}) {}

/** Fails with `BackupFailed`. `message` is a sentence without its full stop; `hint` says what the user can do. */
export const refuse = (message: string, hint?: string): Effect.Effect<never, BackupFailed> =>
  Effect.fail(new BackupFailed({ message, ...(hint !== undefined && { hint }) }))

/** Runs a file operation, which may throw the system's error. */
export const attempt = <A>(problem: string, body: () => A): Effect.Effect<A, BackupFailed> =>
  Effect.try({
    try: body,
    catch: error => new BackupFailed({ message: `${problem}: ${messageOf(error)}` })
  })

/** The progress of a backup or a restore, in bytes. A verification reports none. */
export interface Progress {
  readonly phase: "copy" | "verify"
  readonly done: number
  readonly total: number
}

export type Report = (progress: Progress) => void
