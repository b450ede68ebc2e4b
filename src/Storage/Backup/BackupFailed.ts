import { Effect, Schema } from "effect"
import { messageOf } from "../../ErrorMessage.ts"

/** A backup or a restore has failed. */
export class BackupFailed extends Schema.TaggedError<BackupFailed>()("BackupFailed", {
  /** The problem: a sentence without its full stop. */
  message: Schema.String,
  /** What the user can do about it. */
  hint: Schema.optionalWith(Schema.String, { exact: true }),
  /** The restore has taken place nevertheless, and is not finished. */
  isRestored: Schema.optionalWith(Schema.Boolean, { exact: true })
}) {}

/** Fails with `BackupFailed`. `message` is a sentence without its full stop; `hint` says what the user can do. */
export const refuse = (message: string, hint?: string): Effect.Effect<never, BackupFailed> =>
  Effect.fail(new BackupFailed({ message, ...(hint !== undefined && { hint }) }))

/** Runs a file operation, which may throw the system's error. */
export const attempt = <A>(problem: string, body: () => A): Effect.Effect<A, BackupFailed> =>
  Effect.try({
    try: body,
    catch: error => new BackupFailed({ message: `${problem}: ${messageOf(error)}` })
  })

/** The progress of a backup or a restore, in bytes. A verification reports none. */
export interface Progress {
  readonly phase: "copy" | "verify"
  readonly done: number
  readonly total: number
}

/** Receives the progress of a backup or a restore. */
export type Report = (progress: Progress) => void
