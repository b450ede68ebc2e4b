/** The service within the process of the tests, which starts much faster than a process. */
import { Console as NodeConsole } from "node:console"
import { Writable } from "node:stream"
import { ConfigProvider, Console, Effect, Layer } from "effect"
import * as Configuration from "../../src/app/Configuration.ts"
import * as Server from "../../src/app/Server.ts"
import * as Logging from "../../src/base/Observability/Logging.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

const address = /dev mode, at (\S+)\n|"Listening".*?"port":(\d+)[,}]/

/** A console that keeps what is written to it. */
const keeping = (output: { text: string }, console: Console.Console): Console.Console => {
  const stream = new Writable({
    decodeStrings: false,
    write: (text, _, done) => {
      output.text += text
      done()
    }
  })
  const unsafe = new NodeConsole({ stdout: stream, colorMode: false })
  return { ...console, log: (...parts) => Effect.sync(() => unsafe.log(...parts)), unsafe }
}

/**
 * Serves, with an environment of its own, until the scope closes. It fails as the service does if it cannot start. Its
 * metrics are those of the process, which other tests count too; it takes no signals, and does not set the exit code.
 */
export const serve = (env: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const directory = env.DATA_DIR ?? (yield* temporaryDirectory)
    const output = { text: "" }
    const variables = ConfigProvider.fromMap(new Map(Object.entries({ PORT: "0", DATA_DIR: directory, ...env })))
    yield* Effect.gen(function* () {
      const configuration = yield* Configuration.load
      const format = configuration.devMode ? "pretty" : "json"
      const logging = Logging.layer({ level: configuration.logLevel, format })
      yield* Layer.build(Layer.provide(Server.layer(configuration), logging))
    }).pipe(Effect.withConfigProvider(variables), effect =>
      Console.consoleWith(console => Effect.withConsole(effect, keeping(output, console)))
    )
    const [, base, port] = address.exec(output.text) ?? []
    return { url: base ?? `http://127.0.0.1:${port}`, directory, output: () => output.text }
  })
