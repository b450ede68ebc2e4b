/**
 * Restores a backup into a data directory that no process uses.
 *
 * All databases are replaced together or none, so that histories of sessions never remain next to a store that does not
 * know them: a backup of the store alone has no histories. The change log and the histories get new epochs, so that
 * their followers read them again.
 */
import { createHash } from "node:crypto"
import {
  createReadStream,
  createWriteStream,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync
} from "node:fs"
import { dirname, join } from "node:path"
import { pipeline } from "node:stream/promises"
import { Clock, Duration, Effect, Either, Logger, LogLevel, Option, type Scope } from "effect"
import { MiB } from "../../base/Bytes.ts"
import { messageOf } from "../../base/ErrorMessage.ts"
import { randomHex } from "../../base/RandomHex.ts"
import * as Supervision from "../../base/Supervision.ts"
import { makeDirectory } from "../FileSystem.ts"
import { requireRoom } from "../Sqlite/Copy/Copying.ts"
import * as CopyPort from "../Sqlite/Copy/CopyPort.ts"
import type { Verified } from "../Sqlite/Copy/Verification.ts"
import { closeLast, openForWriting } from "../Sqlite/Database/Connection.ts"
import { idOf } from "../Sqlite/Database/Files.ts"
import * as Restored from "../Sqlite/Database/Opening/Restored.ts"
import * as Opening from "../Sqlite/Database/Opening.ts"
import {
  attempt,
  BackupFailed,
  histories,
  manifestName,
  type Part,
  parse,
  type Report,
  refuse,
  store
} from "./Manifest.ts"
import * as StoreFile from "./StoreFile.ts"
import * as Target from "./Target.ts"

export interface Options {
  /** A backup: its directory, or the file of a store. */
  readonly backup: string
  /** The data directory. It is created when it is missing. */
  readonly directory: string
  /** Whether an existing store may be moved aside. */
  readonly force: boolean
  readonly report?: Report
}

export interface RestoredStore {
  readonly backup: string
  readonly directory: string
  readonly entries: number
  readonly lastSeq: number
  /** The epoch of the change log in the backup, and the one that it has now. */
  readonly epochBefore: string
  readonly epoch: string
  /** The number of histories of sessions; `null` if the backup is of the store alone. */
  readonly sessions: number | null
  /** The directory with the previous files; `null` if there were none. */
  readonly aside: string | null
}

interface BackupPart {
  readonly part: Part
  readonly from: string
  readonly bytes: number
  /** Fails if the copied data, with this SHA-256, differs from the backup. */
  readonly requireWhole: (sha256: string) => Effect.Effect<void, BackupFailed>
}

const statOf = (path: string) => attempt(`${path} cannot be read`, () => statSync(path, { throwIfNoEntry: false }))

const maxManifestBytes = 64 * 1024

/** The parts of a backup, without reading its databases. A single file is locked until the scope closes. */
const look = (backup: string, directory: string): Effect.Effect<ReadonlyArray<BackupPart>, BackupFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const stat = yield* statOf(backup)
    if (stat === undefined) {
      const [earlier] = yield* attempt(`${backup} cannot be read`, () => Target.earlierOf(backup))
      const hint = `${earlier} is the earlier backup, which a killed run was about to replace: restore that.`
      return yield* refuse(`${backup} does not exist`, earlier === undefined ? undefined : hint)
    }
    if (!stat.isDirectory()) {
      if (!stat.isFile())
        return yield* refuse(`${backup} is neither a directory nor a file`, "Copy what it has into a file.")
      const isItself = yield* attempt(
        `${backup} cannot be read`,
        () => idOf(backup) === idOf(join(directory, store.file))
      )
      if (isItself) return yield* refuse(`${backup} is the store of ${directory} itself`)
      const held = yield* StoreFile.hold(backup)
      return [{ part: store, from: backup, bytes: stat.size, requireWhole: () => held.requireUnchanged }]
    }
    if (yield* attempt(`${backup} cannot be read`, () => idOf(backup) === idOf(directory))) {
      return yield* refuse(`${backup} is the data directory itself`, "Restore into another one.")
    }
    const place = join(backup, manifestName)
    const ofManifest = yield* statOf(place)
    if (ofManifest === undefined) {
      return yield* refuse(
        `${backup} is not a backup: it has no ${manifestName}`,
        (yield* statOf(join(backup, store.file))) === undefined
          ? "Use a directory that causeway backup has made, or the file of a store."
          : `It has a store: make a backup of it with causeway backup --data-dir ${backup}, and restore that.`
      )
    }
    const manifest =
      ofManifest.size > maxManifestBytes
        ? Option.none()
        : parse(yield* attempt(`${place} cannot be read`, () => readFileSync(place, "utf8")))
    if (Option.isNone(manifest)) return yield* refuse(`${place} is damaged, or of a newer version of Causeway`)
    const { sessions, store: ofStore } = manifest.value
    const described = [
      { part: store, file: ofStore },
      ...(sessions === null ? [] : [{ part: histories, file: sessions }])
    ]
    return yield* Effect.forEach(described, ({ file: { bytes, sha256 }, part }) =>
      Effect.gen(function* () {
        const from = join(backup, part.file)
        const size = (yield* statOf(from))?.size
        if (size === undefined) return yield* refuse(`${from} is missing, although ${manifestName} lists it`)
        if (size !== bytes) return yield* refuse(`${from} has ${size} bytes, and ${manifestName} says ${bytes}`)
        const requireWhole = (digest: string) =>
          digest === sha256
            ? Effect.void
            : refuse(`${from} is damaged, or not of this backup: its SHA-256 is not the one in ${manifestName}`)
        return { part, from, bytes, requireWhole }
      })
    )
  })

