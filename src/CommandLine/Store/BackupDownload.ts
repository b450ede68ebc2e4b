/** Downloads a backup of the store from a service and verifies it. It needs the native module of SQLite. */
import { createHash } from "node:crypto"
import { Duration, Effect, Stream } from "effect"
import { messageOf } from "../../base/ErrorMessage.ts"
import * as Client from "../../Client/Effect/Client.ts"
import { store } from "../../Storage/Backup/Manifest.ts"
import * as Target from "../../Storage/Backup/Target.ts"
import { BackupFailed, type Made, type Report } from "../../Storage/Backup.ts"
import * as CopyPort from "../../Storage/Sqlite/Copy/CopyPort.ts"
import { CommandFailed, exitCodes, failed } from "../CommandFailed.ts"
import type { Connection } from "../Connection.ts"
import { failureOf } from "../Service.ts"
import * as OutputFile from "../Transfer/OutputFile.ts"

/** The target file, whether it may be replaced, and the receiver of progress. */
export interface Options {
  readonly target: string
  readonly force: boolean
  readonly report: Report
}

/** Pieces of the connection are small, of 64 KiB at most, and so many of them are written together. */
const piecesOfWrite = 16

const incomplete = (connection: Connection, message: string): CommandFailed =>
  new CommandFailed({
    message: `${connection.url}: the backup did not arrive: ${message}`,
    hint: "Try again.",
    exitCode: exitCodes.unavailable
  })

const unwritable =
  (file: string) =>
  (error: unknown): CommandFailed =>
    failed(`There is no backup. ${file} cannot be written: ${messageOf(error)}`)

/** Writes the backup into an empty file, and checks its size and SHA-256. */
const receive = (
  connection: Connection,
  backup: Effect.Effect.Success<ReturnType<Client.Service["backup"]>>,
  file: string,
  report: Report
) =>
  Effect.gen(function* () {
    const { sync, write } = yield* OutputFile.open(file, unwritable(file))
    const hash = createHash("sha256")
    const { bytes, content } = backup
    let done = 0
    yield* content.pipe(
      Stream.mapError(({ message }) => incomplete(connection, message)),
      Stream.map(piece => {
        hash.update(piece)
        done += piece.length
        report({ phase: "copy", done, total: bytes })
        return piece
      }),
      Stream.grouped(piecesOfWrite),
      Stream.runForEach(pieces => write(Buffer.concat([...pieces])))
    )
    if (done !== bytes) return yield* incomplete(connection, `${done} of ${bytes} bytes arrived`)
    if (hash.digest("hex") !== backup.sha256)
      return yield* incomplete(connection, "its SHA-256 is not the one that the service sent")
    yield* sync
  }).pipe(Effect.scoped)

const toFailed = ({ hint, message }: BackupFailed): CommandFailed => failed(`There is no backup. ${message}`, hint)

/** Downloads a backup into a file. After a failure or an interruption no file is left. */
export const download = (
  connection: Connection,
  { force, report, target: path }: Options
): Effect.Effect<Made, CommandFailed> =>
  Effect.gen(function* () {
    const { timeout, token, url } = connection
    const target = yield* Effect.mapError(Target.open({ path, kind: "file", force }), toFailed)
    const { draft } = target
    yield* Effect.try({ try: () => OutputFile.create(draft), catch: unwritable(draft) })
    const client = yield* Client.make({ baseUrl: url, token, timeout })
    const backup = yield* Effect.mapError(client.backup({ timeoutMs: Duration.toMillis(timeout) }), error =>
      error._tag === "InsufficientStorage" ? incomplete(connection, error.message) : failureOf(connection)(error)
    )
    yield* receive(connection, backup, draft, report)
    report({ phase: "verify", done: 0, total: backup.bytes })
    const verified = yield* Effect.mapError(CopyPort.verify({ ...store, file: draft }), ({ message }) =>
      toFailed(new BackupFailed({ message }))
    )
    const { bytes, epoch, lastSeq } = backup
    if (verified.lastSeq !== lastSeq || verified.epoch !== epoch) {
      return yield* incomplete(connection, "it is not the one that the service announced")
    }
    yield* Effect.mapError(target.place, toFailed)
    return { backup: path, bytes, entries: verified.count, lastSeq, epoch, sessions: null }
  }).pipe(Effect.scoped)
