/** A database in one SQLite file: reads on the calling thread, writes in groups on a separate thread. */
import { basename, dirname } from "node:path"
import { type Clock, Duration, Effect, Schema, type Scope } from "effect"
import { Limits } from "../../../base/Limits.ts"
import * as DebugLog from "../../../base/Observability/DebugLog.ts"
import * as Monotonic from "../../../base/Time/Monotonic.ts"
import { StoreUnavailable } from "../../../Kv/Store.ts"
import { hasRoom } from "./Files.ts"
import { type Opened, open, StoreRefused } from "./Opening.ts"
import { logCommand, type ReadConnection } from "./ReadConnection.ts"
import { Reader, type ReportDamage } from "./Reader.ts"
import { Recovery } from "./Recovery.ts"
import { Writer, type WriterPlugin } from "./Writer.ts"
import type { Reply, Request, Task, Unavailable, WriteFailure } from "./WriterPort.ts"
import * as WriterPort from "./WriterPort.ts"

/** The directory of a database, and how it is written. */
export interface Options {
  /** Created when it is missing. */
  readonly directory: string
  /**
   * Whether writes run on a separate thread (`"thread"`, the default) or block the calling one (`"inline"`), for
   * programs that are bundled into one file or cannot have threads.
   */
  readonly writer?: "thread" | "inline"
}

/** What differs between databases. */
export interface Plugin<W, O, Q> extends WriterPlugin<W, O> {
  /** Sent to the writer's thread, so that it knows which database this is. */
  readonly threadData: object
  readonly queries: (connection: ReadConnection) => Q
  /** The maximum number of snapshots that last over several iterations of the event loop. */
  readonly maxSnapshots: number
  /** Whether the writer is started with the first write: a thread takes 10 MiB and 45 ms. */
  readonly startsLazily: boolean
  /** Called with the newest sequence number after each successful reply of the writer. */
  readonly onLastSeq: (lastSeq: number) => void
  readonly reportDamage: ReportDamage
  /** Annotations for the report of a damaged page that a write met. */
  readonly annotate?: (write: W) => Readonly<Record<string, unknown>>
  /** A group of writes as the debug log shows it, without their values. */
  readonly describe: (writes: ReadonlyArray<W>) => Readonly<Record<string, unknown>>
}

/** A write failed because of a bug in this code; the message has the stack. */
export class WriterDefect extends Schema.TaggedError<WriterDefect>()("WriterDefect", { message: Schema.String }) {}

export interface Database<W, O, Q> {
  readonly reader: Reader<Q>
  /** The database file itself, if the one in the directory is a symbolic link. */
  readonly file: string
  /** The epoch of the log that the reader reads; `""` if the database has none. */
  readonly epoch: () => string
  /** Commits one group at a time, at `now` (epoch milliseconds). Returns an outcome for each write, in order. */
  readonly commit: (
    writes: ReadonlyArray<W>,
    now: number
  ) => Effect.Effect<ReadonlyArray<O | WriteFailure>, StoreUnavailable>
  /**
   * Runs a task in portions of at most `portion` records, with other requests in between. `time` is the task's time in
   * epoch milliseconds, read before each portion. Returns how many records the task created or removed.
   */
  readonly run: (task: Task, time: Effect.Effect<number>, portion: number) => Effect.Effect<number, StoreUnavailable>
  readonly started: Effect.Effect<void>
  /** Whether a write could be committed, as found by one within the last second. */
  readonly isWritable: Effect.Effect<boolean>
}

/** How long the writer may take to start, as on a busy machine. */
const startTimeout = Duration.seconds(10)

/** How long the outcome of a commit says whether another one is possible. */
const findingMillis = 1000

const portionTimeout = Duration.millis(1800)

