/** `causeway import`: entries from lines of JSON. */

import { randomUUID } from "node:crypto"
import { constants, createReadStream } from "node:fs"
import { access, stat } from "node:fs/promises"
import { resolve } from "node:path"
import { Data, Duration, Effect, Either, Option, Stream } from "effect"
import { messageOf } from "../../base/ErrorMessage.ts"
import * as ExactJson from "../../base/Json/ExactJson.ts"
import type { RawJson } from "../../base/Json/JsonText.ts"
import type * as Client from "../../Client/Effect/Client.ts"
import {
  batchesOf,
  type EntryLine,
  type Existing,
  ImportBatch,
  type Imported,
  linesOf,
  noNamespace,
  nothingImported,
  parseLine,
  plus,
  type TextLine
} from "../../Client/EntryLines.ts"
import { operationIndexOf, serverTimeOf, withoutOperation } from "../../Client/Errors.ts"
import { CommandFailed, failed, wrong } from "../CommandFailed.ts"
import { choice, flag, numberOption, text } from "../CommandOptions.ts"
import * as Connection from "../Connection.ts"
import { Args, Command, Options } from "../Library.ts"
import { durationOf, endOfLog, failureOf, retryForOption, retryWhileUnavailable } from "../Service.ts"
import * as Input from "../Terminal/Input.ts"
import { answer } from "../Terminal/Output.ts"
import * as ProgressLine from "../Terminal/Progress.ts"
import * as Checkpoint from "./Checkpoint.ts"

/** An entry of a line, with the text of its value. */
type Item = EntryLine<RawJson>

/** What an import knows from the answers so far. */
interface Progressing {
  /** The latest time that the service has reported, in epoch milliseconds; 0 before. The client's clock is not used. */
  serverTime: number
  /** The entries of the batch that was sent last: errors name an entry by its index. */
  sent: ReadonlyArray<Item>
  /** The number of the last line that is done. */
  line: number
}

const operationOf = ({ expiresAt, key, namespace, value }: Item, existing: Existing) => ({
  op: "set" as const,
  namespace,
  key,
  value,
  ...(expiresAt !== undefined && { expiresAt }),
  ...(existing === "skip" && { ifVersion: 0 })
})

/** The entries of the store among these. */
const findExisting = (
  client: Client.Service,
  items: ReadonlyArray<Item>
): Effect.Effect<ReadonlyArray<Item>, Client.ClientError> =>
  Effect.map(client.getManyKeys(items), ({ items: found }) =>
    items.filter((_, index) => Option.isSome(found[index] ?? Option.none()))
  )

/**
 * Writes entries as one batch, without those that are left out by the rules of {@link ImportBatch}.
 *
 * The effect may be repeated after a lost answer: `id` is the idempotency key of its batch, so that no entry is replaced
 * twice. A batch without some of the entries has another key.
 */
const send = (
  client: Client.Service,
  items: ReadonlyArray<Item>,
  existing: Existing,
  state: Progressing,
  id: string
): Effect.Effect<Imported, Client.ClientError> => {
  const attempt = (batch: ImportBatch<Item>): Effect.Effect<Imported, Client.ClientError> =>
    Effect.gen(function* () {
      const { entries } = batch
      if (entries.length === 0) return batch.outcome
      state.sent = entries
      // With a precondition the batch is applied once anyway.
      const options = existing === "skip" ? {} : { idempotencyKey: `${id}-${entries.length}` }
      const operations = entries.map(item => operationOf(item, existing))
      const written = yield* Effect.either(client.batch(operations, options))
      return Either.isLeft(written) ? yield* afterRefusal(written.left, batch) : batch.outcome
    })
  const afterRefusal = (error: Client.ClientError, batch: ImportBatch<Item>) =>
    Effect.gen(function* () {
      if (existing === "skip" && error._tag === "PreconditionFailed") {
        // If the entry was deleted since then, none is found, and the same batch may succeed.
        return yield* attempt(batch.withoutExisting(yield* findExisting(client, batch.entries)))
      }
      const now = serverTimeOf(error)
      const smaller = now === undefined ? undefined : batch.withoutExpired(now)
      if (now === undefined || smaller === undefined) return yield* error
      state.serverTime = Math.max(state.serverTime, now)
      return yield* attempt(smaller)
    })
  return Effect.suspend(() => attempt(ImportBatch.of(items, existing, state.serverTime)))
}

const maxBatchBytes = 4 * 1024 * 1024

