/** The compiled service as a separate process with its inspector. */
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { Effect, Schema, type Scope } from "effect"

/** The service ended before it was ready. */
export class NotServing extends Schema.TaggedError<NotServing>()("NotServing", { output: Schema.String }) {
  override get message(): string {
    return `The service does not serve: ${this.output}`
  }
}

/** The addresses of a running service. */
export interface Service {
  readonly port: number
  /** Address of the inspector. */
  readonly inspector: string
}

/** The credential of the service. */
export const key = "key-that-writes"

/** Starts the service on free ports, until the scope closes. */
export const start = (
  main: string,
  env: Readonly<Record<string, string>>
): Effect.Effect<Service, NotServing, Scope.Scope> =>
  Effect.gen(function* () {
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(process.execPath, ["--inspect=127.0.0.1:0", main], {
          env: {
            PATH: process.env.PATH,
            NODE_ENV: "production",
            HOST: "127.0.0.1",
            PORT: "0",
            KV_API_KEY: key,
            ...env
          },
          stdio: ["ignore", "pipe", "pipe"]
        })
      ),
      child => Effect.sync(() => child.kill("SIGKILL"))
    )
    return yield* Effect.async<Service, NotServing>(resume => {
      let output = ""
      const onLine = (line: string) => {
        output += `${line}\n`
        const inspector = /^Debugger listening on (\S+)$/m.exec(output)?.[1]
        const port = /"message":"Listening".*"port":(\d+)/.exec(output)?.[1]
        if (inspector !== undefined && port !== undefined) {
          resume(Effect.succeed({ inspector, port: Number(port) }))
        }
      }
      createInterface({ input: child.stdout }).on("line", onLine)
      createInterface({ input: child.stderr }).on("line", onLine)
      child.once("close", () => resume(new NotServing({ output })))
    })
  })
