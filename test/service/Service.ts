/** The service in a separate process, which tests may kill. */
import { Effect, Schema, type Scope } from "effect"
import * as Process from "./Process.ts"
import { Program } from "./Program.ts"

export type { Ended } from "./Process.ts"

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
export interface Starting extends Process.Process {
  /** Waits until it serves, and returns its base address. */
  readonly serving: Effect.Effect<string, NotServing>
  /** The text that it has written to standard output so far. */
  readonly log: () => string
}

/** A process that serves. */
export interface Running extends Starting {
  readonly url: string
  /** Sends a signal and waits for the end. */
  readonly end: (signal: NodeJS.Signals) => Effect.Effect<Process.Ended>
}

/** The data directory, and further environment variables. */
export interface Options {
  readonly directory: string
  readonly env?: Readonly<Record<string, string>>
}

/** The credential of every service that is started here. */
export const key = "key-that-writes"

const environment = ({ directory, env }: Options): NodeJS.ProcessEnv => ({
  HOME: process.env.HOME,
  DATA_DIR: directory,
  KV_API_KEY: key,
  NODE_ENV: "production",
  ...env
})

/** With what is behind the number, which may arrive in two pieces. */
const listening = /"message":"Listening".*?"port":(\d+)[,}]/

/** Starts the service without waiting for it; the scope kills it. */
export const launch = (options: Options): Effect.Effect<Starting, never, Program | Scope.Scope> =>
  Effect.gen(function* () {
    const { main } = yield* Program
    const started = yield* Process.start(main, [], environment(options))
    return {
      ...started,
      serving: Effect.raceFirst(
        Effect.map(
          Effect.catchAllDefect(started.shows(listening), () => Effect.never),
          ([, port]) => `http://127.0.0.1:${port}`
        ),
        Effect.flatMap(started.ended, ended => new NotServing(ended))
      ),
      log: () => started.output.stdout
    }
  })

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
