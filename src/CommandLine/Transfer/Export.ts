/** `causeway export`: entries as lines of JSON. */
import { Data, type Duration, Effect, Option, Stream } from "effect"
import type { Entry } from "../../Client/Model.ts"
import type { Service } from "../../EffectClient/Client.ts"
import * as ExactJson from "../../Json/ExactJson.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import * as Connection from "../Connection.ts"
import { countOf } from "../Entries/List.ts"
import * as Failure from "../Failure.ts"
import { Args, Command, Options } from "../Library.ts"
import { retryWhileUnavailable } from "../Retrying.ts"
import { endOfLog } from "../Service.ts"
import { isJson, Output, record, write } from "../Terminal/Output.ts"
import * as ProgressLine from "../Terminal/ProgressLine.ts"
import { cleanName } from "../Terminal/Text.ts"
import { type Job, type Position, pagesAfter, resumable } from "./ExportJob.ts"
import * as PartialExport from "./PartialExport.ts"
import * as Resumption from "./Resumption.ts"

/** The maximum number of namespaces whose entries are counted: each needs a request. */
const maxCounted = 100

const entries = (count: number): string => `${count.toLocaleString("en")} entries`

const linesOf = (entries: ReadonlyArray<Entry>): string =>
  entries.map(entry => `${ExactJson.stringify(entry)}\n`).join("")

/** The number of entries, if few requests suffice to count them. It may change until they are exported. */
const totalOf = (
  client: Service,
  connection: Connection.Connection,
  { namespaces, prefix }: Job
): Effect.Effect<number | undefined> => {
  if (namespaces.length > maxCounted || (namespaces.length === 0 && prefix !== "")) {
    return Effect.succeed(undefined)
  }
  const counts: Effect.Effect<number, unknown> =
    namespaces.length === 0
      ? Stream.runFold(client.namespaces(), 0, (sum, page) =>
          page.namespaces.reduce((sum, { count }) => sum + count, sum)
        )
      : Effect.map(
          Effect.forEach(namespaces, namespace => countOf(client, connection, namespace, { prefix })),
          counts => counts.reduce((sum, { count }) => sum + count, 0)
        )
  // It is for the progress alone: an export continues without it.
  return Effect.orElseSucceed(counts, () => undefined)
}

/** An export to carry out. */
interface Task {
  readonly connection: Connection.Connection
  readonly client: Service
  readonly job: Job
  /** The epoch of the change log at the start. */
  readonly epoch: string
  readonly retryFor: Duration.Duration
  readonly note: (text: string) => Effect.Effect<void>
  /** The last entry of an earlier run. */
  readonly last: Position | undefined
}

/** The store was restored or replaced: its entries do not belong to the same export. */
class LogReplaced extends Data.TaggedError("LogReplaced") {}

/** Reads all entries and passes them to `put`, page by page. */
const exportEntries = <E, R>(
  { client, connection, epoch, job, last, note, retryFor }: Task,
  put: (items: ReadonlyArray<Entry>) => Effect.Effect<void, E, R>
): Effect.Effect<void, CommandFailed | LogReplaced | E, R> =>
  Effect.suspend(() => {
    let position = last
    return resumable(() => pagesAfter(client, job, position), retryWhileUnavailable(retryFor, note)).pipe(
      Stream.mapError(Failure.of(connection)),
      Stream.runForEach((page): Effect.Effect<void, LogReplaced | E, R> => {
        if (page.epoch !== epoch) return new LogReplaced()
        return Effect.tap(put(page.items), () => {
          position = page.items.at(-1) ?? position
        })
      })
    )
  })

const replaced = (hint: string): CommandFailed =>
  failed("The store has been restored or replaced during the export", hint)

/** Exports to a file. Returns the number of its entries, and how many of them are from an earlier run. */
const toFile = (
  task: Omit<Task, "last" | "note">,
  options: Pick<PartialExport.Options, "path" | "mode" | "mayReplace">
) =>
  Effect.gen(function* () {
    const { client, connection, epoch, job } = task
    const partial = yield* PartialExport.open({ ...options, origin: { url: connection.url, ...job, epoch } })
    const total = process.stderr.isTTY ? yield* totalOf(client, connection, job) : undefined
    const progress = yield* ProgressLine.make(total, partial.entries)
    let count = partial.entries
    let isResumable = true
    const put = (items: ReadonlyArray<Entry>) =>
      items.length === 0
        ? Effect.void
        : Effect.zipRight(
            partial.append(linesOf(items)),
            Effect.suspend(() => {
              count += items.length
              return progress.advance(count, items.length)
            })
          )
    yield* exportEntries({ ...task, last: partial.last, note: progress.note }, put).pipe(
      Effect.catchTag("LogReplaced", () => {
        isResumable = false
        return replaced("Start over with --restart.")
      }),
      Effect.zipRight(partial.complete),
      Resumption.reportProgress(
        Effect.sync(() =>
          count > 0 && isResumable ? [`${entries(count)} are exported; continue with --resume.`] : []
        ),
        progress.note
      )
    )
    return { count, before: partial.entries }
  }).pipe(Effect.scoped)

/** `causeway export [namespace]…`. */
export const command = Command.make(
  "export",
  {
    namespaces: Args.text({ name: "namespace" }).pipe(Args.withDescription("Default: all of them"), Args.repeated),
    prefix: Options.text("prefix").pipe(Options.withDescription("Only keys that start with this"), Options.optional),
    output: Options.text("output").pipe(
      Options.withPseudoName("file"),
      Options.withDescription("Default: standard output"),
      Options.optional
    ),
    force: Options.boolean("force").pipe(Options.withDescription("Replace an existing file")),
    ...Resumption.options({
      resume: "Continue where the last export to this file stopped",
      restart: "Export to the file from the beginning"
    }),
    ...Connection.options
  },
  ({ force, json, namespaces, output, prefix, ...given }) =>
    Effect.gen(function* () {
      const { mode, retryFor } = yield* Resumption.resolve(given)
      const { isTerminal, note } = yield* Output
      if (Option.isNone(output) && mode === "resume") {
        return yield* wrong("--resume requires --output", "How much of standard output was read is not known.")
      }
      // The lines are for programs; `kv list` prints entries for a terminal.
      if (Option.isNone(output) && isTerminal) {
        return yield* wrong(
          "An export is not written to a terminal",
          "Give --output, or a pipe; causeway kv list shows entries."
        )
      }
      const connection = yield* Connection.resolve(given)
      const client = yield* Connection.store(connection)
      const { epoch } = yield* endOfLog(connection)
      const job: Job = { namespaces: [...new Set(namespaces)], prefix: Option.getOrElse(prefix, () => "") }
      const task = { connection, client, job, epoch, retryFor }
      if (Option.isNone(output)) {
        let isEmpty = true
        const put = (items: ReadonlyArray<Entry>) => {
          isEmpty &&= items.length === 0
          return write(linesOf(items))
        }
        yield* exportEntries({ ...task, last: undefined, note }, put).pipe(
          Effect.catchTag("LogReplaced", () => replaced("Export again."))
        )
        // Nothing else would show that a name is mistyped.
        return yield* isEmpty ? note("There are no such entries.") : Effect.void
      }
      const path = output.value
      const { before, count } = yield* toFile(task, { path, mode, mayReplace: force })
      yield* (yield* isJson(json))
        ? record({ entries: count, file: path, resumedAtLine: before })
        : write(`${entries(count)} are in ${cleanName(path)}\n`)
    })
).pipe(Command.withDescription("Write the entries of namespaces as lines of JSON"))
