/**
 * Puts restored databases into a data directory atomically, even if the process is killed.
 *
 * The files are prepared in a directory within the data directory. Renaming that directory to its final name is the
 * restore. Before it, nothing has changed. After it, any process that opens a database of the data directory first
 * moves the old files aside and the new ones into position, or resumes these moves after a killed process.
 */
import {
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync
} from "node:fs"
import { basename, join, resolve } from "node:path"
import { messageOf } from "../../../../base/ErrorMessage.ts"
import { flushDirectory } from "../../../FileSystem.ts"

/** The name of the directory in which a restore that has taken place keeps the files that are still to be moved. */
const readyName = "restore.ready"

const readyIn = (directory: string): string => join(directory, readyName)

/** The directory for old files. It exists until all of them were moved. */
const asideIn = (ready: string): string => join(ready, "aside")

/** Distinguishes the directory from one that another program has given this name. It is removed last. */
const marker = {
  name: "causeway-restore",
  text: "The files of a restore that the next start of the service finishes.\n"
}

export const draftName = (id: string): string => `restore.${id}.part`

/** Whether a name within a data directory is that of a prepared restore. */
export const isDraftName = (name: string): boolean => /^restore\.[0-9a-f]{16}\.part$/.test(name)

/** Whether a path has a name that only restores use, and whose content is removed. */
export const isReserved = (path: string): boolean => {
  const name = basename(resolve(path))
  return name === readyName || isDraftName(name)
}

const databases = ["kv", "sessions"]

/** The files that a restore replaces, the databases last. */
const replaced = [
  ...databases.flatMap(name => ["-wal", "-shm", "-journal"].map(end => `${name}.db${end}`)),
  "kv.epoch",
  "sessions.db",
  "kv.db"
]

/** The files that SQLite would apply to a database next to them. */
const logs = databases.flatMap(name => ["-wal", "-journal"].map(end => `${name}.db${end}`))

export const replacedIn = (directory: string): ReadonlyArray<string> =>
  replaced.filter(name => existsSync(join(directory, name)))

/** Gives a path to the owner of the data directory, if root restores for a service of another user. */
export const giveToOwner = (directory: string, path: string): void => {
  if (process.getuid?.() !== 0) return
  const { gid, uid } = statSync(directory)
  chownSync(path, uid, gid)
}

/** Whether a restore has taken place whose files are still to be moved, or another directory has its name. */
export const isUnfinished = (directory: string): boolean => existsSync(readyIn(directory))

const write = (path: string, text: string): void => writeFileSync(path, text, { flag: "wx", mode: 0o600, flush: true })

/** Restores what is in `draft`. {@link finish} then moves the files, the old ones into a directory `aside`. */
export const commit = (directory: string, draft: string, aside: string): void => {
  write(asideIn(draft), aside)
  write(join(draft, marker.name), marker.text)
  for (const name of readdirSync(draft)) giveToOwner(directory, join(draft, name))
  giveToOwner(directory, draft)
  flushDirectory(draft)
  renameSync(draft, readyIn(directory))
  flushDirectory(directory)
}

const isMarked = (ready: string): boolean => {
  const path = join(ready, marker.name)
  return existsSync(path) && readFileSync(path, "utf8") === marker.text
}

const isEmptyDirectory = (path: string): boolean => statSync(path).isDirectory() && readdirSync(path).length === 0

/** The directory for old files, as long as some may not have been moved. */
const asideOf = (directory: string): string | undefined => {
  const plan = asideIn(readyIn(directory))
  return existsSync(plan) ? join(directory, readFileSync(plan, "utf8")) : undefined
}

/** A path in a directory that does not exist: the name, or the name with a number. */
const freePath = (directory: string, name: string): string => {
  for (let number = 1; ; number++) {
    const path = join(directory, number === 1 ? name : `${name}.${number}`)
    if (!existsSync(path)) return path
  }
}

export const freeName = (directory: string, name: string): string => basename(freePath(directory, name))

const putBack = (directory: string, aside: string): void => {
  // A log without its database would be removed by a process that creates the database.
  for (const name of [...replacedIn(aside)].reverse()) {
    if (existsSync(join(directory, name))) continue
    try {
      renameSync(join(aside, name), join(directory, name))
    } catch {
      // The process that resumes the restore moves the files again.
    }
  }
}

/**
 * Moves old files aside. If that fails, they are moved back: a database must not lose its log. If the process is
 * killed, some files may have been moved, until another process resumes.
 */
const moveAside = (directory: string): void => {
  const aside = asideOf(directory)
  if (aside === undefined) return
  const ready = readyIn(directory)
  const old = replacedIn(directory)
  try {
    if (old.length > 0) {
      mkdirSync(aside, { mode: 0o700, recursive: true })
      giveToOwner(directory, aside)
      for (const name of old) renameSync(join(directory, name), freePath(aside, name))
      flushDirectory(aside)
    }
    flushDirectory(directory)
    unlinkSync(asideIn(ready))
  } catch (error) {
    putBack(directory, aside)
    throw error
  }
  flushDirectory(ready)
}

const appeared = (file: string): Error => new Error(`${file} was created during the restore: move it away`)

/** Moves restored files into position, where no files may exist. */
const moveIn = (directory: string): void => {
  const ready = readyIn(directory)
  const restored = replacedIn(ready)
  if (restored.length > 0) {
    for (const file of logs.map(name => join(directory, name))) {
      if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) > 0) throw appeared(file)
    }
  }
  for (const name of restored) {
    const file = join(directory, name)
    if (existsSync(file)) throw appeared(file)
    renameSync(join(ready, name), file)
  }
  flushDirectory(directory)
}

/**
 * Moves the files of a restore that has taken place, as far as necessary. The caller owns the data directory. Throws
 * the system's error. Also throws if a move would replace another file, or if SQLite would apply another log to a
 * restored database.
 */
export const finish = (directory: string): void => {
  const ready = readyIn(directory)
  if (!existsSync(ready)) return
  // A directory without the marker belongs to no restore, unless the process was killed when only the directory was
  // left.
  if (!isMarked(ready) && !isEmptyDirectory(ready)) {
    throw new Error(`${ready} has the name of a restore but is not one: move it away`)
  }
  moveAside(directory)
  moveIn(directory)
  for (const name of readdirSync(ready)) {
    if (name !== marker.name) rmSync(join(ready, name), { recursive: true, force: true })
  }
  // The marker goes last.
  rmSync(ready, { recursive: true, force: true })
  flushDirectory(directory)
}

/** Reverts a restore of which no file was moved. Returns whether only the draft is left. */
const takeBack = (directory: string, draft: string): boolean => {
  try {
    const aside = asideOf(directory)
    if (aside === undefined || replacedIn(aside).length > 0) return false
    renameSync(readyIn(directory), draft)
    if (existsSync(aside) && isEmptyDirectory(aside)) rmdirSync(aside)
    flushDirectory(directory)
    return true
  } catch {
    return existsSync(draft)
  }
}

/** The restore has taken place, and is not finished: some files may still have to be moved. */
export class Unfinished extends Error {}

/**
 * Restores what was prepared in `draft`, a directory within the data directory. Old files go into the sibling directory
 * `aside`, which must not exist yet. The caller owns the data directory. After the system's error, nothing was
 * restored, and the caller removes the draft. After {@link Unfinished}, the next process that opens a database there
 * resumes the restore.
 */
export const put = (directory: string, draft: string, aside: string): void => {
  try {
    commit(directory, draft, aside)
    finish(directory)
  } catch (error) {
    if (existsSync(draft) || takeBack(directory, draft)) throw error
    throw new Unfinished(messageOf(error))
  }
}
