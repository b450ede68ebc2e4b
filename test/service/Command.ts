/** Runs the command as users do: in a separate process, with its own environment and data directory. */
import { Effect } from "effect"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import * as Compiled from "./Compiled.ts"
import * as Process from "./Process.ts"

/** Starts the command, or another form of it; the scope kills it if it still runs. */
export const launch = (
  env: Readonly<Record<string, string>>,
  args: ReadonlyArray<string> = [],
  main = Compiled.program("main")
) =>
  Effect.gen(function* () {
    const directory = env.DATA_DIR ?? (yield* temporaryDirectory)
    const started = yield* Process.start(main, args, { DATA_DIR: directory, ...env })
    return {
      ...started,
      directory,
      ended: Effect.map(started.ended, ({ code, signal }) => ({ code, signal })),
      kill: (signal: NodeJS.Signals) => Effect.sync(() => started.signal(signal))
    }
  })

/** Starts a command that ends by itself, and waits for its end. */
export const runToEnd = (...command: Parameters<typeof launch>) =>
  Effect.gen(function* () {
    const { ended, output } = yield* launch(...command)
    const { code } = yield* ended
    return { code, ...output }
  })
