/**
 * Copies a file of a backup and computes its digest.
 */
import { createHash } from "node:crypto"
import { type FileHandle, open } from "node:fs/promises"
import { Duration, Effect } from "effect"
import { MiB } from "../../Bytes.ts"
import * as Supervision from "../../Supervision.ts"
import { BackupFailed } from "./BackupFailed.ts"

/** The bytes of one read. */
const chunkBytes = MiB

/** How long an interruption waits for the end of the current operation of the file system. */
const endTimeout = Duration.seconds(1)

const copyBytes = async (from: FileHandle, to: FileHandle, onBytes: (bytes: number) => void): Promise<string> => {
  const hash = createHash("sha256")
  const buffer = Buffer.allocUnsafe(chunkBytes)
  for (;;) {
    const { bytesRead } = await from.read(buffer, 0, chunkBytes)
    if (bytesRead === 0) break
    const chunk = buffer.subarray(0, bytesRead)
    hash.update(chunk)
    await to.writeFile(chunk)
    onBytes(bytesRead)
  }
  await to.sync()
  return hash.digest("hex")
}

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
    const work = async (): Promise<string> => {
      const source = await open(from)
      try {
        signal.throwIfAborted()
        const target = await open(to, "wx", 0o600)
        try {
          return await copyBytes(source, target, bytes => {
            signal.throwIfAborted()
            onBytes(bytes)
          })
        } finally {
          await target.close()
        }
      } finally {
        await source.close()
      }
    }
    const done = work().then(
      digest => resume(Effect.succeed(digest)),
      error => resume(new BackupFailed({ message: `${from} cannot be copied: ${error.message ?? error}` }))
    )
    // A stalled disk must not delay the end of the command.
    return Effect.asVoid(
      Supervision.within(
        endTimeout,
        Effect.promise(() => done)
      )
    )
  })
