/** The file of an export. It gets its name once it is complete and on disk. */
import { lstatSync, realpathSync, renameSync, rmSync } from "node:fs"
import { dirname } from "node:path"
import { Effect, type Scope } from "effect"
import { randomHex } from "../../RandomHex.ts"
import { claimName, flushDirectory, hasCode } from "../../Storage/FileSystem.ts"
import { type CommandFailed, wrong } from "../CommandFailed.ts"
import * as PrivateFile from "../Store/PrivateFile.ts"

/** An export to a file. */
export interface ExportFile {
  /** Appends lines. */
  readonly append: (text: string) => Effect.Effect<void, CommandFailed>
  /** Flushes the file to disk and gives it its name. */
  readonly complete: Effect.Effect<void, CommandFailed>
}

const find = (path: string) => lstatSync(path, { throwIfNoEntry: false })

/** The file to which a path leads through symbolic links; the path itself if it does not exist. */
const target = (path: string): string => {
  if (find(path) === undefined) return path
  const real = realpathSync(path)
  if (!lstatSync(real).isFile()) throw new Error("it is not a file")
  return real
}

/** Gives the complete file its name. */
const publish = (draft: string, final: string, mayReplace: boolean): void => {
  if (mayReplace) renameSync(draft, final)
  else claimName(draft, final)
  try {
    flushDirectory(dirname(final))
  } catch (error) {
    // Some file systems do not synchronize directories.
    if (!hasCode(error, "EINVAL", "ENOTSUP", "EPERM")) throw error
  }
}

/**
 * Starts an export to a file, under a temporary name next to it. When the scope closes, an incomplete file is removed.
 * Fails if the file exists and may not be replaced.
 */
export const open = (path: string, mayReplace: boolean): Effect.Effect<ExportFile, CommandFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const alreadyExists = wrong(`${path} exists already`, "--force replaces it.")
    const failure = (error: unknown): CommandFailed =>
      !mayReplace && hasCode(error, "EEXIST") ? alreadyExists : PrivateFile.unwritable(path)(error)
    const attempt = <A>(work: () => A) => Effect.try({ try: work, catch: failure })
    const final = yield* attempt(() => (mayReplace ? target(path) : path))
    if (!mayReplace && (yield* attempt(() => find(path) !== undefined))) return yield* alreadyExists
    const draft = `${final}.${yield* randomHex(2)}.part`
    yield* Effect.acquireRelease(
      attempt(() => PrivateFile.create(draft)),
      () => Effect.ignore(Effect.try(() => rmSync(draft, { force: true })))
    )
    const file = yield* PrivateFile.open(draft, failure)
    return {
      append: file.write,
      complete: Effect.zipRight(
        file.sync,
        attempt(() => publish(draft, final, mayReplace))
      )
    }
  })
