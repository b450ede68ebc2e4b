/**
 * Backups of a store that is open: copies in files beside its database, each removed once it has been sent.
 */
import { readdirSync, rmSync, statSync } from "node:fs"
import { open } from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import { type Context, Effect, Option, Stream } from "effect"
import { MiB } from "../../../Bytes.ts"
import { BackupRefused, type Store, StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import { Limits } from "../../../Limits.ts"
import { randomHex } from "../../../RandomHex.ts"
import type { Format } from "../Database/Connection.ts"
import { type Copied, type CopyRequest, type Kind, requireRoom, toCopyError } from "./Copying.ts"
import * as CopyPort from "./CopyPort.ts"

/** What a thread is told of a format. */
export const kindOf = ({ applicationId, log, schemaVersion }: Format): Kind => ({
  applicationId,
  schemaVersion,
  lastSeq: log?.lastSeq
})

/** What the disk must have left for the store itself. */
const bytesLeft = 64 * MiB

/** While the store is copied its write-ahead log may become this many times as large as it may otherwise. */
const logFactor = 4

/** When another client may try again. */
const retryAfterSeconds = 10

/** What is read from a copy at a time. */
const chunkBytes = MiB / 4

/** What names of copies begin with; 16 hexadecimal digits and an end follow. */
const prefixOf = (file: string): string => `${basename(file).replace(/\.db$/, "")}.backup-`

const restOfName = /^[0-9a-f]{16}\.tmp(?:-journal|-wal|-shm)?$/

/** The files that SQLite may make for one. */
const filesOf = (copy: string): ReadonlyArray<string> => ["", "-journal", "-wal", "-shm"].map(end => `${copy}${end}`)

/** Removes copies that a process has left that was killed. */
export const removeLeftovers = (file: string): void => {
  const directory = dirname(file)
  const prefix = prefixOf(file)
  for (const name of readdirSync(directory)) {
    if (name.startsWith(prefix) && restOfName.test(name.slice(prefix.length))) {
      rmSync(join(directory, name), { force: true })
    }
  }
}

const unreadable = (error: unknown) => new StoreUnavailable({ reason: `the copy cannot be read: ${error}` })

/** The bytes of a file, read as they are wanted. */
const contentOf = (file: string): Stream.Stream<Uint8Array, StoreUnavailable> =>
  Stream.unwrapScoped(
    Effect.map(
      Effect.acquireRelease(Effect.tryPromise({ try: () => open(file), catch: unreadable }), handle =>
        Effect.promise(() => handle.close().catch(() => undefined))
      ),
      handle =>
        Stream.repeatEffectOption(
          Effect.tryPromise({
            // Each chunk has bytes of its own: it may wait for the client while the next one is read.
            try: () => handle.read(Buffer.allocUnsafeSlow(chunkBytes), 0, chunkBytes),
            catch: error => Option.some(unreadable(error))
          }).pipe(
            Effect.flatMap(({ buffer, bytesRead }) =>
              bytesRead === 0 ? Effect.fail(Option.none()) : Effect.succeed(buffer.subarray(0, bytesRead))
            )
          )
        )
    )
  )

const toFailure = ({
  message,
  reason
}: Pick<CopyPort.CopyFailed, "message" | "reason">): BackupRefused | StoreUnavailable =>
  reason === "NoRoom" ? new BackupRefused({ cause: "NoRoom", message }) : new StoreUnavailable({ reason: message })

/** A database of which backups are made. */
export interface Options {
  readonly file: string
  readonly format: Format
  /** The epoch of the log that is served. */
  readonly epoch: () => string
  /** Whether copies are made in a thread. */
  readonly writer: "thread" | "inline"
}

/** Makes backups of a database, one at a time. */
export const make = ({
  epoch: epochNow,
  file,
  format,
  writer
}: Options): Effect.Effect<Context.Tag.Service<Store>["backup"]> =>
  Effect.gen(function* () {
    const { walBytes } = yield* Limits
    let isBusy = false
    const copy = (request: CopyRequest) => (writer === "thread" ? CopyPort.copy(request) : CopyPort.copyInline(request))
    const turn = Effect.acquireRelease(
      Effect.suspend(() => {
        if (isBusy) return new StoreBusy({ retryAfterSeconds })
        isBusy = true
        return Effect.void
      }),
      () =>
        Effect.sync(() => {
          isBusy = false
        })
    )
    const makeCopy = Effect.gen(function* () {
      const target = yield* Effect.acquireRelease(
        Effect.map(randomHex(2), id => join(dirname(file), `${prefixOf(file)}${id}.tmp`)),
        target =>
          Effect.sync(() => {
            for (const name of filesOf(target)) rmSync(name, { force: true })
          })
      )
      const source = { file, kind: kindOf(format), target }
      const [copied] = (yield* Effect.mapError(
        copy({ sources: [source], maxLogBytes: logFactor * walBytes, bytesLeft }),
        toFailure
      )) as readonly [Copied]
      const { bytes, epoch, lastSeq, sha256 } = copied
      // Another file was put in the place of the database, and is not being served yet.
      if (epoch !== epochNow()) return yield* new StoreUnavailable({ reason: `another file has replaced ${file}` })
      return { bytes, epoch, lastSeq, sha256, content: contentOf(target) }
    })
    // The copy has the bytes of the snapshot, of which the newest may be in the write-ahead log only.
    const requireCopiable = Effect.try({
      try: () => requireRoom(dirname(file), statSync(file).size, bytesLeft),
      catch: error => toFailure(toCopyError(error))
    })
    return Effect.as(Effect.zipRight(turn, requireCopiable), { copy: makeCopy })
  })
