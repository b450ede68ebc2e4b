import { mkdirSync, statSync } from "node:fs"
import { dirname } from "node:path"

const isDirectory = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false

/**
 * Makes a directory, with those above it that are missing, or throws the system's error.
 *
 * Each is tried once. Node's own recursion tries for ever where the system answers ENOENT below a directory that is
 * there, as it does in `/proc`.
 */
export const makeDirectory = (path: string): void => {
  if (isDirectory(path)) return
  const parent = dirname(path)
  if (parent !== path) makeDirectory(parent)
  try {
    mkdirSync(path)
  } catch (error) {
    // Somebody else may have made it in the meantime.
    if (!isDirectory(path)) throw error
  }
}