/** Opens a database. This process owns it until the scope closes. */
export const make = <W, O extends { readonly _tag: string }, Q>(
  options: Options,
  plugin: Plugin<W, O, Q>
): Effect.Effect<Database<W, O, Q>, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const opened = yield* open(options.directory, plugin.format)
    const { file } = opened
    const { walBytes } = yield* Limits
    const debug = yield* DebugLog.make
    const clock = yield* Effect.clock
    // The writer closes after its users and after the reader. The last connection to close copies the log into the
    // database, and a connection that only reads cannot do so.
    const onReply = (reply: Reply<O>): void => recovery.onReply(reply)
    const writer: WriterPort.WriterPort<W, O> = yield* options.writer === "inline"
      ? WriterPort.inline(() => new Writer(file, plugin), onReply)
      : WriterPort.thread(
          () => WriterPort.startThread("WriterThread", "sqlite-writer", { ...plugin.threadData, file }),
          onReply
        )

    let unanswered = 0
    /** Sends a request to the writer, after everything that must not run at the same time was stopped. */
    const post: WriterPort.WriterPort<W, O> = (request, respond) => {
      if (reader.isExclusive) {
        if (!hasRoom(dirname(file)))
          return respond({ ...WriterPort.unavailable("the disk is full"), cause: "DiskError" })
        reader.close("the database is being opened for writing")
      }
      if (unanswered++ === 0) reader.writing(true)
      writer(request, reply => {
        if (--unanswered === 0) reader.writing(false)
        // If the outcome is unknown, records may have been removed. The caller may have been interrupted.
        if (request.kind === "trim" && (reply._tag === "Unavailable" || reply.count > 0)) reader.forget()
        respond(reply)
      })
    }
    const recovery = new Recovery<O, Q>({
      opened,
      walBytes,
      clock,
      runtime: yield* Effect.runtime<never>(),
      makeReader: listener =>
        new Reader({ file, debug }, plugin.queries, plugin.maxSnapshots, clock, plugin.reportDamage, listener),
      post,
      onLastSeq: plugin.onLastSeq
    })
    const { reader } = recovery
    yield* Effect.addFinalizer(() => Effect.sync(() => recovery.close()))
    const { ask, isWritable } = observed(sender(opened, post, plugin.describe, debug), clock)

    const probed = yield* plugin.startsLazily ? Effect.sync(() => probeOnce(file, plugin)) : ask({ kind: "probe" })
    if (plugin.startsLazily) onReply(probed)
    if (probed._tag === "Unavailable") yield* requireReadable(file, reader, probed)

    const answered = Effect.timeoutOption(Effect.disconnect(ask({ kind: "probe" })), startTimeout)
    return {
      reader,
      file,
      epoch: () => recovery.epoch,
      commit: commitBy(ask, plugin),
      run: runBy(ask, plugin.reportDamage, yield* Effect.makeSemaphore(1)),
      started: Effect.asVoid(yield* Effect.cached(answered)),
      isWritable
    }
  })

type Ask<W, O> = (request: Request<W>) => Effect.Effect<Reply<O>>

/**
 * Sends requests of callers. No request is acknowledged while the lock is not held: its effects may be in another
 * process's database. After such a reply, no request is sent until the lock is held again.
 */
const sender = <W, O>(
  { file, lock }: Opened,
  post: WriterPort.WriterPort<W, O>,
  describe: Plugin<W, O, never>["describe"],
  debug: DebugLog.DebugLog | undefined
): Ask<W, O> => {
  let isLockLost = false
  const lost = `${lock.file} was taken from this process and cannot be locked again`
  return request =>
    Effect.async(resume => {
      const ended =
        debug &&
        logCommand(basename(file), debug, {
          command: request.kind,
          ...(request.kind === "commit" ? describe(request.writes) : {}),
          ...("limit" in request ? { limit: request.limit } : {})
        })
      const answer = (reply: Reply<O>): void => {
        ended?.(reply._tag === "Done" ? "ok" : "failed")
        resume(Effect.succeed(reply))
      }
      if (isLockLost && !lock.isHeld()) return answer(WriterPort.unavailable(lost))
      post(request, reply => {
        isLockLost = !lock.isHeld()
        answer(isLockLost ? WriterPort.unavailable(lost) : reply)
      })
    })
}

