/** `causeway export`: entries as lines of JSON. */
import { type Chunk, type Duration, Effect, Option, Scope, Stream } from "effect"
import * as ExactJson from "../../base/Json/ExactJson.ts"
import type { ClientError, Service } from "../../Client/Effect/Client.ts"
import { compare } from "../../Client/KeyOrder.ts"
import type { Entry } from "../../Client/Model.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import { flag, prefix, text } from "../CommandOptions.ts"
import * as Connection from "../Connection.ts"
import { countOf } from "../Entries/List.ts"
import { Args, Command } from "../Library.ts"
import { durationOf, endOfLog, failureOf, retryForOption, retryWhileUnavailable } from "../Service.ts"
import { answer, Output, write } from "../Terminal/Output.ts"
import * as ProgressLine from "../Terminal/Progress.ts"
import { cleanName } from "../Terminal/Text.ts"
import * as OutputFile from "./OutputFile.ts"

/** What is exported, and from where. */
interface Job extends Connection.Opened {
  /** Without duplicates, in this order. If it is empty, all namespaces in the order of their UTF-8. */
  readonly namespaces: ReadonlyArray<string>
  readonly prefix: string
  /** The epoch of the change log at the start. */
  readonly epoch: string
  readonly retryFor: Duration.Duration
}

/** The position of an entry in an export. */
interface Position {
  readonly namespace: string
  readonly key: string
}

/** Entries of one snapshot, and the epoch of the change log then. */
interface Page {
  readonly items: ReadonlyArray<Entry>
  readonly epoch: string
}

/** The entries of one namespace after a position, page by page. */
const pagesOf = (
  client: Service,
  namespace: string,
  prefix: string,
  last: Position | undefined
): Stream.Stream<Page, ClientError> => {
  if (namespace !== last?.namespace) return client.list(namespace, { prefix })
  return Stream.map(client.list(namespace, { prefix, start: last.key }), ({ epoch, items }) => ({
    epoch,
    items: items.filter(({ key }) => key !== last.key)
  }))
}

/** The entries of an export after a position, page by page. Each page is requested when the stream is pulled. */
const pagesAfter = (
  { client, namespaces, prefix }: Job,
  last: Position | undefined
): Stream.Stream<Page, ClientError> => {
  const pagesOfAll = (names: ReadonlyArray<string>) =>
    Stream.flatMap(Stream.fromIterable(names), name => pagesOf(client, name, prefix, last))
  if (namespaces.length > 0) {
    return pagesOfAll(namespaces.slice(last === undefined ? 0 : namespaces.indexOf(last.namespace)))
  }
  const isLeft = (namespace: string) => last === undefined || compare(last.namespace, namespace) <= 0
  return Stream.flatMap(client.namespaces(), ({ epoch, namespaces }) =>
    Stream.concat(
      // The epoch is checked also if no namespace is left.
      Stream.succeed({ epoch, items: [] }),
      pagesOfAll(namespaces.map(({ namespace }) => namespace).filter(isLeft))
    )
  )
}

/**
 * A stream that restarts after a failure if `retrying` repeats the pull. `make` is called again then; its new stream must
 * continue after the elements that were pulled already.
 */
const resumable = <A>(
  make: () => Stream.Stream<A, ClientError>,
  retrying: <B>(request: Effect.Effect<B, ClientError>) => Effect.Effect<B, ClientError>
): Stream.Stream<A, ClientError> =>
  Stream.unwrapScoped(
    Effect.map(Effect.scope, scope => {
      let pull: Effect.Effect<Chunk.Chunk<A>, Option.Option<ClientError>> | undefined
      const start = Effect.tap(Scope.extend(Stream.toPull(Stream.suspend(make)), scope), started => {
        pull = started
      })
      const next = Effect.flatten(Effect.suspend(() => (pull === undefined ? start : Effect.succeed(pull)))).pipe(
        Effect.tapError(() =>
          Effect.sync(() => {
            pull = undefined
          })
        ),
        Effect.asSome,
        Effect.catchAll(
          Option.match({ onNone: () => Effect.succeed(Option.none<Chunk.Chunk<A>>()), onSome: Effect.fail })
        )
      )
      return Stream.unfoldChunkEffect(undefined, () =>
        Effect.map(
          retrying(next),
          Option.map(chunk => [chunk, undefined] as const)
        )
      )
    })
  )

/** The maximum number of namespaces whose entries are counted: each needs a request. */
const maxCounted = 100

const entries = (count: number): string => `${count.toLocaleString("en")} entries`

