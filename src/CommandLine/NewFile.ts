/** A file that has its name only once it is complete and on disk. */
import { type FileHandle, link, lstat, open, realpath, rename, rm } from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import { Effect, type Scope } from "effect"
import { randomHex } from "../RandomHex.ts"
import { type CommandFailed, failed, wrong } from "./CommandFailed.ts"
import { clean } from "./Text.ts"

/** A file that is being written. The end of its scope removes it unless it is complete. */
export interface NewFile {
  readonly write: (data: string | Uint8Array) => Effect.Effect<void, CommandFailed>
  /** Gives the file its name. */
  readonly complete: Effect.Effect<void, CommandFailed>
}

const codeOf = (error: unknown): unknown => (error instanceof Error && "code" in error ? error.code : undefined)

const isThere = (path: string): CommandFailed => wrong(`${clean(path)} is there already`, "--force replaces it.")

/** The name of a file is on disk once its directory is. Some file systems do not synchronize directories. */
const synchronizeDirectory = async (path: string): Promise<void> => {
  const directory = await open(dirname(path))
  try {
    await directory.sync()
  } catch (error) {
    if (!["EINVAL", "ENOTSUP", "EPERM"].includes(String(codeOf(error)))) throw error
  } finally {
    await directory.close()
  }
}

/** How file systems without hard links refuse one. */
const withoutLinks: ReadonlySet<unknown> = new Set(["ENOSYS", "ENOTSUP", "EOPNOTSUPP", "EPERM"])

/** Gives a file a name that no file has. */
const claim = async (part: string, path: string): Promise<void> => {
  try {
    await link(part, path)
  } catch (error) {
    if (!withoutLinks.has(codeOf(error))) throw error
    // An empty file claims the name.
    await (await open(path, "wx", 0o600)).close()
    return rename(part, path)
  }
  await rm(part)
}

/** The file that a path leads to, through symbolic links; the path itself where there is none. */
const target = async (path: string): Promise<string> => {
  const found = await lstat(path).catch(error => {
    if (codeOf(error) === "ENOENT") return undefined
    throw error
  })
  if (found === undefined) return path
  const real = await realpath(path)
  if (!(await lstat(real)).isFile()) throw new Error("it is not a file")
  return real
}

/**
 * Begins a file that only its user can read, under a name of its own beside `path`, so that several commands may write
 * to one path: each completes a whole file. With `mayReplace` the last one stays, otherwise the first.
 */
export const make = (path: string, mayReplace: boolean): Effect.Effect<NewFile, CommandFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const attempt = <A>(work: () => Promise<A>) =>
      Effect.tryPromise({
        try: work,
        catch: error =>
          !mayReplace && codeOf(error) === "EEXIST"
            ? isThere(path)
            : failed(
                `${clean(path)} cannot be written: ${clean(error instanceof Error ? error.message : String(error))}`
              )
      })
    if (!mayReplace) {
      const exists = yield* attempt(() =>
        lstat(path).then(
          () => true,
          error => codeOf(error) !== "ENOENT"
        )
      )
      if (exists) return yield* isThere(path)
    }
    const final = mayReplace ? yield* attempt(() => target(path)) : path
    const part = join(dirname(final), `${basename(final)}.${yield* randomHex(2)}.part`)
    const state = { isComplete: false }
    const handle: FileHandle = yield* Effect.acquireRelease(
      attempt(() => open(part, "wx", 0o600)),
      handle =>
        Effect.ignore(
          Effect.tryPromise(async () => {
            await handle.close()
            if (!state.isComplete) await rm(part, { force: true })
          })
        )
    )
    return {
      write: data => attempt(() => handle.writeFile(data)),
      complete: attempt(async () => {
        await handle.sync()
        await (mayReplace ? rename(part, final) : claim(part, final))
        state.isComplete = true
        await synchronizeDirectory(final)
      })
    }
  })
