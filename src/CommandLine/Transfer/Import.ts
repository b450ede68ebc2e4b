/** `causeway import`: entries from lines of JSON. */
import { randomUUID } from "node:crypto"
import { constants, createReadStream } from "node:fs"
import { access, stat } from "node:fs/promises"
import { resolve } from "node:path"
import { Data, Duration, Effect, Either, Option, Ref, Stream } from "effect"
import { withoutOperation } from "../../Client/Errors.ts"
import type * as Client from "../../EffectClient/Client.ts"
import { messageOf } from "../../ErrorMessage.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"
import * as Connection from "../Connection.ts"
import * as Failure from "../Failure.ts"
import { Args, Command, Options } from "../Library.ts"
import { isJson, record, write } from "../Terminal/Output.ts"
import * as ProgressLine from "../Terminal/ProgressLine.ts"
import { retryWhileAway } from "../Retrying.ts"
import { endOfLog } from "../Service.ts"
import * as Checkpoint from "./Checkpoint.ts"
import { type Done, type Existing, type Item, learned, lineOf, portions, send } from "./ImportBatch.ts"
import { lines, parse, type TextLine } from "./Lines.ts"
import * as Resumption from "./Resumption.ts"

const maxBatchBytes = 4 * 1024 * 1024

/** A line that cannot be imported. */
class LineRefused extends Data.TaggedError("LineRefused")<{ readonly line: number; readonly problem: string }> {}

/** The entries of lines. */
const itemsOf = (lines: ReadonlyArray<TextLine>, namespace: string | undefined) =>
  Effect.gen(function* () {
    const items: Array<Item> = []
    for (const { number, text } of lines) {
      const parsed = Either.flatMap(text, text => parse(text, namespace))
      if (Either.isLeft(parsed)) return yield* new LineRefused({ line: number, problem: parsed.left })
      if (parsed.right !== undefined) items.push({ ...parsed.right, line: number })
    }
    return items
  })

