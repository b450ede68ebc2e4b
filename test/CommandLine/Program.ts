/** A command as a process of its own, as users run it. */
import { spawn } from "node:child_process"
import { Effect, Option, type Scope } from "effect"
import { Changes } from "../../src/Simulator/Changes.ts"
import * as Compiled from "../service/Compiled.ts"

/** How a command ended. */
export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** A running command. */
export interface Running {
  readonly pid: number
  /** Waits until it has printed a text; dies if it ends before. */
  readonly shows: (text: string) => Effect.Effect<void>
  readonly signal: (signal: NodeJS.Signals) => Effect.Effect<void>
  /** Writes to standard input. */
  readonly type: (text: string) => Effect.Effect<void>
  /** Closes the reading end of standard output, as `head` does. */
  readonly abandonOutput: Effect.Effect<void>
  readonly ended: Effect.Effect<Ended>
}

/** How a command is run. */
export interface Options {
  readonly args?: ReadonlyArray<string>
  readonly env?: Readonly<Record<string, string>>
  /** Standard input; left open if absent. */
  readonly input?: string
  /** Whether input and output are a pseudo-terminal, by `script` of util-linux. */
  readonly isTerminal?: boolean
  /** The content of a pipe to standard input, instead of `input`. */
  readonly piped?: string
}

const quote = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`

/** Starts a command; the scope kills it. */
export const start = ({
  args = [],
  env = {},
  input,
  isTerminal = false,
  piped
}: Options): Effect.Effect<Running, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const main = Compiled.program("main")
      // No profiles of the user are read.
      const own = {
        PATH: process.env.PATH,
        CAUSEWAY_PROFILES: "/nowhere/profiles.json",
        ...Compiled.environment(),
        ...env
      }
      const command = [process.execPath, main, ...args].map(quote).join(" ")
      const line = piped === undefined ? command : `printf %s ${quote(piped)} | ${command}`
      const child = isTerminal
        ? spawn("script", ["-qefc", line, "/dev/null"], {
            env: { ...own, TERM: "xterm", SHELL: "/bin/sh" }
          })
        : spawn(process.execPath, [main, ...args], { env: own })
      const changes = new Changes()
      const output = { stdout: "", stderr: "" }
      let ended: Ended | undefined
      for (const name of ["stdout", "stderr"] as const) {
        child[name].setEncoding("utf8").on("data", (text: string) => {
          output[name] += text
          changes.notify()
        })
      }
      child.once("close", code => {
        ended = { code, ...output }
        changes.notify()
      })
      // A command that ends early does not read its input.
      child.stdin.on("error", () => {})
      if (input !== undefined) child.stdin.end(input)
      const shows = (text: string) =>
        changes.until(() => {
          if (output.stdout.includes(text)) return Option.some(undefined)
          if (ended !== undefined) throw new Error(`The command ended without ${text}: ${JSON.stringify(ended)}`)
          return Option.none()
        })
      return {
        kill: () => child.kill("SIGKILL"),
        running: {
          pid: child.pid!,
          shows,
          signal: (signal: NodeJS.Signals) => Effect.sync(() => child.kill(signal)),
          type: (text: string) => Effect.sync(() => child.stdin.write(text)),
          abandonOutput: Effect.sync(() => child.stdout.destroy()),
          ended: changes.until(() => Option.fromNullable(ended))
        }
      }
    }),
    ({ kill }) => Effect.sync(kill)
  ).pipe(Effect.map(({ running }) => running))

/** Runs a command to its end. */
export const run = (options: Options): Effect.Effect<Ended> =>
  Effect.scoped(Effect.flatMap(start({ input: "", ...options }), ({ ended }) => ended))