/** Owns a data directory until the scope closes. */
const own = (directory: string): Effect.Effect<void, BackupFailed, Scope.Scope> =>
  Effect.gen(function* () {
    if (Restored.isReserved(directory)) {
      return yield* refuse(`${directory} has a name that is reserved for restores`, "Give the directory another name.")
    }
    yield* attempt(`${directory} cannot be used as a data directory`, () => makeDirectory(directory))
    for (const { file } of [store, histories]) {
      const path = join(directory, file)
      const stat = yield* attempt(`${path} cannot be read`, () => lstatSync(path, { throwIfNoEntry: false }))
      if (stat?.isSymbolicLink() === true) {
        return yield* refuse(`${path} is a symbolic link`, "Restore into the directory of the file itself.")
      }
    }
    const missing = [store, histories]
      .map(({ name }) => join(directory, `${name}.lock`))
      .filter(lock => !existsSync(lock))
    const owned = yield* Effect.either(Opening.ownDirectory(directory))
    // In any case: a service of another user could not open files of root.
    yield* attempt(`${directory} cannot be written`, () => {
      for (const lock of missing) if (existsSync(lock)) Restored.giveToOwner(directory, lock)
    })
    if (Either.isRight(owned)) return
    const { file, message } = owned.left
    return yield* refuse(message, file === directory ? undefined : "Stop the service, or wait for the other restore.")
  })

/** A directory for the restored files. It is in the data directory, which may be a separate file system. */
const openDraft = (directory: string): Effect.Effect<string, BackupFailed, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.flatMap(randomHex(2), id =>
      attempt(`${directory} cannot be written`, () => {
        // No other restore is running there: drafts are left from killed processes.
        for (const name of readdirSync(directory)) {
          if (Restored.isDraftName(name)) rmSync(join(directory, name), { recursive: true })
        }
        const draft = join(directory, Restored.draftName(id))
        mkdirSync(draft, { mode: 0o700 })
        return draft
      })
    ),
    draft => Effect.sync(() => rmSync(draft, { recursive: true, force: true }))
  )

const withoutDraft = (draft: string, message: string): string => message.replaceAll(join(draft, "/"), "")

const verifyPart = (part: Part, file: string): Effect.Effect<Verified, BackupFailed> =>
  Effect.mapError(
    CopyPort.verify({ ...part, file }),
    ({ message }) => new BackupFailed({ message: withoutDraft(dirname(file), message) })
  )

/** How long an interruption waits for the end of the current operation of the file system. */
const endTimeout = Duration.seconds(1)

/**
 * Copies a file into a new one and flushes it. Returns its SHA-256 in hexadecimal digits. `onBytes` is called with the
 * size of each portion. After a failure the caller removes the new file.
 */
export const copyFile = (
  from: string,
  to: string,
  onBytes: (bytes: number) => void
): Effect.Effect<string, BackupFailed> =>
  Effect.async((resume, signal) => {
    const hash = createHash("sha256")
    const digesting = async function* (chunks: AsyncIterable<Buffer>) {
      for await (const chunk of chunks) {
        hash.update(chunk)
        onBytes(chunk.length)
        yield chunk
      }
    }
    const source = createReadStream(from, { highWaterMark: MiB })
    const target = createWriteStream(to, { flags: "wx", mode: 0o600, flush: true })
    const done = pipeline(source, digesting, target, { signal }).then(
      () => resume(Effect.succeed(hash.digest("hex"))),
      error => resume(new BackupFailed({ message: `${from} cannot be copied: ${messageOf(error)}` }))
    )
    // A stalled disk must not delay the end of the command.
    return Effect.asVoid(
      Supervision.within(
        endTimeout,
        Effect.promise(() => done)
      )
    )
  })

