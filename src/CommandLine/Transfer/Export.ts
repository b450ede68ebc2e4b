/** `causeway export`: entries as lines of JSON. */
import { Effect, Option, Stream } from "effect"
import type { Entry } from "../../Client/Model.ts"
import type { Service } from "../../EffectClient/Client.ts"
import { wrong } from "../CommandFailed.ts"
import * as Connection from "../Connection.ts"
import * as ExactJson from "../ExactJson.ts"
import * as Failure from "../Failure.ts"
import { Args, Command, Options } from "../Library.ts"
import { countOf } from "../List.ts"
import * as NewFile from "../NewFile.ts"
import { isJson, Output, record, write } from "../Output.ts"
import * as ProgressLine from "../ProgressLine.ts"
import { clean } from "../Text.ts"

/** The most namespaces whose entries are counted, each by a request. */
const mostCounted = 100

const linesOf = (entries: ReadonlyArray<Entry>): string =>
  entries.map(entry => `${ExactJson.stringify(entry)}\n`).join("")

/** How many entries there are, where few requests tell it. Entries may be added until they are exported. */
const totalOf = (
  client: Service,
  connection: Connection.Connection,
  namespaces: ReadonlyArray<string>,
  range: { readonly prefix?: string }
): Effect.Effect<number | undefined> => {
  if (namespaces.length > mostCounted || (namespaces.length === 0 && range.prefix !== undefined)) {
    return Effect.succeed(undefined)
  }
  const counts: Effect.Effect<number, unknown> =
    namespaces.length === 0
      ? Stream.runFold(client.namespaces(), 0, (sum, page) =>
          page.namespaces.reduce((sum, { count }) => sum + count, sum)
        )
      : Effect.map(
          Effect.forEach(namespaces, namespace => countOf(client, connection, namespace, range)),
          counts => counts.reduce((sum, { count }) => sum + count, 0)
        )
  // An older service does not count, and the export may succeed.
  return Effect.orElseSucceed(counts, () => undefined)
}

export const command = Command.make(
  "export",
  {
    namespaces: Args.text({ name: "namespace" }).pipe(Args.withDescription("All of them without one"), Args.repeated),
    prefix: Options.text("prefix").pipe(Options.withDescription("Only keys that start with this"), Options.optional),
    output: Options.text("output").pipe(
      Options.withPseudoName("file"),
      Options.withDescription("Standard output without it"),
      Options.optional
    ),
    force: Options.boolean("force").pipe(Options.withDescription("Replace the file if it is there")),
    ...Connection.options
  },
  ({ force, json, namespaces, output, prefix, ...given }) =>
    Effect.gen(function* () {
      const connection = yield* Connection.resolve(given)
      const client = yield* Connection.store(connection)
      const options = Option.isSome(prefix) ? { prefix: prefix.value } : {}
      const all = Stream.mapConcat(client.namespaces(), page => page.namespaces.map(({ namespace }) => namespace))
      const pages = (namespaces.length === 0 ? all : Stream.fromIterable(namespaces)).pipe(
        Stream.flatMap(namespace => client.list(namespace, options)),
        Stream.mapError(Failure.of(connection)),
        Stream.map(({ items }) => items)
      )
      // For programs in any case, as a terminal shows what `list` prints.
      if (Option.isNone(output)) {
        const { isTerminal } = yield* Output
        if (isTerminal) {
          return yield* wrong(
            "An export to a terminal is of no use",
            "Give --output, or a pipe; causeway kv list shows entries."
          )
        }
        return yield* Stream.runForEach(pages, items => write(linesOf(items)))
      }
      const path = output.value
      const count = yield* Effect.scoped(
        Effect.gen(function* () {
          const file = yield* NewFile.make(path, force)
          const total = process.stderr.isTTY ? yield* totalOf(client, connection, namespaces, options) : undefined
          const progress = yield* ProgressLine.make(total, 0)
          const count = yield* Stream.runFoldEffect(pages, 0, (count, items) =>
            file
              .write(linesOf(items))
              .pipe(
                Effect.zipRight(progress.advance(count + items.length, items.length)),
                Effect.as(count + items.length)
              )
          )
          yield* file.complete
          return count
        })
      )
      yield* (yield* isJson(json))
        ? record({ entries: count, file: path })
        : write(`${count.toLocaleString("en")} entries are in ${clean(path)}\n`)
    })
).pipe(Command.withDescription("Write the entries of namespaces as lines of JSON"))
