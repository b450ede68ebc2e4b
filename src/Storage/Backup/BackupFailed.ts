import { Effect, Schema } from "effect"
import { messageOf } from "../../ErrorMessage.ts"

/** There is no backup, or nothing was restored. */
export class BackupFailed extends Schema.TaggedError<BackupFailed>()("BackupFailed", {
  /** What is wrong: a whole sentence without its full stop. */
  message: Schema.String,
  /** What the user can do about it. */
  hint: Schema.optionalWith(Schema.String, { exact: true }),
  /** A restore has taken place all the same, and is not finished. */
  isRestored: Schema.optionalWith(Schema.Boolean, { exact: true })
}) {}

export const refuse = (message: string, hint?: string): Effect.Effect<never, BackupFailed> =>
  Effect.fail(new BackupFailed({ message, ...(hint !== undefined && { hint }) }))

/** Does something with files that throws the system's error. */
export const attempt = <A>(problem: string, body: () => A): Effect.Effect<A, BackupFailed> =>
  Effect.try({
    try: body,
    catch: error => new BackupFailed({ message: `${problem}: ${messageOf(error)}` })
  })

/** How far a backup or a restore has come, in bytes. What is verified tells nothing of that. */
export interface Progress {
  readonly phase: "copy" | "verify"
  readonly done: number
  readonly total: number
}

export type Report = (progress: Progress) => void
