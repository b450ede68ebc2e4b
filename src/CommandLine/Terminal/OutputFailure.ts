/** Failures to write standard output. */
import { type CommandFailed, failed } from "../CommandFailed.ts"

/** The error codes after the reader has closed the pipe, like `head`. */
const closed: ReadonlySet<unknown> = new Set(["EPIPE", "EOF", "ECONNRESET", "ERR_STREAM_DESTROYED"])

/** The failure of the command; `undefined` if the reader has closed the pipe. */
export const of = (error: NodeJS.ErrnoException): CommandFailed | undefined =>
  closed.has(error.code) ? undefined : failed(`Standard output cannot be written: ${error.message}`)
