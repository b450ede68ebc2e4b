/**
 * `causeway backup` copies a data directory, or the store of a service; `causeway restore` restores a backup into a data
 * directory that no service uses.
 */
import { Config, Effect, identity, Option, Queue, Stream } from "effect"
import { MiB } from "../../base/Bytes.ts"
import type { RestoredStore } from "../../Storage/Backup/Restore.ts"
import type { Made, Progress, Report } from "../../Storage/Backup.ts"
import * as StoreUrl from "../../Storage/StoreUrl.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import { flag, numberOption, text } from "../CommandOptions.ts"
import * as Connection from "../Connection.ts"
import { Args, Command } from "../Library.ts"
import { answer, list, Output } from "../Terminal/Output.ts"
import { formOf, reporter } from "../Terminal/Progress.ts"

/** The option `--data-dir`. */
const dataDirectory = text("data-dir", "The data directory; default that of STORE_URL and DATA_DIR", "directory")

/** The given directory, or that of the environment. Fails if the store of the environment is in PostgreSQL. */
export const directoryOf = (given: Option.Option<string>): Effect.Effect<string, CommandFailed> =>
  Option.match(given, {
    onSome: directory => (directory === "" ? wrong("--data-dir is empty") : Effect.succeed(directory)),
    onNone: () =>
      Effect.mapError(StoreUrl.config, error => wrong(String(error))).pipe(
        Effect.flatMap(({ directory, postgres }) =>
          Option.isNone(postgres)
            ? Effect.succeed(directory)
            : failed(
                "The store of STORE_URL is in PostgreSQL.",
                "pg_basebackup and pg_dump back it up, see docs/operate/postgresql.md; causeway migrate-store copies it into SQLite. --data-dir names a directory."
              )
        )
      )
  })

/** Runs work and shows its progress. Without a terminal only programs get it. */
const showing = <A, E>(json: boolean, work: (report: Report) => Effect.Effect<A, E>): Effect.Effect<A, E, Output> => {
  const form = formOf(json)
  if (form === "lines") return work(() => {})
  return Effect.scoped(
    Effect.gen(function* () {
      const show = yield* reporter<Progress>(form, "bytes", identity)
      // For a slow terminal only the newest progress matters.
      const reports = yield* Queue.sliding<Progress>(4)
      yield* Effect.forkScoped(Stream.runForEach(Stream.fromQueue(reports), show))
      return yield* work(progress => void reports.unsafeOffer(progress))
    })
  )
}

/** A backup of a data directory, or of the service at an address. */
interface Sourced extends Made {
  readonly source: string
}

const backupText = ({ backup, bytes, entries, epoch, lastSeq, sessions, source }: Sourced): string =>
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
    const made = yield* showing(json, report =>
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
    const made = yield* showing(json, report => download(connection, { ...options, report }))
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
export const backup = Command.make(
  "backup",
  {
    target: Args.text({ name: "target" }).pipe(
      Args.withDescription("The new directory; a file if only the store is copied")
    ),
    dataDir: dataDirectory,
    storeOnly: flag("store-only", "Only the store, as one file; always so with --url or --profile"),
    force: flag("force", "Replace an earlier backup"),
    walLimit: numberOption("wal-limit", "MiB", "Fail if the write-ahead log grows by more during the copy", 1024),
    ...Connection.options,
    url: text("url", "Copy the store of the service at this address; CAUSEWAY_URL does not select it", "address"),
    profile: text(
      "profile",
      "Copy the store of the service of this profile; CAUSEWAY_PROFILE does not select it",
      "name"
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
        : Effect.flatMap(directoryOf(dataDir), directory =>
            Effect.zipRight(
              Option.isNone(dataDir) ? noteVariables(directory) : Effect.void,
              ofDirectory(directory, { target, storeOnly, force, walLimit }, json)
            )
          )
      yield* answer(json, { type: "done", ...made }, () => backupText(made))
    })
).pipe(Command.withDescription("Copy the store and the histories of sessions while the service runs"))

const restoredText = (restored: RestoredStore): string => {
  const { aside, backup, directory, entries, epoch, epochBefore, lastSeq, sessions } = restored
  return list([
    ["restored", `${backup} into ${directory}, verified`],
    ["entries", entries.toLocaleString("en")],
    ["last change", String(lastSeq)],
    ["epoch", `${epochBefore === "" ? "none" : epochBefore} → ${epoch}: readers of the change log list again`],
    ["sessions", sessions === null ? "none: the backup contains only the store" : sessions.toLocaleString("en")],
    ...(aside === null ? [] : [["old files", aside] as const])
  ])
}

/** `causeway restore <backup>`. */
export const restore = Command.make(
  "restore",
  {
    backup: Args.text({ name: "backup" }).pipe(Args.withDescription("A backup that causeway backup has made")),
    dataDir: dataDirectory,
    force: flag("force", "Move an existing store into a directory next to it"),
    json: Connection.options.json
  },
  ({ backup, dataDir, force, json }) =>
    Effect.gen(function* () {
      const directory = yield* directoryOf(dataDir)
      // It needs the native module of SQLite.
      const Restore = yield* Effect.promise(() => import("../../Storage/Backup/Restore.ts"))
      const restored = yield* showing(json, report =>
        Effect.mapError(
          Restore.restore({ backup, directory, force, report }),
          ({ hint, isRestored = false, message }) =>
            failed(
              `${isRestored ? "The restore has taken place, and is not finished" : "Nothing was restored"}. ${message}`,
              hint
            )
        )
      )
      yield* answer(json, { type: "done", ...restored }, () => restoredText(restored))
    })
).pipe(Command.withDescription("Restore a backup into the data directory of a stopped service"))