class LineRefused extends Data.TaggedError("LineRefused")<{ readonly line: number; readonly problem: string }> {}

/** The entries of lines; fails at the first invalid one. */
const itemsOf = (
  lines: ReadonlyArray<TextLine>,
  namespace: string | undefined
): Effect.Effect<ReadonlyArray<Item>, LineRefused> =>
  Effect.gen(function* () {
    const items: Array<Item> = []
    for (const line of lines) {
      const parsed = parseLine(line, { namespace, replaces: true }, ExactJson.readMembers)
      if (parsed === undefined) continue
      if (!("problem" in parsed)) items.push(parsed)
      else {
        const advice = parsed.problem === noNamespace ? "; --namespace gives one to all entries" : ""
        return yield* new LineRefused({ line: parsed.line, problem: `${parsed.problem}${advice}` })
      }
    }
    return items
  })

/** Where the lines come from. */
interface Source {
  readonly name: string
  /** `undefined` for standard input. */
  readonly file: string | undefined
  /** In bytes; `undefined` for standard input. */
  readonly size: number | undefined
}

const sourceOf = (name: string): Effect.Effect<Source, CommandFailed> =>
  name === "-"
    ? Effect.succeed({ name: "standard input", file: undefined, size: undefined })
    : Effect.tryPromise({
        try: async () => {
          const found = await stat(name)
          if (!found.isFile()) throw new Error("it is not a file")
          await access(name, constants.R_OK)
          return { name, file: resolve(name), size: found.size }
        },
        catch: error => wrong(`${name} cannot be read: ${messageOf(error)}`)
      })

interface Job {
  readonly connection: Connection.Connection
  readonly client: Client.Service
  readonly source: Source
  readonly namespace: string | undefined
  readonly existing: Existing
  /** The maximum number of entries of a batch. */
  readonly batch: number
  readonly retryFor: Duration.Duration
  readonly start: Checkpoint.Checkpoint
}

/** The lines of the source in batches, from where an earlier run has stopped. */
const readSource = ({ batch, source, start }: Job): Stream.Stream<ReadonlyArray<TextLine>, CommandFailed> => {
  const chunks: AsyncIterable<Uint8Array> =
    source.file === undefined
      ? process.stdin
      : createReadStream(source.file, { start: start.offset, highWaterMark: 256 * 1024 })
  return Stream.fromAsyncIterable(batchesOf(linesOf(chunks, start), { lines: batch, bytes: maxBatchBytes }), error =>
    wrong(`${source.name} cannot be read: ${messageOf(error)}`)
  )
}

/** A refused batch as the failure of the line that the service names, or of the command. */
const refusalOf = (
  { connection }: Job,
  { sent }: Progressing,
  error: Client.ClientError
): Effect.Effect<never, CommandFailed | LineRefused> => {
  const isOfLine = error._tag === "BadRequest" || error._tag === "PayloadTooLarge"
  const line = isOfLine ? sent[operationIndexOf(error) ?? -1]?.line : undefined
  return line === undefined ? failureOf(connection)(error) : new LineRefused({ line, problem: withoutOperation(error) })
}

/** Sends one batch of lines and records that they are done. */
const sendBatch = (
  job: Job,
  lines: ReadonlyArray<TextLine>,
  state: Progressing,
  progress: ProgressLine.ProgressLine
): Effect.Effect<Imported, CommandFailed | LineRefused> =>
  Effect.gen(function* () {
    const items = yield* itemsOf(lines, job.namespace)
    const imported = yield* send(job.client, items, job.existing, state, randomUUID()).pipe(
      retryWhileUnavailable(job.retryFor, progress.note),
      Effect.catchAll(error => refusalOf(job, state, error))
    )
    yield* job.start.save(lines)
    for (const { end, number } of lines.slice(-1)) {
      state.line = number
      yield* progress.advance(end, items.length)
    }
    return imported
  })

/** How far an import has come, and how to continue it. */
const progressText = (line: number, { file }: Source): ReadonlyArray<string> => {
  if (line === 0) return []
  return file === undefined
    ? [`Lines 1 to ${line} are imported. Standard input cannot be resumed: send it the lines from ${line + 1} on.`]
    : [`Lines 1 to ${line} are imported; continue with --resume.`]
}