const observed = <W, O extends { readonly _tag: string }>(send: Ask<W, O>, clock: Clock.Clock) => {
  /** Whether the last transaction that had to write was committed. */
  let found = { at: Number.NEGATIVE_INFINITY, isWritable: true }
  let lastSeq = 0
  const note = ({ kind }: Request<W>, reply: Reply<O>): void => {
    const isDone = reply._tag === "Done"
    const hasGrown = isDone && reply.lastSeq > lastSeq
    if (isDone) lastSeq = reply.lastSeq
    if (kind !== "commit" && kind !== "touch") return
    // A failed write may be the only one that fails.
    if (isDone && reply.outcomes.some(isFailed)) return
    // A commit that adds no change, as after refused preconditions, succeeds on a full disk.
    if (isDone && kind === "commit" && !hasGrown) return
    found = { at: Monotonic.unsafeMillis(clock), isWritable: isDone }
  }
  const ask: Ask<W, O> = request => Effect.tap(send(request), reply => Effect.sync(() => note(request, reply)))
  // A touch costs a flush of the disk, and anonymous clients may ask.
  const isWritable = Effect.suspend(() =>
    Monotonic.unsafeMillis(clock) - found.at < findingMillis
      ? Effect.succeed(found.isWritable)
      : Effect.map(ask({ kind: "touch" }), ({ _tag }) => _tag === "Done")
  )
  return { ask, isWritable }
}

const probeOnce = <W, O>(file: string, plugin: WriterPlugin<W, O>): Reply<O> => {
  const writer = new Writer(file, plugin)
  const reply = writer.handle({ kind: "probe" })
  writer.handle({ kind: "close" })
  return reply
}

/**
 * Accepts a database that cannot be written, if a full disk or another process's lock prevents it and reads are
 * possible. The writer tries again with each write.
 */
const requireReadable = (file: string, reader: Reader<unknown>, { cause, reason }: Unavailable) =>
  (cause !== "DiskError" && cause !== "Locked") || !reader.canRead()
    ? new StoreRefused({ file, reason: `cannot be opened for writing (${reason})` })
    : Effect.annotateLogs(Effect.logWarning("the store can be read and not written"), {
        database: basename(file),
        reason
      })

const commitBy =
  <W, O extends { readonly _tag: string }>(
    ask: Ask<W, O>,
    { annotate, reportDamage }: Pick<Plugin<W, O, never>, "annotate" | "reportDamage">
  ): Database<W, O, never>["commit"] =>
  (writes, now) =>
    Effect.flatMap(ask({ kind: "commit", writes, now }), reply => {
      if (reply._tag === "Unavailable") return fail(reportDamage, reply)
      const { outcomes } = reply
      if (!outcomes.some(isFailed)) return Effect.succeed(outcomes)
      const reportFailed = Effect.forEach(
        outcomes,
        (outcome, index) =>
          isFailed(outcome) ? reportDamage("write", outcome.reason, annotate?.(writes[index]!)) : Effect.void,
        { discard: true }
      )
      return Effect.as(reportFailed, outcomes)
    })

/** Runs one portion of a task at a time; `one` is a semaphore with one permit. */
const runBy = <W, O>(
  ask: Ask<W, O>,
  reportDamage: ReportDamage,
  one: Effect.Semaphore
): Database<W, O, never>["run"] => {
  const runPortion = (task: Task, time: Effect.Effect<number>, limit: number) =>
    Effect.flatMap(time, time => ask({ kind: task, time, limit })).pipe(
      Effect.flatMap(reply => (reply._tag === "Done" ? Effect.succeed(reply.count) : fail(reportDamage, reply))),
      Effect.timeoutFail({
        duration: portionTimeout,
        onTimeout: () =>
          new StoreUnavailable({ reason: `${task} takes longer than ${Duration.toMillis(portionTimeout)} ms` })
      }),
      one.withPermits(1)
    )
  return (task, time, limit) =>
    Effect.iterate(
      { total: 0, last: limit },
      {
        while: ({ last }) => last === limit,
        body: ({ total }) => Effect.map(runPortion(task, time, limit), count => ({ total: total + count, last: count }))
      }
    ).pipe(Effect.map(({ total }) => total))
}

const isFailed = (outcome: { readonly _tag: string }): outcome is WriteFailure => outcome._tag === "Failed"

const fail = (reportDamage: ReportDamage, { cause, reason }: Unavailable): Effect.Effect<never, StoreUnavailable> =>
  Effect.zipRight(
    reportDamage("write", reason),
    cause === "Defect" ? Effect.die(new WriterDefect({ message: reason })) : new StoreUnavailable({ reason })
  )
