/**
 * Backs up the store in a data directory and its histories of sessions, whether or not a service runs there.
 *
 * Both copies are from one moment: each has everything that was committed before it and nothing that was committed
 * later, so that neither refers to missing data of the other.
 */
import { existsSync, lstatSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { Clock, Effect } from "effect"
import { MiB } from "../base/Bytes.ts"
import { version } from "../base/Version.ts"
import {
  attempt,
  BackupFailed,
  histories,
  type Manifest,
  manifestName,
  type Part,
  print,
  type Report,
  refuse,
  store
} from "./Backup/Manifest.ts"
import * as Target from "./Backup/Target.ts"
import type { Copied } from "./Sqlite/Copy/Copying.ts"
import * as CopyPort from "./Sqlite/Copy/CopyPort.ts"
import type { CopyError } from "./Sqlite/Copy/Verification.ts"
import { idOf, realFile } from "./Sqlite/Database/Files.ts"
import { isUnfinished } from "./Sqlite/Database/Opening/Restored.ts"

export type { Progress, Report } from "./Backup/Manifest.ts"
export { BackupFailed } from "./Backup/Manifest.ts"

export interface Options {
  readonly directory: string
  /** The path of the backup: a directory, or a file if it is of the store alone. */
  readonly target: string
  readonly storeOnly: boolean
  readonly force: boolean
  /** The backup fails when a write-ahead log grows by more bytes in the meantime. */
  readonly maxLogBytes: number
  readonly report?: Report
}

export interface Made {
  readonly backup: string
  readonly bytes: number
  readonly entries: number
  readonly lastSeq: number
  readonly epoch: string
  /** The number of histories of sessions; `null` if the backup is of the store alone. */
  readonly sessions: number | null
}

const bytesLeft = 16 * MiB

const toFailure = ({ message, reason }: CopyError): BackupFailed =>
  new BackupFailed({
    message,
    ...(reason === "LogTooLarge" && { hint: "Try again when less is written, or use a larger --wal-limit." }),
    ...(reason === "NoRoom" && { hint: "Free space, or choose another path." })
  })

const verifyCopy = (part: Part, file: string, copied: Copied) =>
  Effect.gen(function* () {
    const verified = yield* Effect.mapError(CopyPort.verify({ ...part, file }), toFailure)
    if (verified.lastSeq !== copied.lastSeq || verified.epoch !== copied.epoch) {
      return yield* refuse(`${file} differs from what was copied: its log ends at ${verified.lastSeq}`)
    }
    return verified.count
  })

const fileOf = ({ bytes, schemaVersion, sha256 }: Copied) => ({ bytes, sha256, schemaVersion })

const identify = (file: string): Effect.Effect<string | undefined, BackupFailed> =>
  attempt(`${file} cannot be read`, () => idOf(file))

/** Whether a path exists. One that exists and cannot be reached is an error. */
const isThere = (path: string): Effect.Effect<boolean, BackupFailed> =>
  attempt(`${path} cannot be read`, () => lstatSync(path, { throwIfNoEntry: false }) !== undefined)

const refuseUnfinished = (directory: string): Effect.Effect<void, BackupFailed> =>
  Effect.suspend(() =>
    isUnfinished(directory)
      ? refuse(`${directory} has a restore that was not finished`, "Start the service once: it finishes the restore.")
      : Effect.void
  )

/** Copies the parts of a data directory at one moment. Refuses files that a restore has replaced since `id` was read. */
const copyParts = (
  { directory, maxLogBytes, report = () => {}, storeOnly }: Options,
  parts: ReadonlyArray<Part>,
  id: string | undefined,
  placeOf: (part: Part) => string
): Effect.Effect<ReadonlyArray<Copied>, BackupFailed> =>
  Effect.gen(function* () {
    const files = yield* Effect.forEach(parts, part => {
      const path = join(directory, part.file)
      return attempt(`${path} cannot be read`, () => ({
        path,
        id: part === store ? id : idOf(path),
        source: { format: part.format, file: realFile(path), target: placeOf(part) }
      }))
    })
    const sources = files.map(({ source }) => source)
    // A file may be a link to another directory.
    const directories = new Set([directory, ...sources.map(({ file }) => dirname(file))])
    yield* Effect.forEach(directories, refuseUnfinished)
    const sessionsFile = join(directory, histories.file)
    let isLate: boolean | undefined
    const copies = yield* Effect.mapError(
      CopyPort.copy({ sources, maxLogBytes, bytesLeft }, progress => {
        // At the first progress, all snapshots have been taken: histories that appear later do not belong to them.
        isLate ??= !storeOnly && parts.length === 1 && existsSync(sessionsFile)
        report({ phase: "copy", ...progress })
      }),
      toFailure
    )
    if (isLate === true) return yield* refuse(`${sessionsFile} was created in the meantime`, "Try again.")
    // Files from before and after a restore do not match, regardless of the order of opening.
    yield* Effect.forEach(directories, refuseUnfinished)
    for (const { id, path } of files) {
      if ((yield* identify(path)) !== id) {
        return yield* refuse(`${path} was replaced while it was copied`, "Try again.")
      }
    }
    return copies
  })

/** Makes a backup. If it fails or is interrupted, no files are left. */
export const make = (options: Options): Effect.Effect<Made, BackupFailed> =>
  Effect.gen(function* () {
    const { directory, force, report = () => {}, storeOnly, target: path } = options
    const kv = join(directory, store.file)
    // A restore replaces this file last.
    const id = yield* identify(kv)
    yield* refuseUnfinished(directory)
    if (!(yield* isThere(kv))) return yield* refuse(`${directory} has no store: there is no ${store.file}`)
    const parts = storeOnly || !(yield* isThere(join(directory, histories.file))) ? [store] : [store, histories]
    const target = yield* Target.open({ path, kind: storeOnly ? "file" : "directory", force, source: directory })
    const createdAt = new Date(yield* Clock.currentTimeMillis).toISOString()
    const placeOf = ({ file }: Part): string => (storeOnly ? target.draft : join(target.draft, file))
    const copies = yield* copyParts(options, parts, id, placeOf)
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
