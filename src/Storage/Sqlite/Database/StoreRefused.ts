import { Effect, Schema } from "effect"

/** The database cannot be opened; it was not changed. */
export class StoreRefused extends Schema.TaggedError<StoreRefused>()("StoreRefused", {
  /** The file or directory that prevents it. */
  file: Schema.String,
  /** The end of a sentence that begins with the file's name. */
  reason: Schema.String
}) {
  override get message(): string {
    return `${this.file} ${this.reason}`
  }
  /** Users of a program that this error ends see the sentence. A stack trace would not help them. */
  override readonly stack = `${this.name}: ${this.message}`
}

/** Fails with `StoreRefused`. `reason` is the end of a sentence that begins with the file's name. */
export const refuse = (file: string, reason: string) => Effect.fail(new StoreRefused({ file, reason }))

/** Runs `body`, which may throw. The failure says `problem`, the end of a sentence, and the error's message. */
export const attempt = <A>(file: string, problem: string, body: () => A): Effect.Effect<A, StoreRefused> =>
  Effect.try({
    try: body,
    catch: error => new StoreRefused({ file, reason: `${problem} (${messageOf(error)})` })
  })

/** The message of an error, with that of its cause. */
export const messageOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message
}
