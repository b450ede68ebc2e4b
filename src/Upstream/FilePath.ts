/**
 * Paths of workspace files, checked before they are sent in requests.
 */
import { Either, Schema } from "effect"

/** A request for a file was refused before anything was sent. */
export class InvalidFileRequest extends Schema.TaggedError<InvalidFileRequest>()("InvalidFileRequest", {
  message: Schema.String
}) {}

/** Characters of a path. Many servers limit a request line to 8 KiB, and percent-encoding may triple a path. */
export const longest = 2048

const problem = (path: string): string | undefined => {
  if (path === "") return "is empty"
  if (path.length > longest) return `has ${path.length} characters; the limit is ${longest}`
  if (path.includes("\0")) return "holds a NUL character"
  if (!path.isWellFormed()) return "is not valid Unicode"
  // A backslash separates segments where the workspace lives on Windows.
  const segments = path.split(/[\\/]/)
  if (segments[0] === "" || /^[A-Za-z]:$/.test(segments[0]!)) return "is absolute; it must be relative to the workspace"
  if (segments.includes("..")) return 'holds a ".." segment'
  return undefined
}

/** The path if it is valid. */
export const check = (path: string): Either.Either<string, InvalidFileRequest> => {
  const wrong = problem(path)
  return wrong === undefined
    ? Either.right(path)
    : Either.left(new InvalidFileRequest({ message: `The file path ${wrong}` }))
}

/**
 * A file's path as one percent-encoded segment of a URL.
 *
 * `.` is refused: it names no file, and URL parsers remove it, encoded or not.
 */
export const toSegment = (path: string): Either.Either<string, InvalidFileRequest> =>
  path === "."
    ? Either.left(new InvalidFileRequest({ message: "The file path names a directory" }))
    : Either.map(check(path), encodeURIComponent)

/** A whole number from 0 on. */
export const checkCount = (name: string, value: number): Either.Either<number, InvalidFileRequest> =>
  Number.isSafeInteger(value) && value >= 0
    ? Either.right(value)
    : Either.left(new InvalidFileRequest({ message: `${name} must be a whole number from 0 on` }))
