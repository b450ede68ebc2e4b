/** A process that a test starts and observes. */
import { spawn } from "node:child_process"
import { Effect, type Scope } from "effect"
import * as Compiled from "./Compiled.ts"

/** How a process ended, and everything that it has written to standard error. */
export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stderr: string
}

/** A process that was started; it may have ended. */
export interface Process {
  readonly pid: number
  /** The output so far. */
  readonly output: { readonly stdout: string; readonly stderr: string }
  /** Waits for its end. */
  readonly ended: Effect.Effect<Ended>
  /** Sends a signal. */
  readonly signal: (signal: NodeJS.Signals) => void
  /** Closes the reading end of standard output, as a log shipper that crashes does. */
  readonly abandonOutput: Effect.Effect<void>
  /** Waits until standard output matches; dies if the process ends before that. */
  readonly shows: (pattern: RegExp) => Effect.Effect<RegExpExecArray>
}

/**
 * Runs a module with Node and arguments. The environment of the tests is not passed on, so that no setting leaks in.
 * The scope kills the process and waits for its exit.
 */
export const start = (
  main: string,
  args: ReadonlyArray<string>,
  env: NodeJS.ProcessEnv
): Effect.Effect<Process, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(process.execPath, [main, ...args], {
        env: { PATH: process.env.PATH, PORT: "0", ...Compiled.environment(), ...env },
        stdio: ["ignore", "pipe", "pipe"]
      })
      const output = { stdout: "", stderr: "" }
      const listeners = new Set<() => void>()
      const collect = (name: "stdout" | "stderr") => (text: string) => {
        output[name] += text
        for (const listener of [...listeners]) listener()
      }
      child.stdout.setEncoding("utf8").on("data", collect("stdout"))
      child.stderr.setEncoding("utf8").on("data", collect("stderr"))
      // A child of the process may keep its output open after its exit.
      const exited = new Promise<void>(resolve => child.once("exit", () => resolve()))
      const ended = new Promise<Ended>(resolve =>
        child.once("close", (code, signal) => resolve({ code, signal, stderr: output.stderr }))
      )
      return {
        exited,
        pid: child.pid!,
        output,
        ended: Effect.promise(() => ended),
        signal: (signal: NodeJS.Signals) => void child.kill(signal),
        abandonOutput: Effect.sync(() => void child.stdout.destroy()),
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
            return Effect.sync(() => listeners.delete(look))
          })
      }
    }),
    ({ exited, signal }) =>
      Effect.promise(() => {
        signal("SIGKILL")
        return exited
      })
  )
