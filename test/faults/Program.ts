/**
 * A process that owns a store: it opens the directory in its first argument, says so, and serves commands, one JSON
 * object a line on stdin with one answer a line on stdout, until stdin ends.
 */
import { createInterface } from "node:readline"
import { Effect, Either, Logger, Option, Stream } from "effect"
import { JsonText } from "../../src/base/Json/JsonText.ts"
import * as SessionMemory from "../../src/Gateway/SessionEvents/Memory.ts"
import { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import { Store } from "../../src/Kv/Store.ts"
import * as SqliteEvents from "../../src/Storage/Sqlite/SessionEvents.ts"
import * as Sqlite from "../../src/Storage/Sqlite.ts"

/** A command to the process. */
export type Command =
  | { readonly do: "set"; readonly key: string; readonly value: string }
  /** Deletes a key that does not exist: a write that changes nothing. */
  | { readonly do: "deleteAbsent" }
  /** A set while the writer is also busy with expiry and a probe. */
  | { readonly do: "setDirectly"; readonly key: string; readonly value: string }
  | { readonly do: "get"; readonly key: string }
  /** A write and a read of session data; the third argument enables the session database. */
  | { readonly do: "configure"; readonly environment: string }
  | { readonly do: "configuration" }
  /** All at once, so that the reads share a turn of the event loop; each answers its value or the tag of its error. */
  | { readonly do: "getAll"; readonly keys: ReadonlyArray<string> }
  /** Reads the whole list, and returns its length. */
  | { readonly do: "list" }
  | { readonly do: "ready" }
  | { readonly do: "lastSeq" }

const namespace = "n"

const set = (command: { readonly key: string; readonly value: string }) =>
  Effect.flatMap(Store, store => {
    const value = JsonText(JSON.stringify(command.value))
    const operation = { op: "set", namespace, key: command.key, value, expiresAt: null } as const
    return Effect.map(store.commit({ operations: [operation], actor: "program" }), ({ lastSeq }) => lastSeq)
  })

const perform = (command: Command) =>
  Effect.gen(function* () {
    const store = yield* Store
    switch (command.do) {
      case "set":
        return yield* set(command)
      case "deleteAbsent": {
        const { results } = yield* store.commit({
          operations: [{ op: "delete", namespace, key: "absent" }],
          actor: "program"
        })
        return results
      }
      case "setDirectly": {
        const log = yield* ChangeLog
        const [lastSeq] = yield* Effect.all([set(command), Effect.ignore(log.expire), store.ready], {
          concurrency: "unbounded"
        })
        return lastSeq
      }
      case "get":
        return Option.getOrNull(Option.map(yield* store.get(namespace, command.key), entry => JSON.parse(entry.value)))
      case "configure":
        return yield* (yield* SessionEvents).configure("a/1", { deployment: null, environment: command.environment })
      case "configuration":
        return (yield* (yield* SessionEvents).configuration("a/1")).environment
      case "getAll":
        return yield* Effect.forEach(command.keys, key =>
          Effect.match(store.get(namespace, key), {
            onFailure: error => error._tag,
            onSuccess: entry => Option.getOrNull(Option.map(entry, ({ value }) => JSON.parse(value)))
          })
        )
      case "list": {
        const { portions } = yield* store.listAll({ namespace, prefix: "" })
        return yield* Stream.runFold(portions, 0, (count, portion) => count + portion.length)
      }
      case "ready":
        return yield* store.ready
      case "lastSeq":
        return yield* (yield* ChangeLog).lastSeq
    }
  })

const say = (answer: unknown) => Effect.sync(() => process.stdout.write(`${JSON.stringify(answer)}\n`))

const answer = (line: string) =>
  Effect.scoped(perform(JSON.parse(line) as Command)).pipe(
    Effect.either,
    Effect.flatMap(outcome =>
      say(
        Either.match(outcome, {
          onLeft: error => ({ error: error._tag, reason: error.message }),
          onRight: ok => ({ ok })
        })
      )
    )
  )

const serve = Effect.gen(function* () {
  yield* say({ ok: "open" })
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  for (;;) {
    const line = yield* Effect.promise(() => lines.next())
    if (line.done === true) return
    yield* answer(line.value)
  }
})

const [directory = "", inline, sessions] = process.argv.slice(2)
const writer = inline === "inline" ? "inline" : "thread"
await Effect.runPromise(
  serve.pipe(
    Effect.provide(Sqlite.layer({ directory, writer })),
    Effect.provide(sessions === "sessions" ? SqliteEvents.layer({ directory, writer }) : SessionMemory.layer()),
    Effect.catchTag("StoreRefused", error => say({ error: error._tag, reason: error.message })),
    Effect.scoped,
    // Standard output carries the answers.
    Effect.provide(Logger.replace(Logger.defaultLogger, Logger.withConsoleError(Logger.logfmtLogger)))
  )
)
