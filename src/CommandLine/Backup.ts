/** `causeway backup`: a copy of the store, and of the histories of sessions, of a data directory or of a service. */
import { Effect, Option } from "effect"
import type { Made } from "../Storage/Backup.ts"
import * as BackupProgress from "./BackupProgress.ts"
import { type CommandFailed, failed, wrong } from "./CommandFailed.ts"
import * as Connection from "./Connection.ts"
import * as DataDirectory from "./DataDirectory.ts"
import { Args, Command, Options } from "./Library.ts"
import { isJson, record, write } from "./Output.ts"
import { list } from "./Table.ts"

const MiB = 1024 * 1024

const summary = ({ backup, bytes, entries, epoch, lastSeq, sessions }: Made): string =>
  list([
    ["backup", backup],
    ["size", `${(bytes / MiB).toFixed(1)} MiB, verified`],
    ["entries", entries.toLocaleString("en")],
    ["last change", String(lastSeq)],
    ["epoch", epoch],
    ["sessions", sessions === null ? "none: it is of the store alone" : sessions.toLocaleString("en")]
  ])

const failure = ({ hint, message }: { readonly message: string; readonly hint?: string }): CommandFailed =>
  failed(`There is no backup. ${message}`, hint)

const ofDirectory = (
  directory: string,
  options: { readonly target: string; readonly storeOnly: boolean; readonly force: boolean; readonly walLimit: number },
  json: boolean
) =>
  Effect.gen(function* () {
    // It needs the native module of SQLite.
    const Backup = yield* Effect.promise(() => import("../Storage/Backup.ts"))
    const { walLimit, ...rest } = options
    return yield* BackupProgress.showing(json, report =>
      Backup.make({ ...rest, directory, mostLogBytes: walLimit * MiB, report }).pipe(Effect.mapError(failure))
    )
  })

const ofService = (
  given: Connection.Given,
  options: { readonly target: string; readonly force: boolean },
  json: boolean
) =>
  Effect.gen(function* () {
    const connection = yield* Connection.resolve(given)
    const { download } = yield* Effect.promise(() => import("./BackupDownload.ts"))
    return yield* BackupProgress.showing(json, report => download(connection, { ...options, report }))
  })

export const command = Command.make(
  "backup",
  {
    target: Args.text({ name: "target" }).pipe(
      Args.withDescription("A directory that is made; a file for the store alone")
    ),
    dataDir: DataDirectory.option,
    storeOnly: Options.boolean("store-only").pipe(
      Options.withDescription("The store alone, as one file; always so with --url or --profile")
    ),
    force: Options.boolean("force").pipe(Options.withDescription("Replace an earlier backup")),
    walLimit: Options.integer("wal-limit").pipe(
      Options.withPseudoName("MiB"),
      Options.withDescription("Give up when the write-ahead log has grown by more meanwhile"),
      Options.withDefault(1024)
    ),
    ...Connection.options,
    timeout: Options.integer("timeout").pipe(
      Options.withPseudoName("seconds"),
      Options.withDescription("How long a service may take for the copy"),
      Options.withDefault(600)
    )
  },
  ({ dataDir, force, json, storeOnly, target, walLimit, ...given }) =>
    Effect.gen(function* () {
      if (walLimit <= 0) return yield* wrong("--wal-limit must be a positive number of MiB")
      const isRemote = Option.isSome(given.url) || Option.isSome(given.profile)
      if (isRemote && Option.isSome(dataDir))
        return yield* wrong("--data-dir and --url or --profile exclude each other")
      const made = yield* isRemote
        ? ofService(given, { target, force }, json)
        : Effect.flatMap(DataDirectory.resolve(dataDir), directory =>
            ofDirectory(directory, { target, storeOnly, force, walLimit }, json)
          )
      yield* (yield* isJson(json)) ? record({ type: "done", ...made }) : write(summary(made))
    })
).pipe(Command.withDescription("Copy the store, and histories of sessions, while the service runs"))
