/**
 * What an export has written of a file, in a directory beside it, so that a later run goes on from there. The file has
 * its name only once it is complete and on disk.
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
import { claimName, flushDirectory, hasCode, idOf, makeFile } from "../../Storage/FileSystem.ts"
import { type CommandFailed, wrong } from "../CommandFailed.ts"
import * as PrivateFile from "../Store/PrivateFile.ts"
import { isNext, type Position } from "./ExportJob.ts"
import { lines } from "./Lines.ts"
import { choose, type Manner, startOver } from "./Resumption.ts"

const Recorded = Schema.Struct({
  /** The address of the service. */
  url: Schema.String,
  namespaces: Schema.Array(Schema.String),
  prefix: Schema.String,
  /** The log of the service. */
  epoch: Schema.String
})

/** What is exported, and where from. */
export type Origin = typeof Recorded.Type

/** An export to a file. */
export interface PartialExport {
  /** How many entries an earlier run has written. */
  readonly entries: number
  /** The last one of them. */
  readonly last: Position | undefined
  /** Writes lines. */
  readonly append: (text: string) => Effect.Effect<void, CommandFailed>
  /** Gives the file its name. */
  readonly complete: Effect.Effect<void, CommandFailed>
}

export interface Options {
  readonly path: string
  readonly origin: Origin
  readonly manner: Manner
  /** Whether a complete file that is there is replaced. */
  readonly mayReplace: boolean
}

const decode = Schema.decodeUnknownEither(Schema.parseJson(Recorded))

/** The names in the directory. */
const names = { entries: "entries.ndjson", record: "export.json", lock: "lock" } as const

const isThere = (path: string): CommandFailed => wrong(`${path} is there already`, "--force replaces it.")

const find = (path: string) => lstatSync(path, { throwIfNoEntry: false })

/** The file that a path leads to, through symbolic links; the path itself where there is none. */
const target = (path: string): string => {
  if (find(path) === undefined) return path
  const real = realpathSync(path)
  if (!lstatSync(real).isFile()) throw new Error("it is not a file")
  return real
}

/** Makes the directory, or finds that of an earlier run. */
const makePlace = (place: string): Effect.Effect<void, CommandFailed> => {
  try {
    mkdirSync(place, { mode: 0o700 })
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error
    const isOurs =
      lstatSync(place).isDirectory() && readdirSync(place).every(name => Object.values<string>(names).includes(name))
    if (!isOurs) return wrong(`${place} is there already, and is not of an export`, "Give another name.")
  }
  return Effect.void
}

/** Takes the lock by which one process at a time writes to the directory. */
const lock = (path: string, place: string): Effect.Effect<void, CommandFailed, Scope.Scope> =>
  Effect.gen(function* () {
    // It needs the native module of SQLite.
    const { Lock } = yield* Effect.promise(() => import("../../Storage/DirectoryLock.ts"))
    const file = join(place, names.lock)
    const busy = wrong(`Another export to ${path} is under way`, "Wait for its end, or give another name.")
    const take = () => {
      makeFile(file)
      const id = idOf(file)
      const held = new Lock(file)
      if (idOf(file) === id) return Effect.succeed(held)
      // The other one ended, and has removed the directory.
      held.close()
      return busy
    }
    const taken = Effect.try({
      try: take,
      catch: error => (hasCode(error, "SQLITE_BUSY", "ENOENT") ? busy : PrivateFile.unwritable(path)(error))
    })
    yield* Effect.acquireRelease(Effect.flatten(taken), held => Effect.sync(() => held.close()))
  })

/** What another export was, as far as it was not this one. */
const differenceOf = (found: Origin, origin: Origin): string | undefined => {
  if (found.url !== origin.url) return `the service was ${found.url}`
  if (JSON.stringify(found.namespaces) !== JSON.stringify(origin.namespaces)) {
    return `the namespaces were ${found.namespaces.length === 0 ? "all" : found.namespaces.join(", ")}`
  }
  if (found.prefix !== origin.prefix) return `the prefix was ${JSON.stringify(found.prefix)}`
  return found.epoch === origin.epoch
    ? undefined
    : "the log was another one, as the store has been restored or replaced since"
}

