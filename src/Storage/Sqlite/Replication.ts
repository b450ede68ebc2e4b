/**
 * Whether the databases are replicated, according to the metadata files of a replicator. Only file names are checked. A
 * supervisor must check whether the replicator runs.
 */
import { join } from "node:path"
import * as FileSystem from "@effect/platform/FileSystem"
import { Array as Arr, Config, Duration, Effect, Option } from "effect"
import * as Setting from "../../base/Setting.ts"
import type { Dependency } from "../../Operations/Health/Api.ts"
import { dataDirectory } from "../StoreUrl.ts"

export interface Settings {
  readonly directory: string
}

/** The check as configuration variables; `None` if it is disabled. */
export const config: Config.Config<Option.Option<Settings>> = Config.all({
  enabled: Setting.boolean("REPLICATION_ENABLED", {
    description: "Whether /health reports if the databases in DATA_DIR are replicated",
    default: false
  }),
  directory: dataDirectory
}).pipe(Config.map(({ enabled, directory }) => (enabled ? Option.some({ directory }) : Option.none())))

const name = "replication"

const ok: Dependency = { name, status: "ok" }

const degraded = (error: string): Dependency => ({ name, status: "degraded", error })

/** Directories of metadata: `generations` or `generation` up to Litestream 0.3, `ltx` since 0.5. */
const marks = ["generations", "generation", "ltx"] as const

const isHidden = (file: string): boolean => file.startsWith(".")

const isDatabase = (file: string): boolean => !isHidden(file) && /\.(?:db|sqlite|sqlite3)$/.test(file)

const isMark = (file: string): boolean => marks.some(mark => file === `.${mark}`)

const timeout = Duration.seconds(2)

/**
 * Checks once. The status is `ok` without databases, and with metadata of a replicator in a hidden directory. Databases
 * without metadata, and an unreadable directory, are `degraded`. It is never `unhealthy`.
 */
export const check = ({ directory }: Settings): Effect.Effect<Dependency, never, FileSystem.FileSystem> =>
  Effect.gen(function* () {
    const files = yield* FileSystem.FileSystem
    const names = yield* Effect.catchIf(
      files.readDirectory(directory),
      error => error._tag === "SystemError" && error.reason === "NotFound",
      () => Effect.succeed<Array<string>>([])
    )
    if (!names.some(isDatabase)) return ok
    const hidden = names.filter(isHidden)
    const candidates = [
      ...hidden.filter(isMark).map(mark => join(directory, mark)),
      ...Arr.cartesianWith(hidden, marks, (parent, mark) => join(directory, parent, mark))
    ]
    const isDirectory = (path: string) =>
      Effect.match(files.stat(path), { onFailure: () => false, onSuccess: ({ type }) => type === "Directory" })
    const found = yield* Effect.findFirst(candidates, isDirectory)
    return Option.isSome(found) ? ok : degraded("The data directory has databases and no replication metadata")
  }).pipe(
    Effect.catchAll(error =>
      Effect.succeed(
        degraded(`The data directory cannot be read (${error._tag === "SystemError" ? error.reason : error._tag})`)
      )
    ),
    Effect.timeoutTo({
      duration: timeout,
      onSuccess: found => found,
      onTimeout: () => degraded(`The data directory does not answer within ${Duration.format(timeout)}`)
    })
  )
