/** `causeway kv list` and `causeway kv namespaces`. */
import { Effect, Option, Stream } from "effect"
import * as ExactJson from "../../base/Json/ExactJson.ts"
import type { ClientError } from "../../Client/Effect/Client.ts"
import type { NamespaceCount } from "../../Client/Model.ts"
import type { ListOptions } from "../../Client/Reads.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import { flag, given, namespace, prefix, text, wholeNumber } from "../CommandOptions.ts"
import * as Connection from "../Connection.ts"
import { Command } from "../Library.ts"
import { failureOf } from "../Service.ts"
import { answer, type Column, isJson, Output, table, write, writeJson } from "../Terminal/Output.ts"
import { cleanName } from "../Terminal/Text.ts"
import * as Entry from "./Entry.ts"

const limitOption = (what: string) => wholeNumber("limit", what, `Maximum number of ${what}; default all`)

/** The maximum number of items in a page. */
const maxPage = 1000

/** Ends pages after a total of `limit` items. */
const limited = (limit: number) => {
  let left = limit
  return <A, E>(pages: Stream.Stream<ReadonlyArray<A>, E>): Stream.Stream<ReadonlyArray<A>, E> =>
    pages.pipe(
      Stream.map(page => {
        const items = page.slice(0, left)
        left -= items.length
        return items
      }),
      Stream.takeUntil(() => left <= 0)
    )
}

interface Listing<A> {
  readonly pages: (limit: number) => Stream.Stream<ReadonlyArray<A>, CommandFailed>
  readonly limit: Option.Option<number>
  readonly json: boolean
  readonly columns: ReadonlyArray<Column>
  readonly row: (item: A) => ReadonlyArray<string>
  /** The text for a terminal if the list is empty. */
  readonly empty: string
}

/** Prints items page by page, as they arrive. */
const print = <A>({ columns, empty, json, limit, pages, row }: Listing<A>) =>
  Effect.gen(function* () {
    const max = Option.getOrElse(limit, () => Number.POSITIVE_INFINITY)
    if (max < 1) return yield* wrong("--limit must be at least 1")
    const asJson = yield* isJson(json)
    const { cells } = yield* Output
    let count = 0
    yield* Stream.runForEach(pages(Math.min(max, maxPage)).pipe(limited(max)), items =>
      Effect.suspend(() => {
        const isFirst = count === 0
        count += items.length
        if (items.length === 0) return Effect.void
        return asJson
          ? writeJson(items.map(item => `${ExactJson.stringify(item)}\n`).join(""))
          : write(table(columns, items.map(row), cells(), isFirst))
      })
    )
    if (!asJson && count === 0) yield* write(`${empty}\n`)
  })

/** The number of entries in a range of a namespace, and the position of the change log at which they were counted. */
export const countOf = (
  { client, connection }: Connection.Opened,
  namespace: string,
  range: Pick<ListOptions, "prefix" | "start" | "end">
): Effect.Effect<{ readonly count: number; readonly lastSeq: number; readonly epoch: string }, CommandFailed> =>
  client.listKeys(namespace, { ...range, count: true, limit: 1 }).pipe(
    Stream.runHead,
    Effect.mapError(failureOf(connection)),
    Effect.flatMap(first => {
      const { count, epoch, lastSeq } = Option.getOrElse(first, () => ({ count: undefined, epoch: "", lastSeq: 0 }))
      return count === undefined
        ? failed(`${connection.url} does not count entries`)
        : Effect.succeed({ count, lastSeq, epoch })
    })
  )

/** `causeway kv list <namespace>`. */
export const list = Command.make(
  "list",
  {
    namespace,
    prefix,
    start: text("start", "Only this key and later ones, in the order of their UTF-8", "key"),
    end: text("end", "Only keys before this one", "key"),
    reverse: flag("reverse", "In descending order"),
    keysOnly: flag("keys-only", "Without the values"),
    count: flag("count", "Only print the number of entries"),
    limit: limitOption("entries"),
    ...Connection.options
  },
  ({ count, end, json, keysOnly, limit, namespace, prefix, reverse, start, ...options }) =>
    Effect.gen(function* () {
      if (count && (keysOnly || reverse || Option.isSome(limit))) {
        return yield* wrong("--count excludes --limit, --reverse and --keys-only", "It counts all entries of the list.")
      }
      const { client, connection } = yield* Connection.openStore(options)
      const range = { ...given("prefix", prefix), ...given("start", start), ...given("end", end) }
      if (count) {
        const { count } = yield* countOf({ client, connection }, namespace, range)
        return yield* answer(json, { count }, () => `${count.toLocaleString("en")}\n`)
      }
      const explain = Stream.mapError(failureOf(connection))
      const itemsOf = <A>(pages: Stream.Stream<{ readonly items: ReadonlyArray<A> }, ClientError>) =>
        explain(Stream.map(pages, ({ items }) => items))
      const common = { empty: `There are no such entries in ${cleanName(namespace)}.`, json, limit }
      const { columns, keyColumns, keyRow, row } = Entry
      const optionsOf = (limit: number) => ({ ...range, reverse, limit })
      return yield* keysOnly
        ? print({
            ...common,
            columns: keyColumns,
            row: keyRow,
            pages: limit => itemsOf(client.listKeys(namespace, optionsOf(limit)))
          })
        : print({ ...common, columns, row, pages: limit => itemsOf(client.list(namespace, optionsOf(limit))) })
    })
).pipe(Command.withDescription("List the entries of a namespace"))

/** `causeway kv namespaces`. */
export const namespaces = Command.make(
  "namespaces",
  {
    prefix: text("prefix", "Only namespaces that start with this, such as tenant:demo/"),
    limit: limitOption("namespaces"),
    ...Connection.options
  },
  ({ json, limit, prefix, ...options }) =>
    Effect.gen(function* () {
      const { client, connection } = yield* Connection.openStore(options)
      return yield* print<NamespaceCount>({
        pages: limit =>
          client.namespaces({ ...given("prefix", prefix), limit }).pipe(
            Stream.map(({ namespaces }) => namespaces),
            Stream.mapError(failureOf(connection))
          ),
        columns: [
          { title: "NAMESPACE", shrinks: true },
          { title: "ENTRIES", align: "right" }
        ],
        row: ({ count, namespace }) => [namespace, count.toLocaleString("en")],
        empty: "There are no such namespaces.",
        ...{ json, limit }
      })
    })
).pipe(Command.withDescription("List the namespaces that have entries, with the number of entries of each"))
