import { closeSync, lstatSync, mkdirSync, openSync, realpathSync, rmSync, statSync, writeSync } from "node:fs"
import { dirname, join } from "node:path"

const isDirectory = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false

/**
 * Makes a directory that only its owner may look into, with those above it that are missing, or throws the system's
 * error. One that is there stays as it is.
 *
 * Each is tried once. Node's own recursion tries for ever where the system answers ENOENT below a directory that is
 * there, as it does in `/proc`.
 */
export const makeDirectory = (path: string): void => {
  if (isDirectory(path)) return
  const parent = dirname(path)
  if (parent !== path) makeDirectory(parent)
  try {
    mkdirSync(path, { mode: 0o700 })
  } catch (error) {
    // Somebody else may have made it in the meantime.
    if (!isDirectory(path)) throw error
  }
}

const hasCode = (error: unknown, ...codes: ReadonlyArray<string>): boolean =>
  error instanceof Error && "code" in error && codes.some(code => code === error.code)

/**
 * Makes an empty file, which only its owner may read and write unless said otherwise, or throws the system's error.
 * One that is there stays as it is.
 */
export const makeFile = (path: string, mode = 0o600): void => {
  try {
    // Never opens a file that is there: to close it would give up the locks that this process has on it.
    closeSync(openSync(path, "wx", mode))
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error
  }
}

/** The file that a path leads to: itself, unless it is a symbolic link. Throws where a link leads to nothing. */
export const realFile = (path: string): string =>
  lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true ? realpathSync(path) : path

const roomBytes = Buffer.alloc(64 * 1024)

/** Whether a directory takes another small file; only for want of space, or of a user's share of it, the answer is no. */
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
