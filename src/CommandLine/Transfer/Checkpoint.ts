/** How far an import of a file has come, in a file beside it, so that a later run goes on from there. */
import { createHash, type Hash } from "node:crypto"
import { createReadStream } from "node:fs"
import { readFile, rename, rm, stat, writeFile } from "node:fs/promises"
import { Effect, Either, Schema } from "effect"
import { messageOf } from "../../ErrorMessage.ts"
import { hasCode } from "../../Storage/FileSystem.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import type { TextLine } from "./Lines.ts"
import { choose, type Manner, startOver } from "./Resumption.ts"

const Recorded = Schema.Struct({
  /** Where it was imported to, and how. */
  job: Schema.String,
  /** The SHA-256 of the bytes of the file that are done. */
  content: Schema.String,
  /** Their number. */
  offset: Schema.NonNegativeInt,
  line: Schema.NonNegativeInt
})

/** Where an import begins, and how it records what is done. */
export interface Checkpoint {
  /** Bytes of the file that an earlier run has done. */
  readonly offset: number
  readonly line: number
  /** Records that the next lines are done. */
  readonly save: (lines: ReadonlyArray<TextLine>) => Effect.Effect<void, CommandFailed>
  /** Removes the record, at the end. */
  readonly remove: Effect.Effect<void>
}

/** That of standard input: nothing is recorded. */
export const none: Checkpoint = { offset: 0, line: 0, save: () => Effect.void, remove: Effect.void }

const decode = Schema.decodeUnknownEither(Schema.parseJson(Recorded))

const digestOf = (hash: Hash): string => hash.copy().digest("hex")

/**
 * The hash of the first bytes of a file, or `undefined` where they are not whole lines any more: the last of them may
 * have been half a line to which more was added.
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

/** What an earlier run has recorded, if that is to be gone on with. */
const earlier = (path: string, manner: Manner) =>
  Effect.gen(function* () {
    const text = yield* Effect.tryPromise({ try: () => readFile(path, "utf8"), catch: error => error }).pipe(
      Effect.catchAll(error =>
        hasCode(error, "ENOENT") ? Effect.succeed(undefined) : failed(`${path} cannot be read: ${messageOf(error)}`)
      )
    )
    if (text === undefined || manner === "restart") return undefined
    const found = decode(text)
    if (Either.isLeft(found)) return yield* wrong(`${path} is not the checkpoint of an import`, startOver)
    if (manner === "resume") return found.right
    return yield* wrong(`An import of this file has come to line ${found.right.line}`, choose)
  })

/**
 * Where to begin. `purpose` is what is done with the file. What follows the lines that are done may have changed since,
 * as where a line was corrected.
 */
export const begin = (
  file: string,
  purpose: ReadonlyArray<string>,
  manner: Manner
): Effect.Effect<Checkpoint, CommandFailed> =>
  Effect.gen(function* () {
    const path = `${file}.import`
    const job = createHash("sha256").update(JSON.stringify(purpose)).digest("hex")
    const found = yield* earlier(path, manner)
    if (found !== undefined && found.job !== job) {
      return yield* wrong(`${path} is of another import: the service or the options were others`, startOver)
    }
    const { line, offset } = found ?? { line: 0, offset: 0 }
    const hash = yield* Effect.tryPromise({
      try: () => hashOf(file, offset),
      catch: error => wrong(`${file} cannot be read: ${messageOf(error)}`)
    })
    if (hash === undefined || (found !== undefined && digestOf(hash) !== found.content)) {
      return yield* wrong(`${path} is of another import: the first ${line} lines of the file were others`, startOver)
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
            failed(`${path} cannot be written: ${messageOf(error)}`, "Import from standard input to do without it.")
        }),
      remove: Effect.ignore(Effect.tryPromise(() => rm(path, { force: true })))
    }
  })
