/** `causeway kv get` and `causeway kv set`. */
import { Duration, Effect, Option } from "effect"
import * as ExactJson from "../../base/Json/ExactJson.ts"
import { RawJson } from "../../base/Json/JsonText.ts"
import { CommandFailed, exitCodes, wrong } from "../CommandFailed.ts"
import { actor, checkVersion, flag, given, ifVersion, key, namespace, text } from "../CommandOptions.ts"
import * as Connection from "../Connection.ts"
import * as Failure from "../Failure.ts"
import { Args, Command } from "../Library.ts"
import * as Retrying from "../Retrying.ts"
import { contentOf } from "../Terminal/Input.ts"
import { answer, writeJson } from "../Terminal/Output.ts"
import { cleanName } from "../Terminal/Text.ts"
import * as EntryText from "./EntryText.ts"

/** `causeway kv get <namespace> <key>`. Exit code 3 if the entry is absent. */
export const get = Command.make(
  "get",
  {
    namespace,
    key,
    valueOnly: flag("value-only", "Print only the JSON text of the value"),
    ...Connection.options
  },
  ({ key, namespace, valueOnly, ...given }) =>
    Effect.gen(function* () {
      const { client, connection } = yield* Connection.openStore(given)
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
      yield* answer(given.json, entry, () => EntryText.entry(entry))
    })
).pipe(Command.withDescription("Print an entry"))

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
    file: text("file", "File with the value"),
    string: flag("string", "The value is plain text, not JSON"),
    ifVersion: ifVersion("Only if the entry is at this version; 0: only if it does not exist"),
    ttl: text("ttl", "The entry expires after this time, such as 30 minutes; default never", "duration"),
    actor,
    ...Retrying.writeOptions,
    ...Connection.options
  },
  ({ actor, file, idempotencyKey, ifVersion, key, namespace, retryFor, string, ttl, value, ...options }) =>
    Effect.gen(function* () {
      yield* checkVersion(ifVersion, 0)
      if (Option.isSome(file) && Option.isSome(value)) return yield* wrong("Give the value as an argument or by --file")
      const content =
        Option.isSome(value) && value.value !== "-" ? value.value : yield* contentOf(Option.getOrElse(file, () => "-"))
      const json = yield* valueOf(string ? content.replace(/\r?\n$/, "") : content, string)
      const ttlMs = Option.isSome(ttl) ? Option.some(yield* lifetime(ttl.value)) : Option.none()
      const { client, connection } = yield* Connection.openStore(options)
      const entry = yield* Retrying.once(connection, { idempotencyKey, retryFor }, once =>
        client.set(namespace, key, json, {
          ...once,
          ...given("ifVersion", ifVersion),
          ...given("ttlMs", ttlMs),
          ...given("actor", actor)
        })
      )
      yield* answer(
        options.json,
        entry,
        () => `${cleanName(namespace)} ${cleanName(key)} is at version ${entry.version}\n`
      )
    })
).pipe(Command.withDescription("Set an entry; an existing one is replaced"))