/** Where the lines come from. */
interface Source {
  readonly name: string
  /** `undefined` for standard input. */
  readonly file: string | undefined
  /** Bytes, where that is known. */
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

const chunksOf = ({ file }: Source, offset: number): AsyncIterable<Uint8Array> =>
  file === undefined ? process.stdin : createReadStream(file, { start: offset, highWaterMark: 256 * 1024 })

interface Job {
  readonly connection: Connection.Connection
  readonly client: Client.Service
  readonly source: Source
  readonly namespace: string | undefined
  readonly existing: Existing
  readonly batch: number
  readonly patience: Duration.Duration
  readonly start: Checkpoint.Checkpoint
}

const none: Done = { written: 0, skipped: 0, expired: 0 }

/** What the user is told of the lines that are done. */
const toldOf = (line: number, { file }: Source): ReadonlyArray<string> => {
  if (line === 0) return []
  return file === undefined
    ? [`Lines 1 to ${line} are imported; standard input cannot be resumed: give it the lines from ${line + 1} on.`]
    : [`Lines 1 to ${line} are imported; go on with --resume.`]
}

const importEntries = ({ batch, client, connection, existing, namespace, patience, source, start }: Job) =>
  Effect.gen(function* () {
    const progress = yield* ProgressLine.make(source.size, start.offset)
    const done = yield* Ref.make(start.line)
    const retrying = retryWhileAway(patience, progress.note)
    const knowledge = yield* learned
    const refusal = (error: Client.ClientError) =>
      Effect.flatMap(Ref.get(knowledge.sent), (sent): Effect.Effect<never, CommandFailed | LineRefused> => {
        const isOfLine = error._tag === "BadRequest" || error._tag === "PayloadTooLarge"
        const line = isOfLine ? lineOf(error, sent) : undefined
        return line === undefined
          ? Failure.of(connection)(error)
          : new LineRefused({ line, problem: withoutOperation(error) })
      })
    const sendAll = (sums: Done, lines: ReadonlyArray<TextLine>) =>
      Effect.gen(function* () {
        const items = yield* itemsOf(lines, namespace)
        const { expired, skipped, written } = yield* Effect.catchAll(
          retrying(send(client, items, existing, knowledge, randomUUID())),
          refusal
        )
        yield* start.save(lines)
        for (const { end, number } of lines.slice(-1)) {
          yield* Ref.set(done, number)
          yield* progress.advance(end, items.length)
        }
        return { written: sums.written + written, skipped: sums.skipped + skipped, expired: sums.expired + expired }
      })
    /** Sends lines. Where one of them is refused, and the batch with it, those before it are sent alone. */
    const handle = (sums: Done, lines: ReadonlyArray<TextLine>): Effect.Effect<Done, CommandFailed> =>
      Effect.catchTag(sendAll(sums, lines), "LineRefused", ({ line, problem }) =>
        Effect.gen(function* () {
          const before = lines.filter(({ number }) => number < line)
          if (before.length > 0) yield* handle(sums, before)
          return yield* failed(`Line ${line}: ${problem}`, "Correct it.")
        })
      )
    return yield* Stream.fromAsyncIterable(
      portions(lines(chunksOf(source, start.offset), start), { operations: batch, bytes: maxBatchBytes }),
      error => wrong(`${source.name} cannot be read: ${messageOf(error)}`)
    ).pipe(
      Stream.runFoldEffect(none, handle),
      Resumption.telling(
        Effect.map(Ref.get(done), line => toldOf(line, source)),
        progress.note
      )
    )
  })

const describe = ({ expired, skipped, written }: Done, elapsed: Duration.Duration): string => {
  const seconds = Duration.toSeconds(elapsed)
  const rate = seconds > 0 ? `, ${Math.round(written / seconds).toLocaleString("en")}/s` : ""
  return [
    `${written.toLocaleString("en")} entries written in ${seconds.toFixed(1)} s${rate}`,
    ...(skipped > 0 ? [`${skipped.toLocaleString("en")} left out, as they were there`] : []),
    ...(expired > 0 ? [`${expired.toLocaleString("en")} left out, as their time is over`] : [])
  ].join("; ")
}

export const command = Command.make(
  "import",
  {
    file: Args.text({ name: "file" }).pipe(
      Args.withDescription("Lines of JSON as export writes them; - or nothing: standard input"),
      Args.optional
    ),
    namespace: Options.text("namespace").pipe(
      Options.withDescription("Where all entries go, whatever the lines say"),
      Options.optional
    ),
    existing: Options.choice("existing", ["replace", "skip"]).pipe(
      Options.withDescription("What to do with an entry that is there already"),
      Options.withDefault("replace" as const)
    ),
    ...Resumption.options({
      resume: "Go on where the last import of this file has stopped",
      restart: "Import the file from its beginning"
    }),
    batch: Options.integer("batch").pipe(
      Options.withPseudoName("entries"),
      Options.withDescription("Most entries in a batch"),
      Options.withDefault(1000)
    ),
    ...Connection.options
  },
  ({ batch, existing, file, json, namespace, ...given }) =>
    Effect.gen(function* () {
      if (batch < 1) return yield* wrong("--batch must be at least 1")
      const { manner, patience } = yield* Resumption.resolve(given)
      const source = yield* sourceOf(Option.getOrElse(file, () => "-"))
      if (source.file === undefined && manner === "resume") {
        return yield* wrong("--resume takes a file", "Standard input cannot be read again from where it has stopped.")
      }
      const connection = yield* Connection.resolve(given)
      const client = yield* Connection.store(connection)
      const purpose = [connection.url, Option.getOrElse(namespace, () => ""), existing]
      const start = source.file === undefined ? Checkpoint.none : yield* Checkpoint.begin(source.file, purpose, manner)
      yield* endOfLog(connection)
      const [elapsed, sums] = yield* Effect.timed(
        Effect.scoped(
          importEntries({
            connection,
            client,
            source,
            namespace: Option.getOrUndefined(namespace),
            existing,
            batch,
            patience,
            start
          })
        )
      )
      yield* start.remove
      yield* (yield* isJson(json))
        ? record({ ...sums, resumedAtLine: start.line })
        : write(`${describe(sums, elapsed)}\n`)
    })
).pipe(Command.withDescription("Write entries from lines of JSON"))
