/** The target of a new backup: a file or a directory with a temporary name until it is complete and flushed. */
import { existsSync, lstatSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from "node:fs"
import { basename, dirname, join, resolve } from "node:path"
import { Effect, type Scope } from "effect"
import { randomHex } from "../../base/RandomHex.ts"
import { claimName, flushDirectory } from "../FileSystem.ts"
import { idOf, recordOf } from "../Sqlite/Database/Files.ts"
import { isReserved } from "../Sqlite/Database/Opening/Restored.ts"
import { applicationIdOf } from "../Sqlite/Database/Opening.ts"
import { attempt, type BackupFailed, histories, manifestName, refuse, store } from "./Manifest.ts"
import { requireClosed } from "./StoreFile.ts"

export interface Target {
  /** The temporary path. The directory exists, the file does not. */
  readonly draft: string
  /** Gives the backup its name, once it is flushed. A path with this name is never incomplete. */
  readonly place: Effect.Effect<void, BackupFailed>
}

/** The path of a backup, and whether it may be replaced. */
export interface Options {
  readonly path: string
  readonly kind: "file" | "directory"
  readonly force: boolean
  /** The data directory that is backed up, if it is on this machine. */
  readonly source?: string
}

const ofBackup: ReadonlyArray<string> = [manifestName, store.file, histories.file]

const anotherName = "Give it another name."

/** Whether a path is in a data directory, which has a lock, or next to the target of a link from one. */
const isOfService = (path: string, source: string | undefined): boolean => {
  const directory = dirname(path)
  const isNamed = /^(?:kv|sessions)\.(?:db|lock|epoch|backup-)/.test(basename(path))
  if (isNamed && source !== undefined && idOf(directory) === idOf(source)) return true
  if (isNamed && [store, histories].some(({ name }) => existsSync(join(directory, `${name}.lock`)))) return true
  return existsSync(recordOf(path))
}

const isReplaceable = (path: string, kind: Options["kind"]): boolean => {
  const stat = lstatSync(path)
  if (kind === "file") {
    return stat.isFile() && (stat.size === 0 || applicationIdOf(path) === store.format.applicationId)
  }
  if (!stat.isDirectory()) return false
  const names = readdirSync(path)
  return names.includes(manifestName) && names.every(name => ofBackup.includes(name))
}

const isEmptyDirectory = (path: string): boolean => lstatSync(path).isDirectory() && readdirSync(path).length === 0

const look = ({ force, kind, path, source }: Options): Effect.Effect<void, BackupFailed> =>
  Effect.flatten(
    attempt(`${path} cannot be used`, () => {
      if (isOfService(path, source)) {
        return refuse(`${path} has the name of a file of a data directory`, anotherName)
      }
      if (lstatSync(path, { throwIfNoEntry: false }) === undefined) {
        return existsSync(dirname(path)) ? Effect.void : refuse(`There is no directory for ${path}`)
      }
      if (kind === "directory" && isEmptyDirectory(path)) return Effect.void
      if (!isReplaceable(path, kind)) return refuse(`${path} already exists, and is not a backup of this kind`)
      if (!force) return refuse(`${path} already exists`, "--force replaces it.")
      if (kind === "directory") return Effect.void
      if (source !== undefined && idOf(path) === idOf(join(source, store.file))) {
        return refuse(`${path} is the store that is backed up`)
      }
      return requireClosed(path, anotherName)
    })
  )

/** Replaces a directory. If that fails halfway, the old one is put back. */
const replaceDirectory = (draft: string, path: string): void => {
  const old = `${draft}${oldEnd}`
  renameSync(path, old)
  try {
    renameSync(draft, path)
  } catch (error) {
    // Another backup to the same path may have done so.
    if (existsSync(old) && !existsSync(path)) renameSync(old, path)
    throw error
  }
  flushDirectory(dirname(path))
  rmSync(old, { recursive: true, force: true })
}

const oldEnd = ".old"

/** Earlier backups whose replacement at a path was not finished, the newest first. */
export const earlierOf = (path: string): ReadonlyArray<string> => {
  const [directory, prefix] = [dirname(resolve(path)), `${basename(resolve(path))}.`]
  if (!existsSync(directory)) return []
  return readdirSync(directory)
    .filter(name => name.startsWith(prefix) && /^[0-9a-f]{16}\.part\.old$/.test(name.slice(prefix.length)))
    .map(name => join(directory, name))
    .sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)
}

/** Finishes the replacement of a backup by a killed process: the earlier one gets its name back, or is removed. */
const recover = (path: string): void => {
  for (const earlier of earlierOf(path)) {
    if (lstatSync(path, { throwIfNoEntry: false }) === undefined) {
      if (isReplaceable(earlier, "directory")) renameSync(earlier, path)
    } else if (isReplaceable(path, "directory") && readdirSync(earlier).every(name => ofBackup.includes(name))) {
      // It may be incomplete, if its removal was not finished.
      rmSync(earlier, { recursive: true, force: true })
    }
  }
}

/** Creates a target. A target that was not renamed is removed with the scope. */
export const open = (given: Options): Effect.Effect<Target, BackupFailed, Scope.Scope> =>
  Effect.gen(function* () {
    // Without a trailing slash: the draft is a sibling.
    const options = { ...given, path: resolve(given.path) }
    const { force, kind, path } = options
    if (isReserved(path)) return yield* refuse(`${path} has a name that is reserved for restores`, anotherName)
    if (kind === "directory") yield* attempt(`${path} cannot be used`, () => recover(path))
    yield* look(options)
    const draft = `${path}.${yield* randomHex(2)}.part`
    yield* Effect.acquireRelease(
      attempt(`${path} cannot be written`, () => kind === "directory" && mkdirSync(draft, { mode: 0o700 })),
      () =>
        Effect.sync(() => {
          for (const end of ["", "-journal", "-wal", "-shm"]) rmSync(`${draft}${end}`, { recursive: true, force: true })
        })
    )
    return {
      draft,
      place: Effect.zipRight(
        look(options),
        attempt(`${path} cannot be written`, () => {
          if (kind === "file") {
            if (force) renameSync(draft, path)
            else claimName(draft, path)
          } else {
            flushDirectory(draft)
            if (existsSync(path) && !isEmptyDirectory(path)) replaceDirectory(draft, path)
            else renameSync(draft, path)
          }
          flushDirectory(dirname(path))
        })
      )
    }
  })
