/** The service as a process of its own, which tests may kill. */
import { type ChildProcess, spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { Deferred, Effect, Schema, type Scope } from "effect"
import * as Compiled from "./Compiled.ts"
import { Program } from "./Program.ts"

/** How a process ended. */
export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stderr: string
}

/** The process ended before it served. */
export class NotServing extends Schema.TaggedError<NotServing>()("NotServing", {
  code: Schema.NullOr(Schema.Int),
  signal: Schema.NullOr(Schema.String),
  stderr: Schema.String
}) {
  override get message(): string {
    return `The service ended with ${this.signal ?? this.code} before it served: ${this.stderr}`
  }
}

/** A process that was started and may not serve yet. */
export interface Starting {
  /** Waits until it serves, and returns its base address. */
  readonly serving: Effect.Effect<string, NotServing>
  /** Waits for its end. */
  readonly ended: Effect.Effect<Ended>
  /** What it has written to standard output so far. */
  readonly log: () => string
  /** Waits until standard output matches; does not return if the process ends before. */
  readonly says: (pattern: RegExp) => Effect.Effect<void>
  /** Sends a signal; the process may have ended. */
  readonly signal: (signal: NodeJS.Signals) => void
}

/** A process that serves. */
export interface Running extends Starting {
  readonly url: string
  /** Sends a signal and waits for the end. */
  readonly end: (signal: NodeJS.Signals) => Effect.Effect<Ended>
}

/** The data directory, and further environment variables. */
export interface Options {
  readonly directory: string
  readonly env?: Readonly<Record<string, string>>
}

/** The credential of every service that is started here. */
export const key = "key-that-writes"

const Listening = Schema.parseJson(
  Schema.Struct({ message: Schema.Literal("Listening"), annotations: Schema.Struct({ port: Schema.Int }) })
)

/** The environment of the tests is not passed on, so that no setting leaks in. */
const environment = ({ directory, env }: Options): NodeJS.ProcessEnv => ({
  PATH: process.env.PATH,
  HOME: process.env.HOME,
  DATA_DIR: directory,
  KV_API_KEY: key,
  NODE_ENV: "production",
  PORT: "0",
  ...Compiled.environment(),
  ...env
})

const observe = (child: ChildProcess): Effect.Effect<Starting> =>
  Effect.gen(function* () {
    const serving = yield* Deferred.make<string, NotServing>()
    const ended = yield* Deferred.make<Ended>()
    let stderr = ""
    let log = ""
    const listeners = new Set<() => void>()
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      stderr += text
    })
    if (child.stdout !== null) {
      createInterface({ input: child.stdout }).on("line", line => {
        log += `${line}\n`
        for (const listener of [...listeners]) listener()
        const listening = Schema.decodeUnknownOption(Listening)(line)
        if (listening._tag === "None") return
        Deferred.unsafeDone(serving, Effect.succeed(`http://127.0.0.1:${listening.value.annotations.port}`))
      })
    }
    child.once("close", (code, signal) => {
      Deferred.unsafeDone(serving, new NotServing({ code, signal, stderr }))
      Deferred.unsafeDone(ended, Effect.succeed({ code, signal, stderr }))
    })
    return {
      serving: Deferred.await(serving),
      ended: Deferred.await(ended),
      log: () => log,
      says: pattern =>
        Effect.async<void>(resume => {
          const look = () => {
            if (!pattern.test(log)) return
            listeners.delete(look)
            resume(Effect.void)
          }
          listeners.add(look)
          look()
          return Effect.sync(() => listeners.delete(look))
        }),
      signal: signal => {
        child.kill(signal)
      }
    }
  })

/** Spawns the service without waiting for it; the scope kills it. */
export const launch = (options: Options): Effect.Effect<Starting, never, Program | Scope.Scope> =>
  Effect.flatMap(Program, ({ main }) =>
    Effect.acquireRelease(
      Effect.suspend(() =>
        observe(spawn(process.execPath, [main], { env: environment(options), stdio: ["ignore", "pipe", "pipe"] }))
      ),
      service =>
        Effect.zipRight(
          Effect.sync(() => service.signal("SIGKILL")),
          service.ended
        )
    )
  )

/** Starts the service on a free port and waits until it serves. */
export const start = (options: Options): Effect.Effect<Running, NotServing, Program | Scope.Scope> =>
  Effect.gen(function* () {
    const service = yield* launch(options)
    const url = yield* service.serving
    const end = (signal: NodeJS.Signals) =>
      Effect.zipRight(
        Effect.sync(() => service.signal(signal)),
        service.ended
      )
    return { ...service, url, end }
  })
