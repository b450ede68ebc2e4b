/**
 * An unfinished export, in a directory next to the file, so that a later run can continue it. The file gets its name once
 * it is complete and on disk.
 */
import {
  createReadStream,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmdirSync,
  rmSync,
  truncateSync,
  writeFileSync
} from "node:fs"
import { dirname, join } from "node:path"
import { Effect, Either, Option, Schema, type Scope } from "effect"
import { linesOf } from "../../Client/EntryLines.ts"
import { claimName, flushDirectory, hasCode, idOf, makeFile } from "../../Storage/FileSystem.ts"
import { type CommandFailed, wrong } from "../CommandFailed.ts"
import * as PrivateFile from "../Store/PrivateFile.ts"
import { isNext, type Position } from "./ExportJob.ts"
import { choose, type ResumeMode, startOver } from "./Resumption.ts"

const Recorded = Schema.Struct({
  /** The address of the service. */
  url: Schema.String,
  namespaces: Schema.Array(Schema.String),
  prefix: Schema.String,
  /** The epoch of the change log. */
  epoch: Schema.String
})

/** The source of an export: the service, what is selected, and the log. */
export type Origin = typeof Recorded.Type

/** An export to a file. */
export interface PartialExport {
  /** How many entries an earlier run has written. */
  readonly entries: number
  /** The last of them. */
  readonly last: Position | undefined
  /** Appends lines. */
  readonly append: (text: string) => Effect.Effect<void, CommandFailed>
  /** Flushes the file to disk and gives it its name. */
  readonly complete: Effect.Effect<void, CommandFailed>
}

/** The target file and the source of an export. */
export interface Options {
  readonly path: string
  readonly origin: Origin
  readonly mode: ResumeMode
  /** Whether an existing file is replaced. */
  readonly mayReplace: boolean
}

const decode = Schema.decodeUnknownEither(Schema.parseJson(Recorded))

/** The files of the directory. */
const names = { entries: "entries.ndjson", record: "export.json", lock: "lock" } as const

const alreadyExists = (path: string): CommandFailed => wrong(`${path} exists already`, "--force replaces it.")

const find = (path: string) => lstatSync(path, { throwIfNoEntry: false })

/** The file to which a path leads through symbolic links; the path itself if it does not exist. */
const target = (path: string): string => {
  if (find(path) === undefined) return path
  const real = realpathSync(path)
  if (!lstatSync(real).isFile()) throw new Error("it is not a file")
  return real
}

/** Makes the directory, or finds that of an earlier run. */
const makeDirectory = (directory: string): Effect.Effect<void, CommandFailed> => {
  try {
    mkdirSync(directory, { mode: 0o700 })
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error
    const isOurs =
      lstatSync(directory).isDirectory() &&
      readdirSync(directory).every(name => Object.values<string>(names).includes(name))
    if (!isOurs) return wrong(`${directory} exists already, and does not belong to an export`, "Give another name.")
  }
  return Effect.void
}

/** Acquires the lock of the directory: one process at a time writes to it. */
const lock = (path: string, directory: string): Effect.Effect<void, CommandFailed, Scope.Scope> =>
  Effect.gen(function* () {
    // It needs the native module of SQLite.
    const { Lock } = yield* Effect.promise(() => import("../../Storage/DirectoryLock.ts"))
    const file = join(directory, names.lock)
    const busy = wrong(`Another export to ${path} is in progress`, "Wait until it has ended, or give another name.")
    const take = () => {
      makeFile(file)
      const id = idOf(file)
      const acquired = new Lock(file)
      if (idOf(file) === id) return Effect.succeed(acquired)
      // The other export has ended and removed the directory.
      acquired.close()
      return busy
    }
    const acquire = Effect.try({
      try: take,
      catch: error => (hasCode(error, "SQLITE_BUSY", "ENOENT") ? busy : PrivateFile.unwritable(path)(error))
    })
    yield* Effect.acquireRelease(Effect.flatten(acquire), acquired => Effect.sync(() => acquired.close()))
  })

/** How another export differs from this one; `undefined` if it is the same. */
const differenceOf = (found: Origin, origin: Origin): string | undefined => {
  if (found.url !== origin.url) return `the service was ${found.url}`
  if (JSON.stringify(found.namespaces) !== JSON.stringify(origin.namespaces)) {
    return `the namespaces were ${found.namespaces.length === 0 ? "all" : found.namespaces.join(", ")}`
  }
  if (found.prefix !== origin.prefix) return `the prefix was ${JSON.stringify(found.prefix)}`
  return found.epoch === origin.epoch ? undefined : "the store has been restored or replaced since then"
}

