import type { ChildProcess } from "node:child_process"
import { createServer } from "node:net"
import { Effect, Schedule, type Scope } from "effect"
import { BenchFailed } from "./BenchFailed.ts"
import { type Command, type Contender, key } from "./Contender.ts"
import type { Plan } from "./Plan.ts"
import { spawnServer } from "./Process.ts"

/** A running server. */
export interface Running {
  readonly name: string
  readonly port: number
  readonly pid: number
  /** Headers of every request. */
  readonly headers: Readonly<Record<string, string>>
  /** From the start of the process to the first 2xx answer, in milliseconds. */
  readonly startMillis: number
}

const freePort: Effect.Effect<number, BenchFailed> = Effect.async(resume => {
  const server = createServer()
  server.on("error", error => resume(new BenchFailed({ reason: `there is no free port: ${error.message}` })))
  server.listen(0, "127.0.0.1", () => {
    const address = server.address()
    server.close(() => resume(Effect.succeed(typeof address === "object" && address !== null ? address.port : 0)))
  })
})

const ended = (child: ChildProcess): Effect.Effect<void> =>
  Effect.async(resume => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    const done = (): void => resume(Effect.void)
    child.once("exit", done)
    return Effect.sync(() => child.off("exit", done))
  })

const stop = (child: ChildProcess): Effect.Effect<void> =>
  Effect.suspend(() => {
    child.kill("SIGTERM")
    return Effect.timeoutOption(Effect.interruptible(ended(child)), "20 seconds")
  }).pipe(
    Effect.flatMap(end => {
      if (end._tag === "None") child.kill("SIGKILL")
      return ended(child)
    })
  )

const spawned = (name: string, { args, env, file }: Command) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawnServer(file, args, { env, stdio: ["ignore", "ignore", "pipe"] })
      let errors = ""
      child.on("error", error => {
        errors += error.message
      })
      child.stderr?.on("data", chunk => {
        errors = (errors + chunk).slice(-2000)
      })
      const died = Effect.zipRight(
        ended(child),
        Effect.suspend(() => new BenchFailed({ reason: `${name} ended by itself: ${errors}` }))
      )
      return { child, died }
    }),
    ({ child }) => stop(child)
  )

const headersOf = ({ takesKey }: Contender): Running["headers"] => (takesKey ? { authorization: `Bearer ${key}` } : {})

/** Sends a GET; fails unless the answer is 2xx. */
export const ask = (
  { headers, port }: Pick<Running, "headers" | "port">,
  path: string
): Effect.Effect<string, BenchFailed> =>
  Effect.tryPromise({
    try: async signal => {
      const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers, signal })
      const body = await response.text()
      if (!response.ok) throw new Error(`${response.status} ${body.slice(0, 200)}`)
      return body
    },
    catch: error => new BenchFailed({ reason: `GET ${path} on port ${port}: ${String(error)}` })
  })

/** Posts JSON; fails unless the answer is 2xx. */
export const post = ({ headers, port }: Running, path: string, body: string): Effect.Effect<string, BenchFailed> =>
  Effect.tryPromise({
    try: async signal => {
      const init = { method: "POST", headers: { ...headers, "content-type": "application/json" }, body, signal }
      const response = await fetch(`http://127.0.0.1:${port}${path}`, init)
      const answer = await response.text()
      if (!response.ok) throw new Error(`${response.status} ${answer.slice(0, 200)}`)
      return answer
    },
    catch: error => new BenchFailed({ reason: `POST ${path} on port ${port}: ${String(error)}` })
  })

/** How a server is started. */
export interface StartOptions {
  readonly directory: string
  /** Arguments for node. */
  readonly nodeArgs?: ReadonlyArray<string>
  /** The path of the first request; default the contender's probe. */
  readonly path?: string
}

/** Starts a server on its own directory and waits for its first answer. It runs until the scope closes. */
export const start = (
  contender: Contender,
  { directory, nodeArgs = [], path = contender.probe }: StartOptions
): Effect.Effect<Running, BenchFailed, Plan | Scope.Scope> =>
  Effect.gen(function* () {
    const port = yield* freePort
    const headers = headersOf(contender)
    const command = yield* contender.command(directory, port)
    const startedAt = performance.now()
    const { child, died } = yield* spawned(contender.name, { ...command, args: [...nodeArgs, ...command.args] })
    const answered = ask({ port, headers }, path).pipe(Effect.retry(Schedule.spaced("5 millis")))
    yield* Effect.raceFirst(answered, died).pipe(
      Effect.timeoutFail({
        duration: "2 minutes",
        onTimeout: () => new BenchFailed({ reason: `${contender.name} does not answer` })
      })
    )
    return { name: contender.name, port, pid: child.pid ?? 0, headers, startMillis: performance.now() - startedAt }
  })
