/** What `export` and `import` have in common, which go on where an earlier run has stopped. */
import { Duration, Effect } from "effect"
import { CommandFailed, wrong } from "../CommandFailed.ts"
import { Options } from "../Library.ts"

/** What to do with what an earlier run has left. */
export type Manner = "refuse" | "resume" | "restart"

/** The options of both; the descriptions say what each of them does. */
export const options = (descriptions: { readonly resume: string; readonly restart: string }) => ({
  resume: Options.boolean("resume").pipe(Options.withDescription(descriptions.resume)),
  restart: Options.boolean("restart").pipe(Options.withDescription(descriptions.restart)),
  patience: Options.integer("patience").pipe(
    Options.withPseudoName("seconds"),
    Options.withDescription("How long to try again while the service is away"),
    Options.withDefault(60)
  )
})

/** What the options say. */
export interface Given {
  readonly resume: boolean
  readonly restart: boolean
  /** Seconds. */
  readonly patience: number
}

/** Checks the options. */
export const resolve = ({
  patience,
  restart,
  resume
}: Given): Effect.Effect<{ readonly manner: Manner; readonly patience: Duration.Duration }, CommandFailed> => {
  if (patience < 0) return wrong("--patience must be 0 or more")
  if (resume && restart) return wrong("--resume and --restart exclude each other")
  return Effect.succeed({
    manner: resume ? "resume" : restart ? "restart" : "refuse",
    patience: Duration.seconds(patience)
  })
}

/** Where an earlier run has left something, and the user says nothing of it. */
export const choose = "Go on with --resume, or start over with --restart."

/** Where that cannot be gone on with. */
export const startOver = "Remove it, or start over with --restart."

/** Says how far a command has come, and how to go on, where it fails or is interrupted. `told` says it in sentences. */
export const telling =
  (told: Effect.Effect<ReadonlyArray<string>>, note: (text: string) => Effect.Effect<void>) =>
  <A, R>(command: Effect.Effect<A, CommandFailed, R>): Effect.Effect<A, CommandFailed, R> =>
    command.pipe(
      Effect.onInterrupt(() => Effect.flatMap(told, sentences => Effect.forEach(sentences, note, { discard: true }))),
      Effect.catchAll(({ exitCode, hint, message }) =>
        Effect.flatMap(told, sentences => {
          const hints = [...(hint === undefined ? [] : [hint]), ...sentences]
          return new CommandFailed({ message, exitCode, ...(hints.length > 0 && { hint: hints.join(" ") }) })
        })
      )
    )
