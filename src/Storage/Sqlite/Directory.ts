import { closeSync, mkdirSync, openSync, statSync } from "node:fs"
import { dirname } from "node:path"

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

/** Makes an empty file that only its owner may read and write, or throws the system's error. One that is there stays as it is. */
export const makeFile = (path: string): void => {
  try {
    // Never opens a file that is there: to close it would give up the locks that this process has on it.
    closeSync(openSync(path, "wx", 0o600))
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error
  }
}