const take = (draft: string, { from, part, requireWhole }: BackupPart, onBytes: (bytes: number) => void) =>
  Effect.flatMap(copyFile(from, join(draft, part.file), onBytes), requireWhole)

/** Migrates the databases to the newest schema, and gives their logs new epochs. Returns the epoch. */
const renew = (draft: string, parts: ReadonlyArray<BackupPart>): Effect.Effect<string, BackupFailed> =>
  Effect.gen(function* () {
    const epoch = yield* Opening.renewEpoch(draft, store.format)
    if (parts.some(({ part }) => part === histories)) {
      yield* Effect.scoped(
        Effect.flatMap(Opening.open(draft, histories.format), ({ file }) =>
          attempt(`${histories.file} cannot be written`, () => {
            const db = openForWriting(file, histories.format)
            try {
              db.exec("UPDATE histories SET epoch = lower(hex(randomblob(16)))")
            } finally {
              closeLast(db)
            }
          })
        )
      )
    }
    return epoch
  }).pipe(
    Effect.mapError(({ message }) => new BackupFailed({ message: withoutDraft(draft, message) })),
    // The warning asks readers of the log to list again. Here are no readers.
    Logger.withMinimumLogLevel(LogLevel.None)
  )

const asideName = (now: number): string => `before-restore-${new Date(now).toISOString().replace(/[:.]/g, "-")}`

const put = (directory: string, draft: string, aside: string): Effect.Effect<void, BackupFailed> =>
  Effect.try({
    try: () => Restored.put(directory, draft, aside),
    catch: error => {
      const message = `${directory} cannot be written: ${messageOf(error)}`
      if (!(error instanceof Restored.Unfinished)) return new BackupFailed({ message })
      const hint = "Once the cause is gone, the next start of the service finishes it."
      return new BackupFailed({ message, hint, isRestored: true })
    }
  })

/**
 * Restores a backup. If it fails or is interrupted, or the process is killed, the data directory has either its
 * previous content or the restored one. In the latter case the next start of the service, or the next restore, finishes
 * it.
 */
export const restore = ({
  backup,
  directory,
  force,
  report = () => {}
}: Options): Effect.Effect<RestoredStore, BackupFailed> =>
  Effect.gen(function* () {
    const parts = yield* look(backup, directory)
    yield* own(directory)
    const old = yield* attempt(`${directory} cannot be read`, () => Restored.replacedIn(directory))
    if (old.length > 0 && !force) {
      return yield* refuse(
        `${directory} is not empty: it has ${old.at(-1)}`,
        "--force moves the existing files aside; nothing is deleted."
      )
    }
    const total = parts.reduce((sum, { bytes }) => sum + bytes, 0)
    yield* attempt(`${directory} cannot be used`, () => requireRoom(directory, total, 16 * MiB))
    const draft = yield* openDraft(directory)
    let done = 0
    yield* Effect.forEach(parts, part =>
      take(draft, part, bytes => {
        done += bytes
        report({ phase: "copy", done, total })
      })
    )
    report({ phase: "verify", done: 0, total })
    const verified = yield* Effect.forEach(parts, ({ part }) => verifyPart(part, join(draft, part.file)))
    report({ phase: "verify", done: total, total })
    const [ofStore, ofSessions] = verified
    const epoch = yield* renew(draft, parts)
    const now = yield* Clock.currentTimeMillis
    const aside = yield* attempt(`${directory} cannot be written`, () => {
      for (const { name } of [store, histories]) {
        rmSync(join(draft, `${name}.lock`), { force: true })
        Restored.giveToOwner(directory, join(directory, `${name}.lock`))
      }
      return Restored.freeName(directory, asideName(now))
    })
    yield* put(directory, draft, aside)
    const { count: entries, epoch: epochBefore, lastSeq } = ofStore!
    const sessions = ofSessions?.count ?? null
    return {
      ...{ backup, directory, entries, lastSeq, epochBefore, epoch, sessions },
      aside: old.length === 0 ? null : join(directory, aside)
    }
  }).pipe(Effect.scoped)
