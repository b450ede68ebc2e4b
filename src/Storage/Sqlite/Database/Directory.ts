import { closeSync, lstatSync, mkdirSync, openSync, realpathSync, rmSync, statSync, writeSync } from "node:fs"
import { dirname, join } from "node:path"

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

const hasCode = (error: unknown, ...codes: ReadonlyArray<string>): boolean =>
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

/** The file itself, or the target of a symbolic link. Throws where that does not exist. */
export const realFile = (path: string): string =>
  lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true ? realpathSync(path) : path

const roomBytes = Buffer.alloc(64 * 1024)

/** Whether a directory has room for a small file. It is false only if the disk or the user's quota is full. */
export const hasRoom = (directory: string): boolean => {
  const file = join(directory, `.room-${process.pid}`)
  try {
    rmSync(file, { force: true })
    const descriptor = openSync(file, "wx", 0o600)
    try {
      return writeSync(descriptor, roomBytes) === roomBytes.length
    } finally {
      closeSync(descriptor)
      rmSync(file, { force: true })
    }
  } catch (error) {
    return !hasCode(error, "ENOSPC", "EDQUOT")
  }
}
