/**
 * Copies a file of a backup, and finds out what its bytes are.
 */
import { createHash } from "node:crypto"
import { type FileHandle, open } from "node:fs/promises"
import { Effect } from "effect"
import { BackupFailed } from "./BackupFailed.ts"

const chunkBytes = 1024 * 1024

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
 * Copies a file into a new one, which is flushed, and returns the SHA-256 of it in hexadecimal digits. `onBytes` is told
 * of each portion. What was written when it fails is left to the caller to remove.
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
    return Effect.promise(() => done)
  })
