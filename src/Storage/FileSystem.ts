/** What adapters need of the file system. */
import {
  type BigIntStats,
  closeSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  renameSync,
  statSync,
  unlinkSync
} from "node:fs"
import { dirname } from "node:path"

const isDirectory = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false

/**
 * Makes a directory that only its owner can read, and its missing parents. One that exists is not changed. Throws the
 * system's error.
 *
 * Node's own recursion does not end where the system answers ENOENT below an existing directory, as in `/proc`.
 */
export const makeDirectory = (path: string): void => {
  if (isDirectory(path)) return
  const parent = dirname(path)
  if (parent !== path) makeDirectory(parent)
  try {
    mkdirSync(path, { mode: 0o700 })
  } catch (error) {
    // Another process may have made it meanwhile.
    if (!isDirectory(path)) throw error
  }
}

/** Whether an error is one of the system with one of these codes. */
export const hasCode = (error: unknown, ...codes: ReadonlyArray<string>): boolean =>
  error instanceof Error && "code" in error && codes.some(code => code === error.code)

/** Makes an empty file. One that exists is not changed. Throws the system's error. */
export const makeFile = (path: string, mode = 0o600): void => {
  try {
    // An existing file is not opened: to close it would release the locks that this process has on it.
    closeSync(openSync(path, "wx", mode))
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error
  }
}

/** A new name in a directory, or one that is gone, is only safe once the directory has been flushed. */
export const flushDirectory = (directory: string): void => {
  const descriptor = openSync(directory, "r")
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

/** Gives a file a name that no file has. Throws the system's error, EEXIST where somebody else was first. */
export const claimName = (file: string, name: string): void => {
  try {
    linkSync(file, name)
  } catch (error) {
    // Some file systems have no hard links. An empty file claims the name there.
    if (!hasCode(error, "EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS")) throw error
    closeSync(openSync(name, "wx", 0o600))
    return renameSync(file, name)
  }
  unlinkSync(file)
}

/** Identifies the file of a result of `stat`. */
export const idFrom = (stat: BigIntStats | undefined): string | undefined =>
  stat === undefined ? undefined : `${stat.dev}:${stat.ino}`

/** Identifies a file for as long as somebody has it open; `undefined` where there is none. */
export const idOf = (file: string): string | undefined =>
  idFrom(statSync(file, { bigint: true, throwIfNoEntry: false }))