/** Checks that an earlier run had the same origin. */
const requireSame = (directory: string, origin: Origin): Effect.Effect<void, CommandFailed> => {
  const record = join(directory, names.record)
  const found = decode(find(record) === undefined ? "" : readFileSync(record, "utf8"))
  if (Either.isLeft(found)) return wrong(`${directory} has no record of its export`, startOver)
  const difference = differenceOf(found.right, origin)
  return difference === undefined
    ? Effect.void
    : wrong(`${directory} belongs to another export: ${difference}`, startOver)
}

/** The entry of a line, without its value. It is many times faster than the reader of imports, which keeps values. */
const readPosition = Schema.decodeUnknownOption(
  Schema.parseJson(Schema.Struct({ namespace: Schema.String, key: Schema.String }))
)

/** The valid part of an unfinished export. */
interface Kept {
  readonly entries: number
  readonly bytes: number
  readonly last: Position | undefined
}

const nothing: Kept = { entries: 0, bytes: 0, last: undefined }

/**
 * The longest start of a file in which each line is the next entry of the export. The last line may be incomplete, and a
 * power failure may have damaged more. What follows is exported again.
 */
const readKept = async (file: string, origin: Origin, signal: AbortSignal): Promise<Kept> => {
  let kept = nothing
  try {
    const chunks = createReadStream(file, { highWaterMark: 1024 * 1024, signal })
    for await (const { bytes, end, number, text } of linesOf(chunks)) {
      const last = text === undefined ? undefined : Option.getOrUndefined(readPosition(text))
      if (last === undefined || bytes.at(-1) !== 10 || !isNext(origin, kept.last, last)) break
      kept = { entries: number, bytes: end, last }
    }
  } catch (error) {
    // An export has no line that is too long.
    if (!(error instanceof RangeError)) throw error
  }
  return kept
}

/** Gives the complete file its name. */
const publish = (entries: string, final: string, mayReplace: boolean): void => {
  if (mayReplace) renameSync(entries, final)
  else claimName(entries, final)
  try {
    flushDirectory(dirname(final))
  } catch (error) {
    // Some file systems do not synchronize directories.
    if (!hasCode(error, "EINVAL", "ENOTSUP", "EPERM")) throw error
  }
}

/** Removes the directory. */
const remove = (directory: string): void => {
  for (const name of [names.entries, names.record, names.lock]) rmSync(join(directory, name), { force: true })
  rmdirSync(directory)
}

/**
 * Starts an export, or continues one. When the scope closes, an unfinished export with at least one entry is kept. Fails
 * if the file exists and may not be replaced, if another process exports to it, or if the earlier export is another one.
 */
export const open = ({
  mayReplace,
  mode,
  origin,
  path
}: Options): Effect.Effect<PartialExport, CommandFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const failure = (error: unknown): CommandFailed =>
      !mayReplace && hasCode(error, "EEXIST") ? alreadyExists(path) : PrivateFile.unwritable(path)(error)
    const attempt = <A>(work: () => A) => Effect.try({ try: work, catch: failure })
    const final = yield* attempt(() => (mayReplace ? target(path) : path))
    if (!mayReplace && (yield* attempt(() => find(path) !== undefined))) return yield* alreadyExists(path)
    const directory = `${final}.export`
    const [entries, record] = [join(directory, names.entries), join(directory, names.record)]
    yield* Effect.flatten(attempt(() => makeDirectory(directory)))
    yield* lock(path, directory)
    const sizeOf = (file: string) => find(file)?.size ?? 0
    // The earlier run was killed after the file had got its name.
    yield* attempt(() => sizeOf(entries) > 0 && idOf(entries) === idOf(final) && rmSync(entries))
    const isUnfinished = yield* attempt(() => sizeOf(entries) > 0)
    if (isUnfinished && mode === "refuse") return yield* wrong(`An export to ${path} was not finished`, choose)
    const isResumed = isUnfinished && mode === "resume"
    if (isResumed) yield* Effect.flatten(attempt(() => requireSame(directory, origin)))
    const kept = isResumed
      ? yield* Effect.tryPromise({ try: signal => readKept(entries, origin, signal), catch: failure })
      : nothing
    let isKept = kept.entries > 0
    yield* Effect.addFinalizer(() => (isKept ? Effect.void : Effect.ignore(Effect.try(() => remove(directory)))))
    yield* attempt(() => {
      if (isResumed) return truncateSync(entries, kept.bytes)
      rmSync(entries, { force: true })
      PrivateFile.create(entries)
      writeFileSync(record, JSON.stringify(origin), { mode: 0o600, flush: true })
    })
    const file = yield* PrivateFile.open(entries, failure)
    return {
      entries: kept.entries,
      last: kept.last,
      append: text =>
        Effect.tap(file.write(text), () => {
          isKept = true
        }),
      complete: Effect.zipRight(
        file.sync,
        attempt(() => {
          publish(entries, final, mayReplace)
          isKept = false
        })
      )
    }
  })
