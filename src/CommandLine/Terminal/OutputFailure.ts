/** What it means that standard output cannot be written. */
import { type CommandFailed, failed } from "../CommandFailed.ts"

/** By these a system tells that the reader has gone, as `head` does. */
const closed: ReadonlySet<unknown> = new Set(["EPIPE", "EOF", "ECONNRESET", "ERR_STREAM_DESTROYED"])

/** The failure of the command; `undefined` where the reader has gone, who wants no more. */
export const of = (error: NodeJS.ErrnoException): CommandFailed | undefined =>
  closed.has(error.code) ? undefined : failed(`Standard output cannot be written: ${error.message}`)
