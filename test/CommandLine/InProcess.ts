/** Commands within the process of the tests, which is faster than a process for each. */
import { ConfigProvider, Console, Effect } from "effect"
import { Api } from "../../src/app/Api.ts"
import * as Cli from "../../src/app/Cli.ts"
import * as Main from "../../src/CommandLine/Main.ts"
import * as Output from "../../src/CommandLine/Terminal/Output.ts"
import { failureText, plain } from "../../src/CommandLine/Terminal/Text.ts"
import * as Document from "../../src/Http/OpenApi/Document.ts"
import type { Ended } from "./Program.ts"

const nothing = Effect.dieMessage("The service is not started here")

/** Runs a command with its own environment and without standard input. */
export const call = (
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>> = {},
  isTerminal = false
): Effect.Effect<Ended & { readonly code: number }> =>
  Effect.gen(function* () {
    const output = { stdout: "", stderr: "" }
    const write = (name: "stdout" | "stderr") => (text: string) =>
      Effect.sync(() => {
        output[name] += text
      })
    const parts = {
      serve: nothing,
      develop: () => nothing,
      openApi: Effect.sync(() => Document.text(Api)),
      asyncApi: nothing
    }
    const code = yield* Main.runWith(args, parts).pipe(
      Effect.as(0),
      Effect.catchAll(error => {
        output.stderr += `${failureText(error)}\n`
        return Effect.succeed(error.exitCode)
      }),
      Effect.provideService(Output.Output, {
        isTerminal,
        cells: () => 80,
        paint: plain,
        write: write("stdout"),
        note: write("stderr")
      }),
      // No profiles of the user are read.
      Effect.withConfigProvider(
        ConfigProvider.fromMap(new Map(Object.entries({ CAUSEWAY_PROFILES: "/nowhere", ...env })))
      )
    )
    return { code, ...output }
  })

/** Runs a command that fails, with all its parts. An environment replaces that of the process. */
export const fail = (args: ReadonlyArray<string>, env?: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const lines: Array<unknown> = []
    const silent = yield* Console.consoleWith(Effect.succeed)
    const variables =
      env === undefined ? ConfigProvider.fromEnv() : ConfigProvider.fromMap(new Map(Object.entries(env)))
    const exit = yield* Effect.exit(Cli.main(args)).pipe(
      Effect.withConsole({ ...silent, error: (...parts) => Effect.sync(() => lines.push(...parts)) }),
      Effect.withConfigProvider(variables)
    )
    let code = -1
    // That of other arguments would also listen to signals.
    Cli.teardown([])(exit, given => {
      code = given
    })
    return { code, stderr: lines.join("\n") }
  })