/** Reports how far an import has come, and how to continue, if it fails or is interrupted. */
const reportProgress =
  (sentences: () => ReadonlyArray<string>, note: (text: string) => Effect.Effect<void>) =>
  <A, R>(command: Effect.Effect<A, CommandFailed, R>): Effect.Effect<A, CommandFailed, R> =>
    command.pipe(
      Effect.onInterrupt(() => Effect.suspend(() => Effect.forEach(sentences(), note, { discard: true }))),
      Effect.mapError(({ exitCode, hint, message }) => {
        const hints = [...(hint === undefined ? [] : [hint]), ...sentences()]
        return new CommandFailed({ message, exitCode, ...(hints.length > 0 && { hint: hints.join(" ") }) })
      })
    )

/** Imports all lines of the source. */
const importEntries = (job: Job) =>
  Effect.gen(function* () {
    const { source, start } = job
    const progress = yield* ProgressLine.make(source.size, start.offset)
    const state: Progressing = { serverTime: 0, sent: [], line: start.line }
    /** Sends lines. If one of them is refused, and the batch with it, those before it are sent alone. */
    const sendLines = (sums: Imported, lines: ReadonlyArray<TextLine>): Effect.Effect<Imported, CommandFailed> =>
      sendBatch(job, lines, state, progress).pipe(
        Effect.map(imported => plus(sums, imported)),
        Effect.catchTag("LineRefused", ({ line, problem }) => {
          const before = lines.filter(({ number }) => number < line)
          const refused = failed(`Line ${line}: ${problem}`, "Correct it.")
          return before.length === 0 ? refused : Effect.zipRight(sendLines(sums, before), refused)
        })
      )
    return yield* Stream.runFoldEffect(readSource(job), nothingImported, sendLines).pipe(
      reportProgress(() => progressText(state.line, source), progress.note)
    )
  })

const describe = ({ expired, skipped, written }: Imported, elapsed: Duration.Duration): string => {
  const seconds = Duration.toSeconds(elapsed)
  const rate = seconds > 0 ? `, ${Math.round(written / seconds).toLocaleString("en")}/s` : ""
  return [
    `${written.toLocaleString("en")} entries written in ${seconds.toFixed(1)} s${rate}`,
    ...(skipped > 0 ? [`${skipped.toLocaleString("en")} skipped: already present`] : []),
    ...(expired > 0 ? [`${expired.toLocaleString("en")} skipped: expired`] : [])
  ].join("; ")
}

/** `causeway import [file]`. */
export const command = Command.make(
  "import",
  {
    file: Args.text({ name: "file" }).pipe(
      Args.withDescription("Lines of JSON as export writes them; - or nothing: standard input"),
      Args.optional
    ),
    namespace: text("namespace", "The namespace of all entries, instead of that of each line"),
    existing: choice("existing", ["replace", "skip"]).pipe(
      Options.withDescription("What to do with an entry that exists already; default replace"),
      Options.withPseudoName("replace | skip"),
      Options.withDefault("replace" as const)
    ),
    resume: flag("resume", "Continue where the last import of this file stopped"),
    restart: flag("restart", "Import the file from its beginning"),
    retryFor: retryForOption,
    batch: numberOption("batch", "entries", "Maximum number of entries in a batch", 1000),
    ...Connection.options
  },
  ({ batch, existing, file, json, namespace, restart, resume, retryFor: seconds, ...given }) =>
    Effect.gen(function* () {
      if (batch < 1) return yield* wrong("--batch must be at least 1")
      const retryFor = yield* durationOf(seconds)
      if (resume && restart) return yield* wrong("--resume and --restart exclude each other")
      const source = yield* sourceOf(Option.getOrElse(file, () => "-"))
      if (source.file === undefined && resume) {
        return yield* wrong("--resume requires a file", "Standard input cannot be read again from where it stopped.")
      }
      const { client, connection } = yield* Connection.openStore(given)
      const purpose = [connection.url, Option.getOrElse(namespace, () => ""), existing]
      const mode = resume ? "resume" : restart ? "restart" : "refuse"
      const start = source.file === undefined ? Checkpoint.none : yield* Checkpoint.open(source.file, purpose, mode)
      // An unreachable service fails here, before anything is read.
      yield* endOfLog(connection)
      if (source.file === undefined) yield* Input.noteReading
      const job = { connection, client, source, existing, batch, retryFor, start }
      const [elapsed, sums] = yield* Effect.timed(
        Effect.scoped(importEntries({ ...job, namespace: Option.getOrUndefined(namespace) }))
      )
      yield* start.remove
      yield* answer(json, { ...sums, resumedAtLine: start.line }, () => `${describe(sums, elapsed)}\n`)
    })
).pipe(Command.withDescription("Write entries from lines of JSON"))
