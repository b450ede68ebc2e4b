/** Entries and changes as text for people; `causeway kv get` and `causeway kv set`. */

import { Duration, Effect, Option } from "effect"
import * as ExactJson from "../../base/Json/ExactJson.ts"
import { textOf } from "../../base/Json/ExactJson.ts"
import { RawJson } from "../../base/Json/JsonText.ts"
import type { Change, Entry, EntryKey } from "../../Client/Model.ts"
import { CommandFailed, exitCodes, wrong } from "../CommandFailed.ts"
import { actor, checkVersion, flag, given, ifVersion, key, namespace, text } from "../CommandOptions.ts"
import * as Connection from "../Connection.ts"
import { Args, Command } from "../Library.ts"
import { failureOf, writeOnce, writeOptions } from "../Service.ts"
import { contentOf } from "../Terminal/Input.ts"
import { answer, type Column, list, truncate, writeJson } from "../Terminal/Output.ts"
import { cleanJson, cleanName, type Paint } from "../Terminal/Text.ts"

/** A time in UTC, to the second. */
export const time = (millis: number): string =>
  Number.isFinite(millis) && Math.abs(millis) <= 8.64e15
    ? new Date(millis)
        .toISOString()
        .replace("T", " ")
        .replace(/\.\d+Z$/, "Z")
    : String(millis)

const expiry = (expiresAt: number | null): string => (expiresAt === null ? "never" : time(expiresAt))

export const keyColumns: ReadonlyArray<Column> = [
  { title: "KEY", shrinks: true },
  { title: "VERSION", align: "right" },
  { title: "UPDATED" },
  { title: "BY", shrinks: true },
  { title: "EXPIRES" }
]

export const columns: ReadonlyArray<Column> = [...keyColumns, { title: "VALUE", shrinks: true }]

/** The maximum number of characters of a value in a table. */
const maxInCell = 200

/** The cells of a key in a list. */
export const keyRow = (entry: EntryKey): ReadonlyArray<string> => [
  entry.key,
  String(entry.version),
  time(entry.updatedAt),
  entry.updatedBy,
  expiry(entry.expiresAt)
]

/** The cells of an entry in a list. */
export const row = (entry: Entry): ReadonlyArray<string> => [
  ...keyRow(entry),
  cleanJson(textOf(entry.value).slice(0, maxInCell))
]

/** One entry, with a line for each member. */
export const textOfEntry = (stored: Entry): string =>
  list([
    ["namespace", cleanName(stored.namespace)],
    ["key", cleanName(stored.key)],
    ["version", String(stored.version)],
    ["updated", `${time(stored.updatedAt)} by ${cleanName(stored.updatedBy)}`],
    ["expires", expiry(stored.expiresAt)],
    ["value", cleanJson(textOf(stored.value))]
  ])

/** A change as one line, without a line break. */
export const change = (record: Change, cells: number, { cyan, dim, red }: Paint): string => {
  const { actor, key, namespace, op, seq, timestamp, value, version } = record
  const what = op === "set" ? cleanJson(textOf(value).slice(0, maxInCell)) : ""
  const text = `${time(timestamp)}  ${seq}  ${op}  ${cleanName(namespace)}  ${cleanName(key)}  v${version}  ${cleanName(actor)}  ${cleanName(what)}`
  const shown = truncate(text.trimEnd(), cells)
  if (op === "set") return cyan(shown)
  return actor === "expiry" ? dim(shown) : red(shown)
}

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
      const found = yield* Effect.mapError(client.get(namespace, key), failureOf(connection))
      if (Option.isNone(found)) {
        return yield* new CommandFailed({
          message: `There is no entry ${key} in ${namespace}`,
          hint: `causeway kv list '${namespace}' lists its entries.`,
          exitCode: exitCodes.notFound
        })
      }
      const entry = found.value
      if (valueOnly) return yield* writeJson(`${ExactJson.textOf(entry.value)}\n`)
      yield* answer(given.json, entry, () => textOfEntry(entry))
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
  const ms = Option.match(Duration.decodeUnknown(text), { onNone: () => 0, onSome: Duration.toMillis })
  return ms >= 1 && Number.isFinite(ms)
    ? Effect.succeed(Math.round(ms))
    : wrong(`--ttl: ${JSON.stringify(text)} is not a duration`, "It looks like 30 seconds, 12 hours or 7 days.")
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
    ...writeOptions,
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
      const entry = yield* writeOnce(connection, { idempotencyKey, retryFor }, once =>
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
