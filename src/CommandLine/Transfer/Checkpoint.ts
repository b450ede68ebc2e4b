/** Records the progress of an import in a file next to the imported one, so that a later run can continue. */
import { createHash, type Hash } from "node:crypto"
import { createReadStream } from "node:fs"
import { readFile, rename, rm, stat, writeFile } from "node:fs/promises"
import { Effect, Either, Schema } from "effect"
import { messageOf } from "../../base/ErrorMessage.ts"
import type { TextLine } from "../../Client/EntryLines.ts"
import { hasCode } from "../../Storage/FileSystem.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"

/** What to do if an earlier run did not finish. */
export type ResumeMode = "refuse" | "resume" | "restart"

/** The hint if an earlier run cannot be continued. */
const startOver = "Remove it, or start over with --restart."

const Recorded = Schema.Struct({
  /** A digest of the service and the options. */
  job: Schema.String,
  /** The SHA-256 of the bytes of the file that are done. */
  content: Schema.String,
  /** Their number. */
  offset: Schema.NonNegativeInt,
  line: Schema.NonNegativeInt
})

/** Where an import starts, and how it records its progress. */
export interface Checkpoint {
  /** Bytes of the file that an earlier run has imported. */
  readonly offset: number
  readonly line: number
  readonly save: (lines: ReadonlyArray<TextLine>) => Effect.Effect<void, CommandFailed>
  /** Removes the record, at the end. */
  readonly remove: Effect.Effect<void>
}

/** The checkpoint of standard input: nothing is recorded. */
export const none: Checkpoint = { offset: 0, line: 0, save: () => Effect.void, remove: Effect.void }

const decode = Schema.decodeUnknownEither(Schema.parseJson(Recorded))

const digestOf = (hash: Hash): string => hash.copy().digest("hex")

/**
 * The hash of the first bytes of a file; `undefined` if they no longer end with a line: the last line was at the end of
 * the file without a line break, and text was appended to it.
 */
const hashOf = async (file: string, bytes: number): Promise<Hash | undefined> => {
  const hash = createHash("sha256")
  if (bytes === 0) return hash
  let last: number | undefined
  for await (const chunk of createReadStream(file, { end: bytes - 1, highWaterMark: 1024 * 1024 })) {
    hash.update(chunk)
    last = chunk.at(-1)
  }
  return last === 10 || (await stat(file)).size === bytes ? hash : undefined
}

/** The record of an earlier run if it is to be continued. */
const readRecord = (path: string, mode: ResumeMode) =>
  Effect.gen(function* () {
    const text = yield* Effect.tryPromise({ try: () => readFile(path, "utf8"), catch: error => error }).pipe(
      Effect.catchAll(error =>
        hasCode(error, "ENOENT") ? Effect.succeed(undefined) : failed(`${path} cannot be read: ${messageOf(error)}`)
      )
    )
    if (text === undefined || mode === "restart") return undefined
    const found = decode(text)
    if (Either.isLeft(found)) return yield* wrong(`${path} is not the checkpoint of an import`, startOver)
    if (mode === "resume") return found.right
    return yield* wrong(
      `An import of this file was interrupted after line ${found.right.line}`,
      "Continue with --resume, or start over with --restart."
    )
  })

/**
 * Opens the checkpoint of a file. `purpose` identifies the service and the options. Lines after those that are done may
 * have changed since the earlier run. Fails if the record belongs to another import, or if `mode` is `refuse` and there
 * is one.
 */
export const open = (
  file: string,
  purpose: ReadonlyArray<string>,
  mode: ResumeMode
): Effect.Effect<Checkpoint, CommandFailed> =>
  Effect.gen(function* () {
    const path = `${file}.import`
    const job = createHash("sha256").update(JSON.stringify(purpose)).digest("hex")
    const found = yield* readRecord(path, mode)
    if (found !== undefined && found.job !== job) {
      return yield* wrong(`${path} belongs to another import: the service or the options differ`, startOver)
    }
    const { line, offset } = found ?? { line: 0, offset: 0 }
    const hash = yield* Effect.tryPromise({
      try: () => hashOf(file, offset),
      catch: error => wrong(`${file} cannot be read: ${messageOf(error)}`)
    })
    if (hash === undefined || (found !== undefined && digestOf(hash) !== found.content)) {
      return yield* wrong(`${path} belongs to another import: the first ${line} lines of the file differ`, startOver)
    }
    const record = async (lines: ReadonlyArray<TextLine>) => {
      for (const { bytes } of lines) hash.update(bytes)
      const { end = offset, number = line } = lines.at(-1) ?? {}
      const recorded: typeof Recorded.Type = { job, content: digestOf(hash), offset: end, line: number }
      await writeFile(`${path}.new`, JSON.stringify(recorded), { mode: 0o600 })
      await rename(`${path}.new`, path)
    }
    return {
      offset,
      line,
      save: lines =>
        Effect.tryPromise({
          try: () => record(lines),
          catch: error =>
            failed(
              `${path} cannot be written: ${messageOf(error)}`,
              "An import from standard input needs no such file."
            )
        }),
      remove: Effect.ignore(Effect.tryPromise(() => rm(path, { force: true })))
    }
  })
