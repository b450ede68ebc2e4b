/**
 * How restored databases come into a data directory: at once, whenever the process is killed.
 *
 * They are made ready in a directory within it. That this directory is given its final name is what restores them. Until
 * then nothing has happened; from then on whoever opens a database of the data directory first moves the old files aside
 * and these into their place, or goes on with that where somebody was killed.
 */
import {
  chownSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync
} from "node:fs"
import { basename, join, resolve } from "node:path"

/** The name of the directory in which a restore that has taken place keeps what is still to be moved. */
const readyName = "restore.ready"

const readyIn = (directory: string): string => join(directory, readyName)

/** Where old files go; it is there until all of them have gone. */
const asideIn = (ready: string): string => join(ready, "aside")

/** What tells the directory from one that somebody else has given this name. It is removed last. */
const marker = {
  name: "causeway-restore",
  text: "The files of a restore that the next start of the service finishes.\n"
}

/** The name of a directory in which a restore is made ready; `id` has 16 hexadecimal digits. */
export const draftName = (id: string): string => `restore.${id}.part`

/** Whether a restore has given a name within a data directory to what it makes ready. */
export const isDraftName = (name: string): boolean => /^restore\.[0-9a-f]{16}\.part$/.test(name)

/** Whether a path has a name that only a restore gives, and whose content is removed. */
export const isReserved = (path: string): boolean => {
  const name = basename(resolve(path))
  return name === readyName || isDraftName(name)
}

/** What a restore replaces, the databases last. */
const replaced = [
  ...["kv", "sessions"].flatMap(name => ["-wal", "-shm", "-journal"].map(end => `${name}.db${end}`)),
  "kv.epoch",
  "sessions.db",
  "kv.db"
]

/** The files of a data directory that a restore would replace. */
export const replacedIn = (directory: string): ReadonlyArray<string> =>
  replaced.filter(name => existsSync(join(directory, name)))

/** A new name in a directory, or one that is gone, is only safe once the directory has been flushed. */
export const flushDirectory = (directory: string): void => {
  const descriptor = openSync(directory, "r")
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

/** Where root restores for a service of another user, the owner of the data directory is to own what is made there. */
export const giveToOwner = (directory: string, path: string): void => {
  if (process.getuid?.() !== 0) return
  const { gid, uid } = statSync(directory)
  chownSync(path, uid, gid)
}

/** Whether a restore has taken place of which files are still to be moved, or something else has that name. */
export const isUnfinished = (directory: string): boolean => existsSync(readyIn(directory))

/**
 * Restores what is ready in `draft`, a directory within the data directory. Old files go into the directory of the name
 * `aside` beside them. The caller owns the data directory, and calls {@link finish} then. Throws the system's error.
 */
export const commit = (directory: string, draft: string, aside: string): void => {
  writeFileSync(asideIn(draft), aside, { flag: "wx", mode: 0o600, flush: true })
  writeFileSync(join(draft, marker.name), marker.text, { flag: "wx", mode: 0o600, flush: true })
  for (const name of readdirSync(draft)) giveToOwner(directory, join(draft, name))
  giveToOwner(directory, draft)
  flushDirectory(draft)
  renameSync(draft, readyIn(directory))
  flushDirectory(directory)
}

/** What changes a directory; a test replaces it. */
export interface Moves {
  readonly makeDirectory: (path: string) => void
  readonly rename: (from: string, to: string) => void
  readonly unlink: (path: string) => void
  readonly remove: (path: string) => void
}

const moves: Moves = {
  makeDirectory: path => mkdirSync(path, { mode: 0o700, recursive: true }),
  rename: renameSync,
  unlink: unlinkSync,
  remove: path => rmSync(path, { recursive: true, force: true })
}

const isMarked = (ready: string): boolean => {
  const path = join(ready, marker.name)
  return existsSync(path) && readFileSync(path, "utf8") === marker.text
}

const isEmptyDirectory = (path: string): boolean => statSync(path).isDirectory() && readdirSync(path).length === 0

/**
 * Moves the files of a restore that has taken place, as far as that has not been done. The caller owns the data directory.
 * Throws the system's error, and where it would replace something else.
 */
export const finish = (directory: string, { makeDirectory, remove, rename, unlink } = moves): void => {
  const ready = readyIn(directory)
  if (!existsSync(ready)) return
  // One without the marker is not of a restore, unless it was killed when nothing but the directory was left.
  if (!isMarked(ready) && !isEmptyDirectory(ready)) {
    throw new Error(`${ready} is not of a restore, whose name it has: move it away`)
  }
  const plan = asideIn(ready)
  if (existsSync(plan)) {
    const aside = join(directory, readFileSync(plan, "utf8"))
    const old = replacedIn(directory)
    if (old.length > 0) {
      makeDirectory(aside)
      giveToOwner(directory, aside)
      for (const name of old) rename(join(directory, name), join(aside, name))
      flushDirectory(aside)
    }
    flushDirectory(directory)
    unlink(plan)
    flushDirectory(ready)
  }
  for (const name of replacedIn(ready)) {
    const file = join(directory, name)
    if (existsSync(file)) throw new Error(`${file} has appeared while it was restored: move it away`)
    rename(join(ready, name), file)
  }
  flushDirectory(directory)
  for (const name of readdirSync(ready)) if (name !== marker.name) remove(join(ready, name))
  if (isMarked(ready)) unlink(join(ready, marker.name))
  remove(ready)
  flushDirectory(directory)
}
