/** The failures of commands, and their exit codes. */
import { Schema } from "effect"

/** The exit codes of all commands; docs/use/cli.md lists them. */
export const exitCodes = {
  failed: 1,
  wrongArguments: 2,
  notFound: 3,
  preconditionFailed: 4,
  accessRefused: 5,
  unavailable: 6,
  interrupted: 130,
  terminated: 143
} as const

/** The command failed. The message is for the user and may quote untrusted text: it is sanitized when it is printed. */
export class CommandFailed extends Schema.TaggedError<CommandFailed>()("CommandFailed", {
  message: Schema.String,
  exitCode: Schema.Int,
  /** What the user can do about it. */
  hint: Schema.optionalWith(Schema.String, { exact: true })
}) {}

/** Invalid arguments, variables or profiles. */
export const wrong = (message: string, hint?: string): CommandFailed =>
  new CommandFailed({ message, exitCode: exitCodes.wrongArguments, ...(hint !== undefined && { hint }) })

/** Any other failure. */
export const failed = (message: string, hint?: string): CommandFailed =>
  new CommandFailed({ message, exitCode: exitCodes.failed, ...(hint !== undefined && { hint }) })

/** The error codes after the reader has closed the pipe, like `head`. */
const closed: ReadonlySet<unknown> = new Set(["EPIPE", "EOF", "ECONNRESET", "ERR_STREAM_DESTROYED"])

/** The failure of a command whose standard output cannot be written; `undefined` if the reader has closed the pipe. */
export const outputFailed = (error: NodeJS.ErrnoException): CommandFailed | undefined =>
  closed.has(error.code) ? undefined : failed(`Standard output cannot be written: ${error.message}`)
