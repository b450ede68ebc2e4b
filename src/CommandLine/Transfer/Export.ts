/** `causeway export`: entries as lines of JSON. */
import { type Duration, Effect, Option, Stream } from "effect"
import type { Entry } from "../../Client/Model.ts"
import type { Service } from "../../EffectClient/Client.ts"
import * as ExactJson from "../../Json/ExactJson.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import * as Connection from "../Connection.ts"
import { countOf } from "../Entries/List.ts"
import * as Failure from "../Failure.ts"
import { Args, Command, Options } from "../Library.ts"
import { durationOf, retryForOption, retryWhileUnavailable } from "../Retrying.ts"
import { endOfLog } from "../Service.ts"
import { isJson, Output, record, write } from "../Terminal/Output.ts"
import * as ProgressLine from "../Terminal/ProgressLine.ts"
import { cleanName } from "../Terminal/Text.ts"
import * as ExportFile from "./ExportFile.ts"
import { type Job, type Position, pagesAfter, resumable } from "./ExportJob.ts"

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
}

/** Reads all entries and passes them to `put`, page by page. */
const exportEntries = <E, R>(
  { client, connection, epoch, job, note, retryFor }: Task,
  put: (items: ReadonlyArray<Entry>) => Effect.Effect<void, E, R>
): Effect.Effect<void, CommandFailed | E, R> =>
  Effect.suspend(() => {
    let position: Position | undefined
    return resumable(() => pagesAfter(client, job, position), retryWhileUnavailable(retryFor, note)).pipe(
      Stream.mapError(Failure.of(connection)),
      Stream.runForEach((page): Effect.Effect<void, CommandFailed | E, R> => {
        // The entries of another log do not belong to the same export.
        if (page.epoch !== epoch) {
          return failed("The store has been restored or replaced during the export", "Export again.")
        }
        return Effect.tap(put(page.items), () => {
          position = page.items.at(-1) ?? position
        })
      })
    )
  })

/** Exports to a file. Returns the number of its entries. */
const toFile = (task: Omit<Task, "note">, path: string, mayReplace: boolean) =>
  Effect.gen(function* () {
    const file = yield* ExportFile.open(path, mayReplace)
    const total = process.stderr.isTTY ? yield* totalOf(task.client, task.connection, task.job) : undefined
    const progress = yield* ProgressLine.make(total, 0)
    let count = 0
    const put = (items: ReadonlyArray<Entry>) =>
      Effect.zipRight(
        file.append(linesOf(items)),
        Effect.suspend(() => {
          count += items.length
          return progress.advance(count, items.length)
        })
      )
    yield* exportEntries({ ...task, note: progress.note }, put)
    yield* file.complete
    return count
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
        yield* exportEntries({ ...task, note }, put)
        // Nothing else would show that a name is mistyped.
        return yield* isEmpty ? note("There are no such entries.") : Effect.void
      }
      const path = output.value
      const count = yield* toFile(task, path, force)
      yield* (yield* isJson(json))
        ? record({ entries: count, file: path })
        : write(`${entries(count)} are in ${cleanName(path)}\n`)
    })
).pipe(Command.withDescription("Write the entries of namespaces as lines of JSON"))
