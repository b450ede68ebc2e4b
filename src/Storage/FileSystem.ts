/** File operations of the storage adapters. */
import { closeSync, fsyncSync, linkSync, mkdirSync, openSync, renameSync, statSync, unlinkSync } from "node:fs"
import { dirname } from "node:path"

const isDirectory = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false

/**
 * Creates a directory that only its owner can read, and its missing parents. An existing directory is not changed.
 * Throws the system's error.
 *
 * Node's own recursion does not end if the system answers ENOENT below an existing directory, as in `/proc`.
 */
export const makeDirectory = (path: string): void => {
  if (isDirectory(path)) return
  const parent = dirname(path)
  if (parent !== path) makeDirectory(parent)
  try {
    mkdirSync(path, { mode: 0o700 })
  } catch (error) {
    // Another process may have created it in the meantime.
    if (!isDirectory(path)) throw error
  }
}

export const hasCode = (error: unknown, ...codes: ReadonlyArray<string>): boolean =>
  error instanceof Error && "code" in error && codes.some(code => code === error.code)

/** Creates an empty file. An existing file is not changed. Throws the system's error. */
export const makeFile = (path: string, mode = 0o600): void => {
  try {
    // An existing file is not opened: closing it would release this process's locks on it.
    closeSync(openSync(path, "wx", mode))
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error
  }
}

/** Flushes a directory. Only then is a new or removed name in it durable. */
export const flushDirectory = (directory: string): void => {
  const descriptor = openSync(directory, "r")
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

/** Renames a file to a name that no file has. Throws the system's error, EEXIST if another process was first. */
export const claimName = (file: string, name: string): void => {
  try {
    linkSync(file, name)
  } catch (error) {
    // Some file systems have no hard links. There an empty file claims the name.
    if (!hasCode(error, "EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS")) throw error
    closeSync(openSync(name, "wx", 0o600))
    return renameSync(file, name)
  }
  unlinkSync(file)
}
