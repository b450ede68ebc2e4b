import { type ChildProcess, spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { Effect, type Scope } from "effect"
import * as Compiled from "../service/Compiled.ts"
import type { Command } from "./Program.ts"

/** The answer of the other process: its result, or the tag and message of an error. */
export type Answer = { readonly ok: unknown } | { readonly error: string; readonly reason: string }

/** Another process that owns a store, or failed to. */
export interface Owner {
  /** The first answer: whether it could open the store. */
  readonly opened: Answer
  readonly ask: (command: Command) => Effect.Effect<Answer>
  readonly kill: (signal: NodeJS.Signals) => Effect.Effect<void>
  /** Ends it in an orderly way. */
  readonly end: Effect.Effect<void>
}

const exited = (child: ChildProcess): Effect.Effect<void> =>
  Effect.async(resume => {
    if (child.exitCode !== null || child.signalCode !== null) resume(Effect.void)
    else child.once("exit", () => resume(Effect.void))
  })

/** Starts a process on a store; the scope kills it. */
export const start = (
  directory: string,
  options: {
    readonly writer?: "thread" | "inline"
    /** Whether it opens the session database too. */
    readonly sessions?: boolean
    readonly env?: NodeJS.ProcessEnv
  } = {}
): Effect.Effect<Owner, never, Scope.Scope> =>
  Effect.gen(function* () {
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(
          process.execPath,
          [
            Compiled.program("faults"),
            directory,
            options.writer ?? "thread",
            options.sessions === true ? "sessions" : ""
          ],
          {
            stdio: ["pipe", "pipe", "inherit"],
            env: { ...process.env, ...Compiled.environment(), ...options.env }
          }
        )
      ),
      child => Effect.suspend(() => (child.kill("SIGKILL") ? exited(child) : Effect.void))
    )
    // A command may be written to a process that has ended; the answer is then `Ended`.
    child.stdin.on("error", () => {})
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
    const next = Effect.promise(async (): Promise<Answer> => {
      const line = await lines.next()
      return line.done === true ? { error: "Ended", reason: "the process ended" } : (JSON.parse(line.value) as Answer)
    })
    const opened = yield* next
    return {
      opened,
      ask: command =>
        Effect.zipRight(
          Effect.sync(() => child.stdin.write(`${JSON.stringify(command)}\n`)),
          next
        ),
      kill: signal => Effect.suspend(() => (child.kill(signal) ? exited(child) : Effect.void)),
      end: Effect.zipRight(
        Effect.sync(() => child.stdin.end()),
        exited(child)
      )
    }
  })