/** Checks that an earlier run was of the same export. */
const requireSame = (place: string, origin: Origin): Effect.Effect<void, CommandFailed> => {
  const record = join(place, names.record)
  const found = decode(find(record) === undefined ? "" : readFileSync(record, "utf8"))
  if (Either.isLeft(found)) return wrong(`${place} does not tell which export it is of`, startOver)
  const difference = differenceOf(found.right, origin)
  return difference === undefined ? Effect.void : wrong(`${place} is of another export: ${difference}`, startOver)
}

/**
 * Which entry a line is, if it is one. The reader of imports, which keeps the text of values, takes many times as long.
 */
const readPosition = Schema.decodeUnknownOption(
  Schema.parseJson(Schema.Struct({ namespace: Schema.String, key: Schema.String }))
)

/** What there is of an export. */
interface Kept {
  readonly entries: number
  readonly bytes: number
  readonly last: Position | undefined
}

const nothing: Kept = { entries: 0, bytes: 0, last: undefined }

/**
 * The lines that a file begins with, as far as each of them is the next entry of the export. The last one may be half a
 * line, and a power failure may have damaged more; what follows is exported again.
 */
const readKept = async (file: string, origin: Origin, signal: AbortSignal): Promise<Kept> => {
  let kept = nothing
  try {
    const chunks = createReadStream(file, { highWaterMark: 1024 * 1024, signal })
    for await (const { bytes, end, number, text } of lines(chunks, { offset: 0, line: 0 })) {
      const last = Option.getOrUndefined(Option.flatMap(Either.getRight(text), readPosition))
      if (last === undefined || bytes.at(-1) !== 10 || !isNext(origin, kept.last, last)) break
      kept = { entries: number, bytes: end, last }
    }
  } catch (error) {
    // A line that is too long is none of an export.
    if (!(error instanceof RangeError)) throw error
  }
  return kept
}

/** Gives the entries their name. */
const settle = (entries: string, final: string, mayReplace: boolean): void => {
  if (mayReplace) renameSync(entries, final)
  else claimName(entries, final)
  try {
    flushDirectory(dirname(final))
  } catch (error) {
    // Some file systems do not synchronize directories.
    if (!hasCode(error, "EINVAL", "ENOTSUP", "EPERM")) throw error
  }
}

/** Removes the directory, where nothing in it is to be kept. */
const remove = (place: string): void => {
  for (const name of [names.entries, names.record, names.lock]) rmSync(join(place, name), { force: true })
  rmdirSync(place)
}

/**
 * Begins an export, or goes on with one. When the scope closes, what there is of it is kept, unless it is complete or has
 * no entries.
 */
export const begin = ({
  manner,
  mayReplace,
  origin,
  path
}: Options): Effect.Effect<PartialExport, CommandFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const failure = (error: unknown): CommandFailed =>
      !mayReplace && hasCode(error, "EEXIST") ? isThere(path) : PrivateFile.unwritable(path)(error)
    const attempt = <A>(work: () => A) => Effect.try({ try: work, catch: failure })
    const final = yield* attempt(() => (mayReplace ? target(path) : path))
    if (!mayReplace && (yield* attempt(() => find(path) !== undefined))) return yield* isThere(path)
    const place = `${final}.export`
    const [entries, record] = [join(place, names.entries), join(place, names.record)]
    yield* Effect.flatten(attempt(() => makePlace(place)))
    yield* lock(path, place)
    const sizeOf = (file: string) => find(file)?.size ?? 0
    // Killed when the file had its name already.
    yield* attempt(() => sizeOf(entries) > 0 && idOf(entries) === idOf(final) && rmSync(entries))
    const isBegun = yield* attempt(() => sizeOf(entries) > 0)
    if (isBegun && manner === "refuse") return yield* wrong(`An export to ${path} was not finished`, choose)
    const isResumed = isBegun && manner === "resume"
    if (isResumed) yield* Effect.flatten(attempt(() => requireSame(place, origin)))
    const kept = isResumed
      ? yield* Effect.tryPromise({ try: signal => readKept(entries, origin, signal), catch: failure })
      : nothing
    let isKept = kept.entries > 0
    yield* Effect.addFinalizer(() => (isKept ? Effect.void : Effect.ignore(Effect.try(() => remove(place)))))
    yield* attempt(() => {
      if (isResumed) return truncateSync(entries, kept.bytes)
      rmSync(entries, { force: true })
      writeFileSync(record, JSON.stringify(origin), { mode: 0o600, flush: true })
    })
    const file = yield* PrivateFile.open(entries, "appended", failure)
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
          settle(entries, final, mayReplace)
          isKept = false
        })
      )
    }
  })
