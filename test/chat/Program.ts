/** The client as a process of its own, as users run it. */
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { Effect, Option, type Scope } from "effect"
import { Changes } from "../../src/Simulator/Changes.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))

/** How the client ended. */
export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** The running client. */
export interface Running {
  /** Waits until it has printed a text; dies if it ends before. */
  readonly shows: (text: string) => Effect.Effect<void>
  readonly signal: (signal: NodeJS.Signals) => Effect.Effect<void>
  readonly ended: Effect.Effect<Ended>
}

/** What the client is run with. */
export interface Options {
  readonly args?: ReadonlyArray<string>
  readonly env?: Readonly<Record<string, string>>
  /** Standard input; left open if absent. */
  readonly input?: string
}

/** Starts the client; the scope kills it. */
export const start = ({ args = [], env = {}, input }: Options): Effect.Effect<Running, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(process.execPath, ["--import", "tsx", "scripts/chat.ts", ...args], {
        cwd: root,
        env: { PATH: process.env.PATH, ...env }
      })
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
      // One that ends early reads no input.
      child.stdin.on("error", () => {})
      if (input !== undefined) child.stdin.end(input)
      const shows = (text: string) =>
        changes.until(() => {
          if (output.stdout.includes(text)) return Option.some(undefined)
          if (ended !== undefined) throw new Error(`The client ended without ${text}: ${JSON.stringify(ended)}`)
          return Option.none()
        })
      return {
        kill: () => child.kill("SIGKILL"),
        running: {
          shows,
          signal: (signal: NodeJS.Signals) => Effect.sync(() => child.kill(signal)),
          ended: changes.until(() => Option.fromNullable(ended))
        }
      }
    }),
    ({ kill }) => Effect.sync(kill)
  ).pipe(Effect.map(({ running }) => running))

/** Runs the client to its end. */
export const run = (options: Options): Effect.Effect<Ended> =>
  Effect.scoped(Effect.flatMap(start({ input: "", ...options }), ({ ended }) => ended))
