/** How far an import of a file has come, in a file beside it, so that a later run goes on from there. */
import { createHash } from "node:crypto"
import { open, readFile, rename, rm, writeFile } from "node:fs/promises"
import { Effect, Either, Schema } from "effect"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"

const Checkpoint = Schema.Struct({
  /** What was imported, and where to. */
  job: Schema.String,
  /** Bytes of the file that are done. */
  offset: Schema.NonNegativeInt,
  line: Schema.NonNegativeInt
})

/** How far an import has come. */
export interface Checkpoint extends Schema.Schema.Type<typeof Checkpoint> {}

/** The name of the checkpoint of a file. */
export const pathOf = (file: string): string => `${file}.import`

const decode = Schema.decodeUnknownEither(Schema.parseJson(Checkpoint))

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

const isMissing = (error: unknown): boolean => error instanceof Error && "code" in error && error.code === "ENOENT"

const fingerprintBytes = 64 * 1024

/**
 * Names an import: the file, by its size and its beginning, and what is done with it. Lines may not be added to a file
 * between two runs, as the last one may have been half a line.
 */
export const jobOf = async (file: string, purpose: ReadonlyArray<string>): Promise<string> => {
  const handle = await open(file)
  try {
    const { size } = await handle.stat()
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(fingerprintBytes), 0, fingerprintBytes, 0)
    const hash = createHash("sha256").update(JSON.stringify([size, ...purpose]))
    return hash.update(buffer.subarray(0, bytesRead)).digest("hex")
  } finally {
    await handle.close()
  }
}

/** What to do with a checkpoint that an earlier run has left. */
export type Manner = "refuse" | "resume" | "restart"

/** Where to begin. */
export const begin = (file: string, job: string, manner: Manner): Effect.Effect<Checkpoint, CommandFailed> =>
  Effect.gen(function* () {
    const path = pathOf(file)
    const nothing: Checkpoint = { job, offset: 0, line: 0 }
    const text = yield* Effect.tryPromise({ try: () => readFile(path, "utf8"), catch: error => error }).pipe(
      Effect.catchAll(error =>
        isMissing(error) ? Effect.succeed(undefined) : failed(`${path} cannot be read: ${messageOf(error)}`)
      )
    )
    if (text === undefined || manner === "restart") return nothing
    const found = decode(text)
    const startOver = `Remove it, or start over with --restart.`
    if (Either.isLeft(found)) return yield* wrong(`${path} is not the checkpoint of an import`, startOver)
    if (manner === "refuse") {
      return yield* wrong(
        `An import of this file has come to line ${found.right.line}`,
        "Go on with --resume, or start over with --restart."
      )
    }
    return found.right.job === job
      ? found.right
      : yield* wrong(`${path} is of another import: the file, the service or the options were others`, startOver)
  })

/** Records how far it has come. */
export const save = (file: string, checkpoint: Checkpoint): Effect.Effect<void, CommandFailed> =>
  Effect.tryPromise({
    try: async () => {
      const path = pathOf(file)
      await writeFile(`${path}.new`, JSON.stringify(checkpoint), { mode: 0o600 })
      await rename(`${path}.new`, path)
    },
    catch: error =>
      failed(`${pathOf(file)} cannot be written: ${messageOf(error)}`, "Import from standard input to do without it.")
  })

/** Removes it, at the end. */
export const remove = (file: string): Effect.Effect<void> =>
  Effect.ignore(Effect.tryPromise(() => rm(pathOf(file), { force: true })))
