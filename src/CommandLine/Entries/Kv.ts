/** `causeway kv get` and `causeway kv set`. */
import { readFile } from "node:fs/promises"
import { Duration, Effect, Either, Option } from "effect"
import { messageOf } from "../../ErrorMessage.ts"
import * as ExactJson from "../../Json/ExactJson.ts"
import { RawJson } from "../../Json/JsonText.ts"
import { CommandFailed, exitCodes, wrong } from "../CommandFailed.ts"
import * as Connection from "../Connection.ts"
import * as Failure from "../Failure.ts"
import { Args, Command, Options } from "../Library.ts"
import * as Input from "../Terminal/Input.ts"
import { isJson, type Output, record, write, writeJson } from "../Terminal/Output.ts"
import { cleanName } from "../Terminal/Text.ts"
import * as Utf8 from "../Terminal/Utf8.ts"
import { actor, checkVersion, given, ifVersion, key, namespace } from "./EntryArguments.ts"
import * as EntryText from "./EntryText.ts"
import * as Write from "./Write.ts"

/** `causeway kv get <namespace> <key>`. Exit code 3 if the entry is absent. */
export const get = Command.make(
  "get",
  {
    namespace,
    key,
    valueOnly: Options.boolean("value-only").pipe(Options.withDescription("Print only the JSON text of the value")),
    ...Connection.options
  },
  ({ key, namespace, valueOnly, ...given }) =>
    Effect.gen(function* () {
      const connection = yield* Connection.resolve(given)
      const client = yield* Connection.store(connection)
      const found = yield* Effect.mapError(client.get(namespace, key), Failure.of(connection))
      if (Option.isNone(found)) {
        return yield* new CommandFailed({
          message: `There is no entry ${key} in ${namespace}`,
          hint: `causeway kv list '${namespace}' lists its entries.`,
          exitCode: exitCodes.notFound
        })
      }
      const entry = found.value
      if (valueOnly) return yield* writeJson(`${ExactJson.textOf(entry.value)}\n`)
      return yield* (yield* isJson(given.json)) ? record(entry) : write(EntryText.entry(entry))
    })
).pipe(Command.withDescription("Print an entry"))

/** The maximum number of bytes read from standard input. The service has its own limit for values. */
const maxBytes = 256 * 1024 * 1024

const bytesOf = async (path: string): Promise<Uint8Array> => {
  if (path !== "-") return readFile(path)
  const chunks: Array<Buffer> = []
  let bytes = 0
  for await (const chunk of process.stdin) {
    chunks.push(Buffer.from(chunk))
    bytes += chunk.length
    if (bytes > maxBytes) throw new Error(`it has more than ${maxBytes} bytes`)
  }
  return Buffer.concat(chunks)
}

/** The whole text of a file, or of standard input if the path is `-`. */
export const contentOf = (path: string): Effect.Effect<string, CommandFailed, Output> => {
  const name = path === "-" ? "Standard input" : path
  const bytes = Effect.tryPromise({
    try: () => bytesOf(path),
    catch: error => wrong(`${name} cannot be read: ${messageOf(error)}`)
  })
  return (path === "-" ? Effect.zipRight(Input.noteReading, bytes) : bytes).pipe(
    Effect.flatMap(bytes => Either.mapLeft(Utf8.decode(bytes), problem => wrong(`${name}: ${problem}`)))
  )
}

const valueOf = (text: string, isString: boolean): Effect.Effect<RawJson, CommandFailed> => {
  const value = isString ? ExactJson.ofText(text) : ExactJson.value(text)
  return value instanceof RawJson
    ? Effect.succeed(value)
    : wrong(
        `The value is invalid: ${value.message}`,
        "JSON text has quotes, such as '\"hello\"'. With --string the value is plain text."
      )
}

const lifetime = (text: string): Effect.Effect<number, CommandFailed> => {
  const duration = Option.filter(
    Duration.decodeUnknown(text),
    duration => Duration.isFinite(duration) && Duration.toMillis(duration) >= 1
  )
  return Option.match(duration, {
    onNone: () =>
      wrong(`--ttl: ${JSON.stringify(text)} is not a duration`, "It looks like 30 seconds, 12 hours or 7 days."),
    onSome: duration => Effect.succeed(Math.round(Duration.toMillis(duration)))
  })
}

/** `causeway kv set <namespace> <key> [value]`. */
export const set = Command.make(
  "set",
  {
    namespace,
    key,
    value: Args.text({ name: "value" }).pipe(Args.withDescription("JSON; - or nothing: standard input"), Args.optional),
    file: Options.text("file").pipe(Options.withDescription("File with the value"), Options.optional),
    string: Options.boolean("string").pipe(Options.withDescription("The value is plain text, not JSON")),
    ifVersion: ifVersion("Only if the entry is at this version; 0: only if it does not exist"),
    ttl: Options.text("ttl").pipe(
      Options.withPseudoName("duration"),
      Options.withDescription("The entry expires after this time, such as 30 minutes; default never"),
      Options.optional
    ),
    actor,
    ...Write.options,
    ...Connection.options
  },
  ({ actor, file, idempotencyKey, ifVersion, key, namespace, retryFor, string, ttl, value, ...options }) =>
    Effect.gen(function* () {
      yield* checkVersion(ifVersion, 0)
      if (Option.isSome(file) && Option.isSome(value)) return yield* wrong("Give the value as an argument or by --file")
      const text =
        Option.isSome(value) && value.value !== "-" ? value.value : yield* contentOf(Option.getOrElse(file, () => "-"))
      const json = yield* valueOf(string ? text.replace(/\r?\n$/, "") : text, string)
      const ttlMs = Option.isSome(ttl) ? Option.some(yield* lifetime(ttl.value)) : Option.none()
      const connection = yield* Connection.resolve(options)
      const client = yield* Connection.store(connection)
      const entry = yield* Write.once(connection, { idempotencyKey, retryFor }, once =>
        client.set(namespace, key, json, {
          ...once,
          ...given("ifVersion", ifVersion),
          ...given("ttlMs", ttlMs),
          ...given("actor", actor)
        })
      )
      return yield* (yield* isJson(options.json))
        ? record(entry)
        : write(`${cleanName(namespace)} ${cleanName(key)} is at version ${entry.version}\n`)
    })
).pipe(Command.withDescription("Set an entry; an existing one is replaced"))
