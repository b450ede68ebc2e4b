/** `causeway export`: entries as lines of JSON. */
import { Data, type Duration, Effect, Option, Stream } from "effect"
import type { Entry } from "../../Client/Model.ts"
import type { Service } from "../../EffectClient/Client.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import * as Connection from "../Connection.ts"
import * as ExactJson from "../ExactJson.ts"
import * as Failure from "../Failure.ts"
import { Args, Command, Options } from "../Library.ts"
import { countOf } from "../Entries/List.ts"
import { isJson, Output, record, write } from "../Terminal/Output.ts"
import * as ProgressLine from "../Terminal/ProgressLine.ts"
import { retryWhileAway } from "../Retrying.ts"
import { endOfLog } from "../Service.ts"
import { clean } from "../Terminal/Text.ts"
import { type Job, type Position, pagesAfter, resumable } from "./ExportJob.ts"
import * as PartialExport from "./PartialExport.ts"
import * as Resumption from "./Resumption.ts"

/** The most namespaces whose entries are counted, each by a request. */
const maxCounted = 100

const entries = (count: number): string => `${count.toLocaleString("en")} entries are`

const linesOf = (entries: ReadonlyArray<Entry>): string =>
  entries.map(entry => `${ExactJson.stringify(entry)}\n`).join("")

/** How many entries there are, where few requests tell it. Entries may be added until they are exported. */
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
  // An older service does not count, and the export may succeed.
  return Effect.orElseSucceed(counts, () => undefined)
}

/** An export that is to be carried out. */
interface Task {
  readonly connection: Connection.Connection
  readonly client: Service
  readonly job: Job
  /** The log at the beginning. */
  readonly epoch: string
  readonly patience: Duration.Duration
  readonly note: (text: string) => Effect.Effect<void>
  /** The last entry that an earlier run has exported. */
  readonly last: Position | undefined
}

/** The entries of two logs are of two stores. */
class LogReplaced extends Data.TaggedError("LogReplaced") {}

/** Reads all entries, and hands them on, page by page. */
const exportEntries = <E, R>(
  { client, connection, epoch, job, last, note, patience }: Task,
  put: (items: ReadonlyArray<Entry>) => Effect.Effect<void, E, R>
): Effect.Effect<void, CommandFailed | LogReplaced | E, R> =>
  Effect.suspend(() => {
    let position = last
    return resumable(() => pagesAfter(client, job, position), retryWhileAway(patience, note)).pipe(
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
  failed("The log is another one now, as the store has been restored or replaced meanwhile", hint)

/** Exports to a file, and returns how many entries it has, and how many of them are from an earlier run. */
const toFile = (
  task: Omit<Task, "last" | "note">,
  options: Pick<PartialExport.Options, "path" | "manner" | "mayReplace">
) =>
  Effect.gen(function* () {
    const { client, connection, epoch, job } = task
    const partial = yield* PartialExport.begin({ ...options, origin: { url: connection.url, ...job, epoch } })
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
      Resumption.telling(
        Effect.sync(() => (count > 0 && isResumable ? [`${entries(count)} exported; go on with --resume.`] : [])),
        progress.note
      )
    )
    return { count, before: partial.entries }
  }).pipe(Effect.scoped)

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
    ...Resumption.options({
      resume: "Go on where the last export to this file has stopped",
      restart: "Export to the file from the beginning"
    }),
    ...Connection.options
  },
  ({ force, json, namespaces, output, prefix, ...given }) =>
    Effect.gen(function* () {
      const { manner, patience } = yield* Resumption.resolve(given)
      const { isTerminal, note } = yield* Output
      if (Option.isNone(output) && manner === "resume") {
        return yield* wrong("--resume takes --output", "How much of standard output has been read is not known.")
      }
      // For programs in any case, as a terminal shows what `list` prints.
      if (Option.isNone(output) && isTerminal) {
        return yield* wrong(
          "An export to a terminal is of no use",
          "Give --output, or a pipe; causeway kv list shows entries."
        )
      }
      const connection = yield* Connection.resolve(given)
      const client = yield* Connection.store(connection)
      const { epoch } = yield* endOfLog(connection)
      const job: Job = { namespaces: [...new Set(namespaces)], prefix: Option.getOrElse(prefix, () => "") }
      const task = { connection, client, job, epoch, patience }
      if (Option.isNone(output)) {
        return yield* exportEntries({ ...task, last: undefined, note }, items => write(linesOf(items))).pipe(
          Effect.catchTag("LogReplaced", () => replaced("Export again."))
        )
      }
      const path = output.value
      const { before, count } = yield* toFile(task, { path, manner, mayReplace: force })
      yield* (yield* isJson(json))
        ? record({ entries: count, file: path, resumedAtLine: before })
        : write(`${entries(count)} in ${clean(path)}\n`)
    })
).pipe(Command.withDescription("Write the entries of namespaces as lines of JSON"))
