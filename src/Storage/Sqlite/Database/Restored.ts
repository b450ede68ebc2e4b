/**
 * How restored databases come into a data directory: at once, whenever the process is killed.
 *
 * They are made ready in a directory within it. That this directory is given its final name is what restores them. Until
 * then nothing has happened; from then on whoever opens a database of the data directory first moves the old files aside
 * and these into their place, or goes on with that where somebody was killed.
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
import { messageOf } from "../../../ErrorMessage.ts"
import { flushDirectory } from "../../FileSystem.ts"

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

const databases = ["kv", "sessions"]

/** What a restore replaces, the databases last. */
const replaced = [
  ...databases.flatMap(name => ["-wal", "-shm", "-journal"].map(end => `${name}.db${end}`)),
  "kv.epoch",
  "sessions.db",
  "kv.db"
]

/** What SQLite would apply to a database beside which it lies. */
const logs = databases.flatMap(name => ["-wal", "-journal"].map(end => `${name}.db${end}`))

/** The files of a data directory that a restore would replace. */
export const replacedIn = (directory: string): ReadonlyArray<string> =>
  replaced.filter(name => existsSync(join(directory, name)))

/** Where root restores for a service of another user, the owner of the data directory is to own what is made there. */
export const giveToOwner = (directory: string, path: string): void => {
  if (process.getuid?.() !== 0) return
  const { gid, uid } = statSync(directory)
  chownSync(path, uid, gid)
}

/** Whether a restore has taken place of which files are still to be moved, or something else has that name. */
export const isUnfinished = (directory: string): boolean => existsSync(readyIn(directory))

/** What changes a directory; a test replaces it. */
export interface Changes {
  readonly write: (path: string, text: string) => void
  readonly makeDirectory: (path: string) => void
  readonly rename: (from: string, to: string) => void
  readonly unlink: (path: string) => void
  readonly remove: (path: string) => void
  readonly flush: (directory: string) => void
}

/** The changes themselves. */
export const changes: Changes = {
  write: (path, text) => writeFileSync(path, text, { flag: "wx", mode: 0o600, flush: true }),
  makeDirectory: path => mkdirSync(path, { mode: 0o700, recursive: true }),
  rename: renameSync,
  unlink: unlinkSync,
  remove: path => rmSync(path, { recursive: true, force: true }),
  flush: flushDirectory
}

/**
 * Decides that what is ready in `draft` is restored, which {@link finish} does then. Old files are to go into a
 * directory of the name `aside`.
 */
export const commit = (directory: string, draft: string, aside: string, { flush, rename, write } = changes): void => {
  write(asideIn(draft), aside)
  write(join(draft, marker.name), marker.text)
  for (const name of readdirSync(draft)) giveToOwner(directory, join(draft, name))
  giveToOwner(directory, draft)
  flush(draft)
  rename(draft, readyIn(directory))
  flush(directory)
}

const isMarked = (ready: string): boolean => {
  const path = join(ready, marker.name)
  return existsSync(path) && readFileSync(path, "utf8") === marker.text
}

const isEmptyDirectory = (path: string): boolean => statSync(path).isDirectory() && readdirSync(path).length === 0

/** The directory for old files, as long as there may be some that have not gone there. */
const asideOf = (directory: string): string | undefined => {
  const plan = asideIn(readyIn(directory))
  return existsSync(plan) ? join(directory, readFileSync(plan, "utf8")) : undefined
}

/** A path in a directory which nothing has, so that nothing is replaced: the name, or with a number behind it. */
const freePath = (directory: string, name: string): string => {
  for (let number = 1; ; number++) {
    const path = join(directory, number === 1 ? name : `${name}.${number}`)
    if (!existsSync(path)) return path
  }
}

/** A name that nothing in a directory has. */
export const freeName = (directory: string, name: string): string => basename(freePath(directory, name))

/** Puts old files back into their place, as far as that is possible. */
const putBack = (directory: string, aside: string, { rename }: Changes): void => {
  // A log without its database would be removed by whoever makes a new one.
  for (const name of [...replacedIn(aside)].reverse()) {
    if (existsSync(join(directory, name))) continue
    try {
      rename(join(aside, name), join(directory, name))
    } catch {
      // Whoever goes on moves those that were put back again.
    }
  }
}

/**
 * Moves old files aside. Where that fails they are put back: a database must not stay without its log. Where the process
 * is killed, some may have gone and others not, until somebody goes on.
 */
const moveAside = (directory: string, changes: Changes): void => {
  const aside = asideOf(directory)
  if (aside === undefined) return
  const { flush, makeDirectory, rename, unlink } = changes
  const ready = readyIn(directory)
  const old = replacedIn(directory)
  try {
    if (old.length > 0) {
      makeDirectory(aside)
      giveToOwner(directory, aside)
      for (const name of old) rename(join(directory, name), freePath(aside, name))
      flush(aside)
    }
    flush(directory)
    unlink(asideIn(ready))
  } catch (error) {
    putBack(directory, aside, changes)
    throw error
  }
  flush(ready)
}

const appeared = (file: string): Error => new Error(`${file} has appeared while it was restored: move it away`)

/** Moves what is restored into its place, where nothing may be any more. */
const moveIn = (directory: string, { flush, rename }: Changes): void => {
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
    rename(join(ready, name), file)
  }
  flush(directory)
}

/**
 * Moves the files of a restore that has taken place, as far as that has not been done. The caller owns the data
 * directory. Throws the system's error, and where it would replace something else, or a log of something else would be
 * applied to what is restored.
 */
export const finish = (directory: string, given = changes): void => {
  const ready = readyIn(directory)
  if (!existsSync(ready)) return
  // One without the marker is not of a restore, unless it was killed when nothing but the directory was left.
  if (!isMarked(ready) && !isEmptyDirectory(ready)) {
    throw new Error(`${ready} is not of a restore, whose name it has: move it away`)
  }
  moveAside(directory, given)
  moveIn(directory, given)
  for (const name of readdirSync(ready)) if (name !== marker.name) given.remove(join(ready, name))
  if (isMarked(ready)) given.unlink(join(ready, marker.name))
  given.remove(ready)
  given.flush(directory)
}

/** Takes back a restore of which no file is in its place. Returns whether nothing is left of it but the draft. */
const takeBack = (directory: string, draft: string, { flush, rename }: Changes): boolean => {
  try {
    const aside = asideOf(directory)
    if (aside === undefined || replacedIn(aside).length > 0) return false
    rename(readyIn(directory), draft)
    if (existsSync(aside) && isEmptyDirectory(aside)) rmdirSync(aside)
    flush(directory)
    return true
  } catch {
    return existsSync(draft)
  }
}

/** The restore has taken place, and is not finished: some files may have to be moved yet. */
export class Unfinished extends Error {}

/**
 * Restores what is ready in `draft`, a directory within the data directory. Old files go into a directory of the name
 * `aside` beside them, which nothing has yet. The caller owns the data directory. Where it fails with the system's error,
 * nothing was restored and the draft is left to the caller; where it fails with {@link Unfinished}, whoever opens a
 * database there next goes on with it.
 */
export const put = (directory: string, draft: string, aside: string, given = changes): void => {
  try {
    commit(directory, draft, aside, given)
    finish(directory, given)
  } catch (error) {
    if (existsSync(draft) || takeBack(directory, draft, given)) throw error
    throw new Unfinished(messageOf(error))
  }
}
