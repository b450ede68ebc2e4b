/** Runs the command as users do: a process of its own, with an environment and a data directory of its own. */
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import * as Compiled from "./service/Compiled.ts"

/** How a process ended. */
interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** A directory that is removed with the scope. */
export const temporaryDirectory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "causeway-"))),
  directory => Effect.sync(() => rmSync(directory, { recursive: true, force: true }))
)

/** Starts the command, or another form of it; the scope kills it if it still runs. */
export const launch = (
  env: Readonly<Record<string, string>>,
  args: ReadonlyArray<string> = [],
  main = Compiled.program("main")
) =>
  Effect.gen(function* () {
    const directory = env.DATA_DIR ?? (yield* temporaryDirectory)
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(process.execPath, [main, ...args], {
          env: { PATH: process.env.PATH, DATA_DIR: directory, PORT: "0", ...Compiled.environment(), ...env },
          stdio: ["ignore", "pipe", "pipe"]
        })
      ),
      child => Effect.sync(() => child.kill("SIGKILL"))
    )
    const output = { stdout: "", stderr: "" }
    const listeners = new Set<() => void>()
    const collect = (name: "stdout" | "stderr") => (chunk: Buffer) => {
      output[name] += chunk.toString()
      for (const listener of listeners) listener()
    }
    child.stdout.on("data", collect("stdout"))
    child.stderr.on("data", collect("stderr"))
    const ended = new Promise<Ended>(resolve => child.once("close", (code, signal) => resolve({ code, signal })))
    return {
      directory,
      output,
      pid: child.pid!,
      ended: Effect.promise(() => ended),
      kill: (signal: NodeJS.Signals) => Effect.sync(() => child.kill(signal)),
      /** Closes the reading end of standard output, as a log shipper does that dies. */
      abandonOutput: Effect.sync(() => child.stdout.destroy()),
      /** Waits until standard output matches; dies if the process ends before. */
      shows: (pattern: RegExp) =>
        Effect.async<RegExpExecArray>(resume => {
          const look = () => {
            const found = pattern.exec(output.stdout)
            if (found === null) return
            listeners.delete(look)
            resume(Effect.succeed(found))
          }
          listeners.add(look)
          look()
          void ended.then(() => resume(Effect.dieMessage(`ended without ${pattern}: ${JSON.stringify(output)}`)))
        })
    }
  })

/** Starts a command that ends by itself, and waits for its end. */
export const runToEnd = (...command: Parameters<typeof launch>) =>
  Effect.gen(function* () {
    const { ended, output } = yield* launch(...command)
    const { code } = yield* ended
    return { code, ...output }
  })
