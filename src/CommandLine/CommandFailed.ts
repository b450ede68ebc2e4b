import { Schema } from "effect"
import { clean } from "./Text.ts"

/** The exit codes of all commands; docs/cli.md lists them. */
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

/** The command failed; the message is for the user. It may quote names, values and messages as they are. */
export class CommandFailed extends Schema.TaggedError<CommandFailed>()("CommandFailed", {
  message: Schema.String,
  exitCode: Schema.Int,
  /** What the user can do about it. */
  hint: Schema.optionalWith(Schema.String, { exact: true })
}) {}

/** What the user is shown of a failure. Here, and not where messages are made, it becomes harmless for a terminal. */
export const textOf = ({ hint, message }: CommandFailed): string =>
  clean(hint === undefined ? message : `${message}\n${hint}`)

/** Invalid arguments, variables or profiles. */
export const wrong = (message: string, hint?: string): CommandFailed =>
  new CommandFailed({ message, exitCode: exitCodes.wrongArguments, ...(hint !== undefined && { hint }) })

/** A failure without an exit code of its own. */
export const failed = (message: string, hint?: string): CommandFailed =>
  new CommandFailed({ message, exitCode: exitCodes.failed, ...(hint !== undefined && { hint }) })
