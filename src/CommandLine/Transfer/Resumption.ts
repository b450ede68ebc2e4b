/** What `export` and `import` share: how to continue where an earlier run stopped. */
import { Duration, Effect } from "effect"
import { CommandFailed, wrong } from "../CommandFailed.ts"
import { Options } from "../Library.ts"
import { numberOption } from "../NumberOption.ts"

/** What to do if an earlier run did not finish. */
export type ResumeMode = "refuse" | "resume" | "restart"

/** The options of both commands. */
export const options = (descriptions: { readonly resume: string; readonly restart: string }) => ({
  resume: Options.boolean("resume").pipe(Options.withDescription(descriptions.resume)),
  restart: Options.boolean("restart").pipe(Options.withDescription(descriptions.restart)),
  retryFor: numberOption("retry-for", "seconds", "How long to retry while the service is unavailable", 60)
})

/** The values of the options. */
export interface Given {
  readonly resume: boolean
  readonly restart: boolean
  /** Seconds. */
  readonly retryFor: number
}

/** Checks the options. Fails with exit code 2. */
export const resolve = ({
  restart,
  resume,
  retryFor
}: Given): Effect.Effect<{ readonly mode: ResumeMode; readonly retryFor: Duration.Duration }, CommandFailed> => {
  if (retryFor < 0) return wrong("--retry-for must be 0 or more")
  if (resume && restart) return wrong("--resume and --restart exclude each other")
  return Effect.succeed({
    mode: resume ? "resume" : restart ? "restart" : "refuse",
    retryFor: Duration.seconds(retryFor)
  })
}

/** The hint if an earlier run did not finish and no option says what to do. */
export const choose = "Continue with --resume, or start over with --restart."

/** The hint if an earlier run cannot be continued. */
export const startOver = "Remove it, or start over with --restart."

/** Reports how far a command has come, and how to continue, if it fails or is interrupted. */
export const reportProgress =
  (progressText: Effect.Effect<ReadonlyArray<string>>, note: (text: string) => Effect.Effect<void>) =>
  <A, R>(command: Effect.Effect<A, CommandFailed, R>): Effect.Effect<A, CommandFailed, R> =>
    command.pipe(
      Effect.onInterrupt(() =>
        Effect.flatMap(progressText, sentences => Effect.forEach(sentences, note, { discard: true }))
      ),
      Effect.catchAll(({ exitCode, hint, message }) =>
        Effect.flatMap(progressText, sentences => {
          const hints = [...(hint === undefined ? [] : [hint]), ...sentences]
          return new CommandFailed({ message, exitCode, ...(hints.length > 0 && { hint: hints.join(" ") }) })
        })
      )
    )
