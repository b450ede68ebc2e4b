/**
 * Calls for the files of an agent's workspace: paths are checked before they are sent, and answers before they are used.
 *
 * Lists may be long. They are checked without a schema, which costs a hundred times as much, and in batches, so that the
 * event loop runs in between.
 */
import { Array as Arr, type Context, Effect, Either } from "effect"
import { isObject } from "../../base/Json/Parsing.ts"
import { yieldToEventLoop } from "../../base/Time/EventLoop.ts"
import { type AgentPlatform, type FileCallError, InvalidFileRequest } from "../AgentPlatform.ts"
import * as UpstreamHttp from "../UpstreamHttp.ts"
import * as Workspace from "../Workspace.ts"

/** Maximum characters of a path. Many servers limit a request line to 8 KiB, and percent-encoding may triple a path. */
const longestPath = 2048

const problem = (path: string): string | undefined => {
  if (path === "") return "is empty"
  if (path.length > longestPath) return `has ${path.length} characters; the limit is ${longestPath}`
  if (path.includes("\0")) return "holds a NUL character"
  if (!path.isWellFormed()) return "is not valid Unicode"
  // On Windows, a backslash separates segments.
  const segments = path.split(/[\\/]/)
  if (segments[0] === "" || /^[A-Za-z]:$/.test(segments[0]!)) return "is absolute; it must be relative to the workspace"
  return segments.includes("..") ? 'holds a ".." segment' : undefined
}

const invalid = (message: string): Either.Either<never, InvalidFileRequest> =>
  Either.left(new InvalidFileRequest({ message }))

/** A path as one percent-encoded segment of a URL. */
const encoded = (path: string): Either.Either<string, InvalidFileRequest> => {
  const wrong = problem(path)
  return wrong === undefined ? Either.right(encodeURIComponent(path)) : invalid(`The file path ${wrong}`)
}

/** A file's path as a segment. `.` is refused: it is not a file, and URL parsers remove it, encoded or not. */
export const toSegment = (path: string): Either.Either<string, InvalidFileRequest> =>
  path === "." ? invalid("The file path names a directory") : encoded(path)

const checkCount = (name: string, value: number): Either.Either<number, InvalidFileRequest> =>
  isCount(value) ? Either.right(value) : invalid(`${name} must be a whole number from 0 on`)

/** Maximum entries of a list. A longer list is refused. */
export const maxEntries = 10_000

/** Entries that are checked at a time, which takes about a millisecond. */
const batch = 1000

const isText = (value: unknown): value is string => typeof value === "string"

const isTime = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value)

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0

const isType = (value: unknown): value is "file" | "directory" => value === "file" || value === "directory"

/** Checks of the members of an entry. */
type Checks<A> = { readonly [K in keyof A]-?: (value: unknown) => value is Exclude<A[K], undefined> }

/** An entry without unknown members, or the name of the invalid member; empty if it is not an object. */
type Checked<A> = { readonly entry: A } | { readonly wrong: string }

const checkBy = <A>(checks: Checks<A>, optional: ReadonlyArray<keyof A & string>) => {
  const members = Object.entries<(value: unknown) => boolean>(checks)
  const mayBeAbsent: ReadonlySet<string> = new Set(optional)
  return (value: unknown): Checked<A> => {
    if (!isObject(value)) return { wrong: "" }
    const entry: Record<string, unknown> = {}
    for (const [name, check] of members) {
      if (mayBeAbsent.has(name) && !Object.hasOwn(value, name)) continue
      if (!check(value[name])) return { wrong: name }
      entry[name] = value[name]
    }
    return { entry: entry as A }
  }
}

/** Checks an entry of a list of files; all fields but `path` may be absent. */
export const fileEntry = checkBy<Workspace.FileEntry>(
  { path: isText, type: isType, size: isCount, iteration: isCount, timestamp: isTime, hash: isText },
  ["type", "size", "iteration", "timestamp", "hash"]
)

/** Checks an iteration of a file. */
export const fileIteration = checkBy<Workspace.FileIteration>(
  { iteration: isCount, timestamp: isTime, size: isCount, hash: isText },
  []
)

/** Reads a list, which is the answer itself or its member `name`. */
const listOf =
  <A>(name: string, check: (value: unknown) => Checked<A>): UpstreamHttp.Read<ReadonlyArray<A>> =>
  data =>
    Effect.gen(function* () {
      const isBare = Array.isArray(data)
      const list: unknown = isBare ? data : isObject(data) ? data[name] : undefined
      if (!Array.isArray(list)) return yield* UpstreamHttp.unexpectedShape(isObject(data) ? name : "")
      if (list.length > maxEntries) {
        return yield* new UpstreamHttp.Unexpected({
          reason: "too_large",
          message: `has ${list.length} entries; the limit is ${maxEntries}`
        })
      }
      const entries: Array<A> = []
      for (let index = 0; index < list.length; index++) {
        if (index > 0 && index % batch === 0) yield* yieldToEventLoop
        const checked = check(list[index])
        if ("wrong" in checked) {
          const path = [...(isBare ? [] : [name]), index, ...(checked.wrong === "" ? [] : [checked.wrong])]
          return yield* UpstreamHttp.unexpectedShape(path.join("."))
        }
        entries.push(checked.entry)
      }
      return entries
    })

/** The answer to a request for a list of files. */
export const files = listOf("entries", fileEntry)

const history = listOf("iterations", fileIteration)

const content = UpstreamHttp.readBy(Workspace.FileContent)

/** Maximum bytes of answers. The event loop is blocked while one is parsed. */
const largest = { list: 4 * 1024 * 1024, content: 8 * 1024 * 1024 }

/** The names of the file calls in metrics, logs and spans. */
export const operations = ["list_files", "read_file", "file_history", "file_at_iteration"] as const

/** Sends a GET request for `path`, below the files of an instance. */
export type Ask = <A>(
  operation: (typeof operations)[number],
  instanceId: string,
  path: string,
  read: UpstreamHttp.Read<A>,
  maxBytes: number
) => Effect.Effect<A, FileCallError>

type Service = Context.Tag.Service<AgentPlatform>

/** Invalid paths and numbers fail with `InvalidFileRequest` before anything is sent. */
export const make = (ask: Ask): Pick<Service, "listFiles" | "readFile" | "fileHistory" | "fileAtIteration"> => ({
  listFiles: (instanceId, { path = ".", depth = 1 } = {}) =>
    Effect.gen(function* () {
      const query = `?path=${yield* encoded(path)}&depth=${yield* checkCount("depth", depth)}`
      return yield* ask("list_files", instanceId, query, files, largest.list)
    }),
  readFile: (instanceId, path) =>
    Effect.flatMap(toSegment(path), segment => ask("read_file", instanceId, `/${segment}`, content, largest.content)),
  fileHistory: (instanceId, path) =>
    Effect.flatMap(toSegment(path), segment =>
      Effect.map(
        ask("file_history", instanceId, `/${segment}/history`, history, largest.list),
        Arr.sort(Workspace.byIteration)
      )
    ),
  fileAtIteration: (instanceId, path, iteration) =>
    Effect.gen(function* () {
      const segments = `/${yield* toSegment(path)}/at/${yield* checkCount("iteration", iteration)}`
      return yield* ask("file_at_iteration", instanceId, segments, content, largest.content)
    })
})
