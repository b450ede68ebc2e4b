import Progress from "cli-progress"
import { Effect, type Scope } from "effect"

/** Shows progress. */
export interface ProgressBar {
  readonly advance: (by: number) => Effect.Effect<void>
}

/** A bar on standard error until the scope closes; nothing is drawn without a terminal. */
export const make = (total: number): Effect.Effect<ProgressBar, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        const bar = new Progress.SingleBar({
          format: "{bar} {percentage}% | {value}/{total} entries | {duration_formatted}, {eta_formatted} to go",
          barCompleteChar: "#",
          barIncompleteChar: "-",
          hideCursor: true,
          // The scope removes the bar, also after a signal.
          gracefulExit: false
        })
        bar.start(total, 0)
        return bar
      }),
      bar => Effect.sync(() => bar.stop())
    ),
    bar => ({ advance: by => Effect.sync(() => bar.increment(by)) })
  )
