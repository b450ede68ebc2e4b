/**
 * A database in one SQLite file: reads on the calling thread, writes in groups on a thread of their own.
 */
import { basename, dirname } from "node:path"
import { Effect, ExecutionStrategy, Runtime, Schema, Scope } from "effect"
import { StoreUnavailable } from "../../../Kv/Store.ts"
import { Limits } from "../../../Limits.ts"
import * as Monotonic from "../../../Monotonic.ts"
import * as DebugLog from "../../../Observability/DebugLog.ts"
import * as CommandLog from "./CommandLog.ts"
import type * as Damage from "./Damage.ts"
import { hasRoom } from "./Files.ts"
import type { Done, Reply, Request, Task, Unavailable, WriteFailure } from "./Messages.ts"
import { open, StoreRefused } from "./Opening.ts"
import type { ReadConnection } from "./ReadConnection.ts"
import { Reader } from "./Reader.ts"
import { StuckLocks } from "./StuckLocks.ts"
import { Writer, type WriterPlugin } from "./Writer.ts"
import * as WriterPort from "./WriterPort.ts"

/** Where a database lies, and how it is written. */
export interface Options {
  /** Made when it is missing. */
  readonly directory: string
  /**
   * Whether writes have a thread of their own (`"thread"`, the default) or block the calling one (`"inline"`), for
   * programs that are bundled into one file or cannot have threads.
   */
  readonly writer?: "thread" | "inline"
}

/** What is particular to a database. */
export interface Plugin<W, O, Q> extends WriterPlugin<W, O> {
  /** Tells the writer's thread which database this is. */
  readonly threadData: object
  readonly queries: (connection: ReadConnection) => Q
  /** How many snapshots may last over several iterations of the event loop. */
  readonly maxSnapshots: number
  /** Whether the writer is started with the first write: a thread takes 10 MiB and 45 ms. */
  readonly startsLazily: boolean
  /** Told of the newest sequence number after each reply of the writer. */
  readonly onLastSeq: (lastSeq: number) => void
  readonly reportDamage: Damage.Report
  /** What the report of a damaged page says of the write that met it. */
  readonly annotate?: (write: W) => Readonly<Record<string, unknown>>
  /** A group of writes as the debug log shows it, without what the writes hold. */
  readonly describe: (writes: ReadonlyArray<W>) => Readonly<Record<string, unknown>>
}

/** A bug in this code made a write fail; the message has the stack. */
export class WriterDefect extends Schema.TaggedError<WriterDefect>()("WriterDefect", { message: Schema.String }) {}

export interface Database<W, O, Q> {
  readonly reader: Reader<Q>
  /** The database file itself, where the one in the directory is a symbolic link. */
  readonly file: string
  /** The epoch of the log that the reader reads; `""` where the database has none. */
  readonly epoch: () => string
  /** Commits a group of writes, and tells what became of each, in order. It is given one group at a time. */
  readonly commit: (
    writes: ReadonlyArray<W>,
    now: number
  ) => Effect.Effect<ReadonlyArray<O | WriteFailure>, StoreUnavailable>
  /** Does a task in portions, with other requests in between, and tells how many records it made or removed. */
  readonly run: (task: Task, time: Effect.Effect<number>, portion: number) => Effect.Effect<number, StoreUnavailable>
  /** Waits until the writer has answered for the first time, within a limit; starts it if need be. */
  readonly started: Effect.Effect<void>
  /** Whether a write could be committed. */
  readonly isWritable: Effect.Effect<boolean>
}

/** How long the writer may take to start, as on a busy machine, before requests to it are late. */
const startLimit = "10 seconds"

/** How long a portion of a task may take, in milliseconds. */
const portionMillis = 1800

