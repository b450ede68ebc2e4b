/**
 * Backs up the store in a data directory, and the histories of sessions beside it, whether or not a service runs there.
 *
 * Both copies are of one moment: each has all that was committed before it and nothing that came after, so that none
 * refers to what the other one lacks.
 */
import { existsSync, lstatSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { Clock, Effect } from "effect"
import { MiB } from "../Bytes.ts"
import { version } from "../Version.ts"
import { attempt, BackupFailed, type Report, refuse } from "./Backup/BackupFailed.ts"
import { histories, type Manifest, manifestName, type Part, print, store, verificationOf } from "./Backup/Manifest.ts"
import * as Target from "./Backup/Target.ts"
import { idOf } from "./FileSystem.ts"
import type { Copied } from "./Sqlite/Copy/Copying.ts"
import * as CopyPort from "./Sqlite/Copy/CopyPort.ts"
import { kindOf } from "./Sqlite/Copy/StoreBackup.ts"
import { realFile } from "./Sqlite/Database/Files.ts"
import { isUnfinished } from "./Sqlite/Database/Restored.ts"

export type { Progress, Report } from "./Backup/BackupFailed.ts"
export { BackupFailed } from "./Backup/BackupFailed.ts"

export interface Options {
  /** The data directory. */
  readonly directory: string
  /** Where the backup is to be: a directory, or a file where it is of the store alone. */
  readonly target: string
  readonly storeOnly: boolean
  /** Whether an earlier backup may be replaced. */
  readonly force: boolean
  /** The backup is given up when a write-ahead log has grown by more bytes meanwhile. */
  readonly maxLogBytes: number
  readonly report?: Report
}

/** A finished backup. */
export interface Made {
  readonly backup: string
  /** Of all its files. */
  readonly bytes: number
  readonly entries: number
  readonly lastSeq: number
  readonly epoch: string
  /** How many histories of sessions it has; `null` where it is of the store alone. */
  readonly sessions: number | null
}

/** What the disk of a backup must have left. */
const bytesLeft = 16 * MiB

const toFailure = ({ message, reason }: CopyPort.CopyFailed): BackupFailed =>
  new BackupFailed({
    message,
    ...(reason === "LogTooLarge" && { hint: "Try again when less is written, or give a larger --wal-limit." }),
    ...(reason === "NoRoom" && { hint: "Free space, or give another place." })
  })

const verifyCopy = (part: Part, file: string, copied: Copied) =>
  Effect.gen(function* () {
    const verified = yield* Effect.mapError(CopyPort.verify(verificationOf(part, file)), toFailure)
    if (verified.lastSeq !== copied.lastSeq || verified.epoch !== copied.epoch) {
      return yield* refuse(`${file} differs from what was copied: its log ends at ${verified.lastSeq}`)
    }
    return verified.count
  })

const fileOf = ({ bytes, schemaVersion, sha256 }: Copied) => ({ bytes, sha256, schemaVersion })

const identify = (file: string): Effect.Effect<string | undefined, BackupFailed> =>
  attempt(`${file} cannot be read`, () => idOf(file))

/** Whether there is anything with this name. What is there and cannot be reached is not left out for that. */
const isThere = (path: string): Effect.Effect<boolean, BackupFailed> =>
  attempt(`${path} cannot be read`, () => lstatSync(path, { throwIfNoEntry: false }) !== undefined)

const refuseUnfinished = (directory: string): Effect.Effect<void, BackupFailed> =>
  Effect.suspend(() =>
    isUnfinished(directory)
      ? refuse(`${directory} has a restore that was not finished`, "Start the service once: it finishes it.")
      : Effect.void
  )

/** Makes a backup. If it fails or is interrupted, nothing is left of it. */
export const make = ({
  directory,
  force,
  maxLogBytes,
  report = () => {},
  storeOnly,
  target: path
}: Options): Effect.Effect<Made, BackupFailed> =>
  Effect.gen(function* () {
    const kv = join(directory, store.file)
    // A restore replaces this file last.
    const id = yield* identify(kv)
    yield* refuseUnfinished(directory)
    if (!(yield* isThere(kv))) return yield* refuse(`${directory} has no store: there is no ${store.file}`)
    const sessionsFile = join(directory, histories.file)
    const parts = storeOnly || !(yield* isThere(sessionsFile)) ? [store] : [store, histories]
    const ids = yield* Effect.forEach(parts, part =>
      part === store ? Effect.succeed(id) : identify(join(directory, part.file))
    )
    const target = yield* Target.open({ path, kind: storeOnly ? "file" : "directory", force, source: directory })
    const createdAt = new Date(yield* Clock.currentTimeMillis).toISOString()
    const placeOf = ({ file }: Part): string => (storeOnly ? target.draft : join(target.draft, file))
    const sources = yield* Effect.forEach(parts, part => {
      const path = join(directory, part.file)
      return Effect.map(
        attempt(`${path} cannot be read`, () => realFile(path)),
        file => ({ kind: kindOf(part.format), file, target: placeOf(part) })
      )
    })
    // A file may be a link from this directory to another one.
    const directories = new Set([directory, ...sources.map(({ file }) => dirname(file))])
    yield* Effect.forEach(directories, refuseUnfinished)
    let hasBegun = false
    let isLate = false
    const copies = yield* Effect.mapError(
      CopyPort.copy({ sources, maxLogBytes, bytesLeft }, progress => {
        // By the first progress, all that is copied has been read from one moment.
        if (!hasBegun) isLate = !storeOnly && parts.length === 1 && existsSync(sessionsFile)
        hasBegun = true
        report({ phase: "copy", ...progress })
      }),
      toFailure
    )
    if (isLate) return yield* refuse(`${sessionsFile} was made meanwhile`, "Try again.")
    // Files of before and after a restore do not belong together, whichever of them was opened first.
    yield* Effect.forEach(directories, refuseUnfinished)
    yield* Effect.forEach(parts, ({ file }, index) =>
      Effect.flatMap(identify(join(directory, file)), now =>
        now === ids[index]
          ? Effect.void
          : refuse(`${join(directory, file)} was replaced while it was copied`, "Try again.")
      )
    )
    const bytes = copies.reduce((sum, copy) => sum + copy.bytes, 0)
    report({ phase: "verify", done: 0, total: bytes })
    const counts = yield* Effect.forEach(parts, (part, index) => verifyCopy(part, placeOf(part), copies[index]!))
    report({ phase: "verify", done: bytes, total: bytes })
    const [ofStore, ofSessions] = copies
    const [entries = 0, sessions] = counts
    const { epoch, lastSeq } = ofStore!
    const manifest: Manifest = {
      backup: 1,
      createdAt,
      version,
      store: { ...fileOf(ofStore!), entries, lastSeq, epoch },
      sessions: ofSessions === undefined ? null : { ...fileOf(ofSessions), histories: sessions ?? 0 }
    }
    if (!storeOnly) {
      yield* attempt("The backup cannot be written", () =>
        writeFileSync(join(target.draft, manifestName), print(manifest), { flag: "wx", mode: 0o600, flush: true })
      )
    }
    yield* target.place
    return { backup: path, bytes, entries, lastSeq, epoch, sessions: sessions ?? null }
  }).pipe(Effect.scoped)
