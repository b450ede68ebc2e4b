/** Backups of a store that is open: copies in files next to its database. Each copy is removed after it was sent. */
import { readdirSync, rmSync, statSync } from "node:fs"
import { open } from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import { type Context, Effect, Option, Stream } from "effect"
import { constVoid } from "effect/Function"
import { MiB } from "../../../base/Bytes.ts"
import { Limits } from "../../../base/Limits.ts"
import { randomHex } from "../../../base/RandomHex.ts"
import { BackupRefused, type Store, StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import type { Format } from "../Database/Connection.ts"
import { type Copied, type CopyRequest, requireRoom } from "./Copying.ts"
import * as CopyPort from "./CopyPort.ts"
import { type CopyError, toCopyError } from "./Verification.ts"

/** The free bytes that the disk must have left for the store itself. */
const bytesLeft = 64 * MiB

/** The factor by which the write-ahead log may exceed its usual limit while the store is copied. */
const logFactor = 4

const retryAfterSeconds = 10

const chunkBytes = MiB / 4

/** The prefix of the names of copies. 16 hexadecimal digits and a suffix follow. */
const prefixOf = (file: string): string => `${basename(file).replace(/\.db$/, "")}.backup-`

const restOfName = /^[0-9a-f]{16}\.tmp(?:-journal|-wal|-shm)?$/

const filesOf = (copy: string): ReadonlyArray<string> => ["", "-journal", "-wal", "-shm"].map(end => `${copy}${end}`)

/** Removes copies of a process that was killed. */
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

/** Opens a copy, and closes it without waiting: a stalled disk does not delay the end of the scope. */
const opened = (file: string) =>
  Effect.acquireRelease(Effect.tryPromise({ try: () => open(file), catch: unreadable }), handle =>
    Effect.sync(() => void handle.close().catch(constVoid))
  )

/** The bytes of a file, read on demand. */
const contentOf = (file: string): Stream.Stream<Uint8Array, StoreUnavailable> =>
  Stream.unwrapScoped(
    Effect.map(opened(file), handle =>
      Stream.repeatEffectOption(
        Effect.tryPromise({
          // Each chunk has its own bytes: it may wait for the client while the next one is read.
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

const toFailure = ({ message, reason }: CopyError): BackupRefused | StoreUnavailable =>
  reason === "NoRoom" ? new BackupRefused({ cause: "NoRoom", message }) : new StoreUnavailable({ reason: message })

export interface Options {
  readonly file: string
  readonly format: Format
  /** The epoch of the log that is being served. */
  readonly epoch: () => string
  readonly writer: "thread" | "inline"
}

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
      const [copied] = (yield* Effect.mapError(
        copy({ sources: [{ file, format, target }], maxLogBytes: logFactor * walBytes, bytesLeft }),
        toFailure
      )) as readonly [Copied]
      const { bytes, epoch, lastSeq, sha256 } = copied
      // Another file has replaced the database, and is not being served yet.
      if (epoch !== epochNow()) return yield* new StoreUnavailable({ reason: `another file has replaced ${file}` })
      return { bytes, epoch, lastSeq, sha256, content: contentOf(target) }
    })
    // A copy has the bytes of the snapshot. The newest of them may be in the write-ahead log only.
    const requireCopiable = Effect.try({
      try: () => requireRoom(dirname(file), statSync(file).size, bytesLeft),
      catch: error => toFailure(toCopyError(error))
    })
    return Effect.as(Effect.zipRight(turn, requireCopiable), { copy: makeCopy })
  })
