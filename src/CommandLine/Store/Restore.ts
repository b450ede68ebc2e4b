/** `causeway restore`: restores a backup into a data directory that no service uses. */
import { Effect } from "effect"
import type { RestoredStore } from "../../Storage/Backup/Restore.ts"
import { failed } from "../CommandFailed.ts"
import * as Connection from "../Connection.ts"
import { Args, Command, Options } from "../Library.ts"
import { isJson, record, write } from "../Terminal/Output.ts"
import { list } from "../Terminal/Table.ts"
import * as BackupProgress from "./BackupProgress.ts"
import * as DataDirectory from "./DataDirectory.ts"

const summary = (restored: RestoredStore): string => {
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
export const command = Command.make(
  "restore",
  {
    backup: Args.text({ name: "backup" }).pipe(Args.withDescription("A backup that causeway backup has made")),
    dataDir: DataDirectory.option,
    force: Options.boolean("force").pipe(Options.withDescription("Move an existing store into a directory next to it")),
    json: Connection.options.json
  },
  ({ backup, dataDir, force, json }) =>
    Effect.gen(function* () {
      const directory = yield* DataDirectory.resolve(dataDir)
      // It needs the native module of SQLite.
      const { restore } = yield* Effect.promise(() => import("../../Storage/Backup/Restore.ts"))
      const restored = yield* BackupProgress.showing(json, report =>
        Effect.mapError(restore({ backup, directory, force, report }), ({ hint, isRestored = false, message }) =>
          failed(
            `${isRestored ? "The restore has taken place, and is not finished" : "Nothing was restored"}. ${message}`,
            hint
          )
        )
      )
      yield* (yield* isJson(json)) ? record({ type: "done", ...restored }) : write(summary(restored))
    })
).pipe(Command.withDescription("Restore a backup into the data directory of a stopped service"))