const linesOf = (entries: ReadonlyArray<Entry>): string =>
  entries.map(entry => `${ExactJson.stringify(entry)}\n`).join("")

/** The number of entries, if few requests suffice to count them. It may change until they are exported. */
const totalOf = (job: Job): Effect.Effect<number | undefined> => {
  const { client, namespaces, prefix } = job
  if (namespaces.length > maxCounted || (namespaces.length === 0 && prefix !== "")) {
    return Effect.succeed(undefined)
  }
  const counts: Effect.Effect<number, unknown> =
    namespaces.length === 0
      ? Stream.runFold(client.namespaces(), 0, (sum, page) =>
          page.namespaces.reduce((sum, { count }) => sum + count, sum)
        )
      : Effect.map(
          Effect.forEach(namespaces, namespace => countOf(job, namespace, { prefix })),
          counts => counts.reduce((sum, { count }) => sum + count, 0)
        )
  // It is for the progress alone: an export continues without it.
  return Effect.orElseSucceed(counts, () => undefined)
}

/** Reads all entries and passes them to `put`, page by page. */
const exportEntries = <E, R>(
  job: Job,
  note: (text: string) => Effect.Effect<void>,
  put: (items: ReadonlyArray<Entry>) => Effect.Effect<void, E, R>
): Effect.Effect<void, CommandFailed | E, R> =>
  Effect.suspend(() => {
    let position: Position | undefined
    return resumable(() => pagesAfter(job, position), retryWhileUnavailable(job.retryFor, note)).pipe(
      Stream.mapError(failureOf(job.connection)),
      Stream.runForEach((page): Effect.Effect<void, CommandFailed | E, R> => {
        // The entries of another log do not belong to the same export.
        if (page.epoch !== job.epoch) {
          return failed("The store has been restored or replaced during the export", "Export again.")
        }
        return Effect.tap(put(page.items), () => {
          position = page.items.at(-1) ?? position
        })
      })
    )
  })

/** Exports to a file. Returns the number of its entries. */
const toFile = (job: Job, path: string, mayReplace: boolean) =>
  Effect.gen(function* () {
    const file = yield* OutputFile.draft(path, mayReplace)
    const total = process.stderr.isTTY ? yield* totalOf(job) : undefined
    const progress = yield* ProgressLine.make(total, 0)
    let count = 0
    const put = (items: ReadonlyArray<Entry>) =>
      Effect.zipRight(
        file.write(linesOf(items)),
        Effect.suspend(() => {
          count += items.length
          return progress.advance(count, items.length)
        })
      )
    yield* exportEntries(job, progress.note, put)
    yield* file.complete
    return count
  }).pipe(Effect.scoped)

/** `causeway export [namespace]…`. */
export const command = Command.make(
  "export",
  {
    namespaces: Args.text({ name: "namespace" }).pipe(Args.withDescription("Default: all of them"), Args.repeated),
    prefix,
    output: text("output", "Default: standard output", "file"),
    force: flag("force", "Replace an existing file"),
    retryFor: retryForOption,
    ...Connection.options
  },
  ({ force, json, namespaces, output, prefix, retryFor: seconds, ...given }) =>
    Effect.gen(function* () {
      const retryFor = yield* durationOf(seconds)
      const { isTerminal, note } = yield* Output
      // The lines are for programs; `kv list` prints entries for a terminal.
      if (Option.isNone(output) && isTerminal) {
        return yield* wrong(
          "An export is not written to a terminal",
          "Give --output, or a pipe; causeway kv list shows entries."
        )
      }
      const { client, connection } = yield* Connection.openStore(given)
      const { epoch } = yield* endOfLog(connection)
      const selected = { namespaces: [...new Set(namespaces)], prefix: Option.getOrElse(prefix, () => "") }
      const job: Job = { connection, client, ...selected, epoch, retryFor }
      if (Option.isNone(output)) {
        let isEmpty = true
        const put = (items: ReadonlyArray<Entry>) => {
          isEmpty &&= items.length === 0
          return write(linesOf(items))
        }
        yield* exportEntries(job, note, put)
        // Nothing else would show that a name is mistyped.
        return yield* isEmpty ? note("There are no such entries.") : Effect.void
      }
      const path = output.value
      const count = yield* toFile(job, path, force)
      yield* answer(json, { entries: count, file: path }, () => `${entries(count)} are in ${cleanName(path)}\n`)
    })
).pipe(Command.withDescription("Write the entries of namespaces as lines of JSON"))