/** Opens a database, which belongs to this process until the scope closes. */
export const make = <W, O extends { readonly _tag: string }, Q>(
  options: Options,
  plugin: Plugin<W, O, Q>
): Effect.Effect<Database<W, O, Q>, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const opened = yield* open(options.directory, plugin.format)
    const { file, lock } = opened
    const { walBytes } = yield* Limits
    const debug = yield* DebugLog.make
    const runFork = Runtime.runFork(yield* Effect.runtime())
    const clock = yield* Effect.clock
    const database = basename(file)
    const stuckLocks = new StuckLocks(() => Monotonic.unsafeMillis(clock))
    let writer: WriterPort.WriterPort<W, O> | undefined
    let isOpen = true
    let isReopening = false
    let isProbing = false
    let isCheckpointing = false
    let checkpointAbove = walBytes
    let unanswered = 0
    let isLockLost = false
    let { epoch } = opened

    const reader = new Reader({ file, debug }, plugin.queries, plugin.maxSnapshots, clock, {
      // A probe shows whether the reader can be resumed.
      onSuspended: () => {
        if (isProbing || !isOpen || writer === undefined || !lock.isHeld()) return
        isProbing = true
        post({ kind: "probe" }, () => {
          isProbing = false
        })
      },
      onReplaced: reason => {
        if (isOpen && !isReopening) replace(reason)
      },
      onLocked: (reason, tried) => {
        if (isOpen && !isReopening && stuckLocks.onLocked(tried)) replace(reason)
      },
      reportDamage: plugin.reportDamage
    })
    if (epoch !== "") reader.adopt(opened.databaseId)

    const onReply = (reply: Reply<O>): void => {
      if (isOpen && !isReopening) react(reply)
    }
    const react = (reply: Reply<O>): void => {
      if (reply._tag === "Done") onDone(reply)
      else if (reply.cause === "FileMissing") reader.suspend(reply.reason)
      else if (reply.cause === "FileReplaced") replace(reply.reason)
      else if (reply.cause === "Locked" && stuckLocks.onLocked()) replace(reply.reason)
      else if (reply.cause === "Locked" && reader.isOpen) reader.snapshots.endAll(reply.reason)
      else if ((reply.cause === "Locked" || reply.cause === "DiskError") && !reader.isOpen) reader.resume()
    }
    const onDone = (reply: Done<O>): void => {
      // Only a write has shown that all locks can be taken.
      if (reply.outcomes.length > 0 || reply.count > 0) stuckLocks.onWritten()
      limitLog(reply.logBytes)
      if (reader.readsOther(reply.databaseId)) return replace("the database was replaced")
      adopt(reply)
      reader.resume()
      plugin.onLastSeq(reply.lastSeq)
    }
    /** Only a file that was opened again has another epoch, and then nothing of the old one is being read. */
    const adopt = (reply: Done<O>): void => {
      if (reply.epoch !== "") reader.adopt(reply.databaseId)
      if (reply.epoch === epoch) return
      epoch = reply.epoch
      runFork(
        Effect.annotateLogs(Effect.logWarning("the change log has a new epoch: its readers have to list again"), {
          file,
          reason: "the database was replaced"
        })
      )
    }
    /**
     * Closes all connections, and opens the file that has the name now: it may be another process's, if that took the
     * lock's file along. Replies to earlier requests open nothing before that is done.
     */
    const replace = (reason: string): void => {
      reader.close(reason)
      if (writer === undefined) return reader.resume()
      if (isReopening || !lock.isHeld()) return
      isReopening = true
      post({ kind: "reopen" }, reply => {
        isReopening = false
        onReply(reply)
      })
    }
    /** The log starts over only when no snapshot is held, so all of them end, and none begins until it has. */
    const limitLog = (logBytes: number): void => {
      if (logBytes <= walBytes) checkpointAbove = walBytes
      if (logBytes <= checkpointAbove || isCheckpointing || !lock.isHeld()) return
      isCheckpointing = true
      reader.snapshots.pause(`the write-ahead log has ${logBytes} bytes, more than ${walBytes}`)
      post({ kind: "checkpoint" }, reply => {
        isCheckpointing = false
        reader.snapshots.resume()
        // Another program prevents it: to end snapshots at each write would not help.
        const left = reply._tag === "Done" ? reply.logBytes : logBytes
        if (left > walBytes) checkpointAbove = 2 * left
      })
    }

    /** Has a request served, while the reader is out of the writer's way. */
    const post: WriterPort.WriterPort<W, O> = (request, respond) => {
      if (reader.isExclusive) {
        if (!hasRoom(dirname(file)))
          return respond({ ...WriterPort.unavailable("the disk is full"), cause: "DiskError" })
        reader.close("the database is being opened for writing")
      }
      if (unanswered++ === 0) reader.writing(true)
      writer!(request, reply => {
        if (--unanswered === 0) reader.writing(false)
        // Where it is not known, records may have been removed. The caller may be gone by now.
        if (request.kind === "trim" && (reply._tag === "Unavailable" || reply.count > 0)) reader.forget()
        respond(reply)
      })
    }
    /**
     * The same for requests of others. Nothing is acknowledged while the lock is not held: what came back then may be
     * in the database or not. From then on nothing is sent until the lock is held again.
     */
    const send = (request: Request<W>): Effect.Effect<Reply<O>> =>
      Effect.async(resume => {
        const ended =
          debug &&
          CommandLog.command(database, debug, {
            command: request.kind,
            ...(request.kind === "commit" ? plugin.describe(request.writes) : {}),
            ...("limit" in request ? { limit: request.limit } : {})
          })
        const answer = (reply: Reply<O>): void => {
          ended?.(reply._tag === "Done" ? "ok" : "failed")
          resume(Effect.succeed(reply))
        }
        const lost = `${lock.file} was taken from this process and cannot be locked again`
        if (isLockLost && !lock.isHeld()) return answer(WriterPort.unavailable(lost))
        post(request, reply => {
          isLockLost = !lock.isHeld()
          answer(isLockLost ? WriterPort.unavailable(lost) : reply)
        })
      })

    // Whenever the writer is started, it closes after those who use it, and after the reader: the last connection to
    // close copies the log into the database, which one that only reads cannot.
    const scope = yield* Scope.fork(yield* Effect.scope, ExecutionStrategy.sequential)
    const startWriter = Effect.gen(function* () {
      writer = yield* options.writer === "inline"
        ? WriterPort.inline(() => new Writer(file, plugin), onReply)
        : WriterPort.thread(() => WriterPort.startThread({ ...plugin.threadData, file }), onReply, plugin.codec)
    }).pipe(Scope.extend(scope), Effect.uninterruptible)
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        isOpen = false
        reader.close("the database is closed")
      })
    )
    const started = yield* Effect.cached(startWriter)
    const ask = (request: Request<W>) => Effect.zipRight(started, send(request))

    const probed = yield* plugin.startsLazily ? Effect.sync(() => probeOnce(file, plugin)) : ask({ kind: "probe" })
    if (plugin.startsLazily) react(probed)
    if (probed._tag === "Unavailable") {
      // Reads are served as far as the disk and others' locks allow; the writer tries again with each write.
      if ((probed.cause !== "DiskError" && probed.cause !== "Locked") || !reader.canRead()) {
        return yield* new StoreRefused({ file, reason: `cannot be opened for writing (${probed.reason})` })
      }
      yield* Effect.annotateLogs(Effect.logWarning("the store can be read and not written"), {
        database,
        reason: probed.reason
      })
    }

    const fail = (reply: Unavailable): Effect.Effect<never, StoreUnavailable> =>
      Effect.zipRight(plugin.reportDamage("write", reply.reason), failureOf(reply))
    const reportFailed = (writes: ReadonlyArray<W>, outcomes: ReadonlyArray<O | WriteFailure>) =>
      Effect.forEach(
        outcomes,
        (outcome, index) =>
          isFailed(outcome)
            ? plugin.reportDamage("write", outcome.reason, plugin.annotate?.(writes[index]!))
            : Effect.void,
        { discard: true }
      )

    const answered = Effect.timeoutOption(Effect.disconnect(ask({ kind: "probe" })), startLimit)
    const one = yield* Effect.makeSemaphore(1)
    const runPortion = (task: Task, time: Effect.Effect<number>, limit: number) =>
      Effect.flatMap(time, time => ask({ kind: task, time, limit })).pipe(
        Effect.flatMap(reply => (reply._tag === "Done" ? Effect.succeed(reply.count) : fail(reply))),
        Effect.timeoutFail({
          duration: portionMillis,
          onTimeout: () => new StoreUnavailable({ reason: `${task} takes longer than ${portionMillis} ms` })
        }),
        one.withPermits(1)
      )

    return {
      reader,
      file,
      epoch: () => epoch,
      commit: (writes, now) =>
        Effect.flatMap(ask({ kind: "commit", writes, now }), reply => {
          if (reply._tag === "Unavailable") return fail(reply)
          const { outcomes } = reply
          return outcomes.some(isFailed)
            ? Effect.as(reportFailed(writes, outcomes), outcomes)
            : Effect.succeed(outcomes)
        }),
      run: (task, time, limit) =>
        Effect.iterate(
          { total: 0, last: limit },
          {
            while: ({ last }) => last === limit,
            body: ({ total }) =>
              Effect.map(runPortion(task, time, limit), count => ({ total: total + count, last: count }))
          }
        ).pipe(Effect.map(({ total }) => total)),
      started: Effect.asVoid(yield* Effect.cached(answered)),
      isWritable: Effect.map(ask({ kind: "probe" }), ({ _tag }) => _tag === "Done")
    }
  })

const probeOnce = <W, O>(file: string, plugin: WriterPlugin<W, O>): Reply<O> => {
  const writer = new Writer(file, plugin)
  const reply = writer.handle({ kind: "probe" })
  writer.handle({ kind: "close" })
  return reply
}

const isFailed = (outcome: { readonly _tag: string }): outcome is WriteFailure => outcome._tag === "Failed"

const failureOf = ({ cause, reason }: Unavailable): Effect.Effect<never, StoreUnavailable> =>
  cause === "Defect" ? Effect.die(new WriterDefect({ message: reason })) : new StoreUnavailable({ reason })
