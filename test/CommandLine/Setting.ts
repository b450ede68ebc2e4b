/** A service for commands, and files of its user. */
import { Context, Effect, Layer, Logger, type Scope } from "effect"
import * as Limits from "../../src/base/Limits.ts"
import * as Client from "../../src/Client/Effect/Client.ts"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import { keys } from "../Harness.ts"
import { quickEdge } from "../Http/Edge/EdgeTransport.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import * as InProcess from "./InProcess.ts"
import * as Program from "./Program.ts"

export class Setting extends Context.Tag("causeway/test/CommandLine/Setting")<
  Setting,
  {
    readonly url: string
    /** The user's environment. */
    readonly env: Readonly<Record<string, string>>
    /** An empty directory. */
    readonly files: string
    readonly client: Client.Service
  }
>() {}

/** The setting of a service. */
export const of = (url: string, more: Readonly<Record<string, string>> = {}) =>
  Effect.gen(function* () {
    const files = yield* temporaryDirectory
    const env = { CAUSEWAY_URL: url, CAUSEWAY_TOKEN: keys.write, ...more }
    return { url, env, files, client: yield* Client.make({ baseUrl: url, token: keys.write }) }
  })

/** Serves an empty store in this process. Returns its log too. */
export const serveWithLog: Effect.Effect<
  { readonly url: string; readonly log: ChangeLog["Type"] },
  never,
  Scope.Scope
> = Layer.build(Layer.fresh(Memory.layer)).pipe(
  Effect.flatMap(store =>
    Effect.map(quickEdge.serve(Layer.succeedContext(store)), ({ url }) => ({ url, log: Context.get(store, ChangeLog) }))
  ),
  Effect.provideService(Limits.Limits, { ...Limits.defaults, bodyBytes: 256 * 1024, valueBytes: 128 * 1024 }),
  Effect.provide(Logger.remove(Logger.defaultLogger)),
  Effect.orDie
)

/** Serves an empty store in this process. */
export const serve: Effect.Effect<string, never, Scope.Scope> = Effect.map(serveWithLog, ({ url }) => url)

/** A service in this process with a real socket. A separate process takes a second to start. */
export const layer: Layer.Layer<Setting> = Layer.scoped(
  Setting,
  Effect.flatMap(serve, url => of(url))
)

/** Runs a command within this process, with the user's environment and without standard input. */
export const call = (args: ReadonlyArray<string>, more: Readonly<Record<string, string>> = {}, isTerminal = false) =>
  Effect.flatMap(Setting, ({ env }) => InProcess.call(args, { ...env, ...more }, isTerminal))

/** Runs a command as a process, with the user's environment. */
export const run = (args: ReadonlyArray<string>, options: Omit<Program.Options, "args"> = {}) =>
  Effect.flatMap(Setting, ({ env }) => Program.run({ ...options, args, env: { ...env, ...options.env } }))

/** Starts a command as a process, with the user's environment. */
export const start = (args: ReadonlyArray<string>, options: Omit<Program.Options, "args"> = {}) =>
  Effect.flatMap(Setting, ({ env }) => Program.start({ ...options, args, env: { ...env, ...options.env } }))

export const jsonOf = (text: string): unknown => JSON.parse(text)

/** The objects of lines of JSON. */
export const linesOf = (text: string): ReadonlyArray<Record<string, unknown>> =>
  text
    .split("\n")
    .filter(line => line !== "")
    .map(line => JSON.parse(line))
