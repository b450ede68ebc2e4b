/** `causeway backup`: copies a data directory, or the store of a service. */
import { Config, Effect, Option } from "effect"
import { MiB } from "../../Bytes.ts"
import type { Made } from "../../Storage/Backup.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import * as Connection from "../Connection.ts"
import { Args, Command, Options } from "../Library.ts"
import { numberOption } from "../NumberOption.ts"
import { isJson, Output, record, write } from "../Terminal/Output.ts"
import { list } from "../Terminal/Table.ts"
import * as BackupProgress from "./BackupProgress.ts"
import * as DataDirectory from "./DataDirectory.ts"

/** A backup of a data directory, or of the service at an address. */
interface Sourced extends Made {
  readonly source: string
}

const summary = ({ backup, bytes, entries, epoch, lastSeq, sessions, source }: Sourced): string =>
  list([
    ["backup", backup],
    ["source", source],
    ["size", `${(bytes / MiB).toFixed(1)} MiB, verified`],
    ["entries", entries.toLocaleString("en")],
    ["last change", String(lastSeq)],
    ["epoch", epoch],
    ["sessions", sessions === null ? "none: it contains only the store" : sessions.toLocaleString("en")]
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
    const Backup = yield* Effect.promise(() => import("../../Storage/Backup.ts"))
    const { walLimit, ...rest } = options
    const made = yield* BackupProgress.showing(json, report =>
      Backup.make({ ...rest, directory, maxLogBytes: walLimit * MiB, report }).pipe(Effect.mapError(failure))
    )
    return { ...made, source: directory }
  })

const ofService = (
  given: Connection.Given,
  options: { readonly target: string; readonly force: boolean },
  json: boolean
) =>
  Effect.gen(function* () {
    const connection = yield* Connection.resolve(given)
    const { download } = yield* Effect.promise(() => import("./BackupDownload.ts"))
    const made = yield* BackupProgress.showing(json, report => download(connection, { ...options, report }))
    return { ...made, source: connection.url }
  })

/** Notes that the variables that select a service for other commands do not select it for a backup. */
const noteVariables = (directory: string) =>
  Effect.gen(function* () {
    const { note } = yield* Output
    for (const [variable, option] of [
      ["CAUSEWAY_URL", "--url"],
      ["CAUSEWAY_PROFILE", "--profile"]
    ] as const) {
      const value = yield* Effect.orDie(Config.option(Config.nonEmptyString(variable)))
      if (Option.isNone(value)) continue
      return yield* note(
        `This backs up the data directory ${directory}. ${variable} does not select a service; ${option} does.`
      )
    }
  })

/** `causeway backup <target>`. */
export const command = Command.make(
  "backup",
  {
    target: Args.text({ name: "target" }).pipe(
      Args.withDescription("The new directory; a file if only the store is copied")
    ),
    dataDir: DataDirectory.option,
    storeOnly: Options.boolean("store-only").pipe(
      Options.withDescription("Only the store, as one file; always so with --url or --profile")
    ),
    force: Options.boolean("force").pipe(Options.withDescription("Replace an earlier backup")),
    walLimit: numberOption("wal-limit", "MiB", "Fail if the write-ahead log grows by more during the copy", 1024),
    ...Connection.options,
    url: Options.text("url").pipe(
      Options.withPseudoName("address"),
      Options.withDescription("Copy the store of the service at this address; CAUSEWAY_URL does not select it"),
      Options.optional
    ),
    profile: Options.text("profile").pipe(
      Options.withPseudoName("name"),
      Options.withDescription("Copy the store of the service of this profile; CAUSEWAY_PROFILE does not select it"),
      Options.optional
    ),
    timeout: numberOption("timeout", "seconds", "How long a service may take for the copy", 600)
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
            Effect.zipRight(
              Option.isNone(dataDir) ? noteVariables(directory) : Effect.void,
              ofDirectory(directory, { target, storeOnly, force, walLimit }, json)
            )
          )
      yield* (yield* isJson(json)) ? record({ type: "done", ...made }) : write(summary(made))
    })
).pipe(Command.withDescription("Copy the store and the histories of sessions while the service runs"))
