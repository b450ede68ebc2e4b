/**
 * The store in one SQLite database: reads on the main thread, writes in groups on a thread of their own.
 */
import { basename, dirname } from "node:path"
import { Cause, Clock, Context, Duration, Effect, Either, Exit, Layer, Option, Schema, type Scope } from "effect"
import { ChangeLog, HistoryTrimmed } from "../Kv/ChangeLog.ts"
import { commitOf, PreconditionFailed, Store, type StoreBusy, StoreUnavailable } from "../Kv/Store.ts"
import type { Committed, Write } from "../Kv/Write.ts"
import { Limits } from "../Limits.ts"
import * as Monotonic from "../Monotonic.ts"
import * as DebugLog from "../Observability/DebugLog.ts"
import * as GroupCommit from "./GroupCommit.ts"
import * as Outage from "./Outage.ts"
import { Signal } from "./Signal.ts"
import { format } from "./Sqlite/Database/FileIdentity.ts"
import type { Lock } from "./Sqlite/Database/Lock.ts"
import { open } from "./Sqlite/Database/Opening.ts"
import { Reader } from "./Sqlite/Database/Reader.ts"
import { StoreRefused } from "./Sqlite/Database/StoreRefused.ts"
import { StuckLocks } from "./Sqlite/Database/StuckLocks.ts"
import * as WriterPort from "./Sqlite/Database/WriterPort.ts"
import type { Away, Outcome, Reply, Request } from "./Sqlite/Kv/Messages.ts"
import type { TrimmedBefore } from "./Sqlite/Kv/Queries.ts"
import * as StoreMetrics from "./StoreMetrics.ts"

export { StoreRefused } from "./Sqlite/Database/StoreRefused.ts"

/** Where the store lies, and how it writes. */
export interface Options {
  /** Made when it is missing; the database is the file `kv.db` in it. */
  readonly directory: string
  /**
   * Whether writes have a thread of their own (`"thread"`, the default), or block the calling one (`"inline"`), for
   * where a program is bundled into one file or threads are not to be had.
   */
  readonly writer?: "thread" | "inline"
}

/** How long expiry, retention and probes wait for the writer, in milliseconds. */
const patience = 1800

/** Entries that one transaction expires, and records that one removes: others get their turn in between. */
const expiryPortion = 2000
const trimPortion = 200

/** The writer failed by a fault of its own; the message has the stack. It never leaves this file as a failure. */
class WriterDefect extends Schema.TaggedError<WriterDefect>()("WriterDefect", { message: Schema.String }) {}

/** The ports of a store in a directory, which belongs to it until the scope closes. */
export const make = (options: Options): Effect.Effect<Context.Context<Store | ChangeLog>, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const { file, lock } = yield* open(options.directory, format)
    const { walBytes, wholeLists } = yield* Limits
    const debug = yield* DebugLog.make
    const reader = new Reader(file, wholeLists, debug)
    const signal = new Signal(0)
    const writer = yield* makePort({ ...options, file }, lock, reader, signal, walBytes)
    const port = WriterPort.logged(writer, debug, basename(file), describe)

    const opened = yield* port.send({ kind: "probe" })
    if (opened._tag === "Away") {
      // What a disk still gives is served; the writer tries again with each write.
      if ((opened.obstacle !== "disk" && opened.obstacle !== "locked") || !reader.isReading) {
        return yield* new StoreRefused({ file, reason: `cannot be opened for writing (${opened.reason})` })
      }
      yield* Effect.annotateLogs(Effect.logWarning("the store can be read and not written"), "reason", opened.reason)
    }
    StoreMetrics.register()
    const group = yield* GroupCommit.make<Write, Committed, WriteError>({
      commit: (writes, now) => Effect.flatMap(port.send({ kind: "commit", writes, now }), outcomesOf),
      weigh,
      observe: StoreMetrics.observe,
      outage: Outage.make("writing")
    })

    const send = (request: Request): Effect.Effect<Reply> =>
      Effect.async(resume =>
        port.post(request, reply => {
          // Where nobody can tell, records may have been removed. Whoever asked may be gone by now.
          if (request.kind === "trim" && (reply._tag === "Away" || reply.count > 0)) reader.forget()
          resume(Effect.succeed(reply))
        })
      )

    const maintenance = yield* Effect.makeSemaphore(1)
    const ask = (request: Request): Effect.Effect<number, StoreUnavailable> =>
      Effect.flatMap(send(request), reply =>
        reply._tag === "Done" ? Effect.succeed(reply.count) : failureOf(reply)
      ).pipe(
        Effect.timeoutFail({
          duration: patience,
          onTimeout: () => new StoreUnavailable({ reason: `${request.kind} takes longer than ${patience} ms` })
        }),
        maintenance.withPermits(1)
      )
    const inPortions = (size: number, portion: Effect.Effect<number, StoreUnavailable>) =>
      Effect.iterate(
        { total: 0, last: size },
        {
          while: ({ last }) => last === size,
          body: ({ total }) => Effect.map(portion, count => ({ total: total + count, last: count }))
        }
      ).pipe(Effect.map(({ total }) => total))

    const store = Store.of({
      get: (namespace, key) =>
        reader.read((connection, now) => Option.fromNullable(connection.get(namespace, key, now))),
      unsafeGet: (namespace, key, now) =>
        reader.unsafeRead(connection => Option.fromNullable(connection.get(namespace, key, now))),
      list: query =>
        reader.read((connection, now) =>
          connection.inSnapshot(() => ({
            ...connection.entries({ ...query, now }),
            lastSeq: connection.lastSeq()
          }))
        ),
      listPrinted: query =>
        reader.read((connection, now) =>
          connection.inSnapshot(() => ({
            ...connection.printedEntries({ ...query, now }),
            lastSeq: connection.lastSeq()
          }))
        ),
      listAll: selection => reader.listAll(selection),
      commit: commitOf((write, complete) =>
        group.unsafeSubmit(write, exit => complete(Exit.mapErrorCause(exit, told)))
      ),
      ready: Effect.gen(function* () {
        if (group.isStuck()) return false
        const reply = yield* port.send({ kind: "probe" })
        yield* reader.read(connection => connection.lastSeq())
        return reply._tag === "Done"
      }).pipe(
        Effect.timeoutTo({ duration: "1 second", onSuccess: answer => answer, onTimeout: () => false }),
        Effect.catchAll(() => Effect.succeed(false))
      )
    })

    const log = ChangeLog.of({
      read: query =>
        Effect.flatMap(
          reader.readTimeless(connection => connection.changes(query)),
          orTrimmed
        ),
      printed: {
        read: query =>
          Effect.flatMap(
            reader.readTimeless(connection => connection.printedChanges(query)),
            orTrimmed
          ),
        history: reader.history
      },
      lastSeq: reader.read(connection => connection.lastSeq()),
      awaitPast: seq => signal.awaitPast(seq),
      trim: age =>
        Effect.flatMap(Clock.currentTimeMillis, now =>
          inPortions(trimPortion, ask({ kind: "trim", before: now - Duration.toMillis(age), limit: trimPortion }))
        ),
      expire: inPortions(
        expiryPortion,
        Effect.flatMap(Clock.currentTimeMillis, now => ask({ kind: "expire", now, limit: expiryPortion }))
      )
    })

    return Context.make(Store, store).pipe(Context.add(ChangeLog, log))
  })

/** The way to the writer, with the reader kept in step with what the writer finds. */
const makePort = (
  options: Options & { readonly file: string },
  lock: Lock,
  reader: Reader,
  signal: Signal,
  walBytes: number
) =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const stuck = new StuckLocks(() => Monotonic.unsafeMillis(clock))
    let isOpen = true
    let isReopening = false
    const onReply = (reply: Reply): void => {
      if (isOpen && !isReopening) react(reply)
    }
    const react = (reply: Reply): void => {
      if (reply._tag === "Done") {
        // Only a write has shown that all locks can be had.
        if (reply.outcomes.length > 0 || reply.count > 0) stuck.onDone()
        relieve(reply.logBytes)
        if (reader.isElsewhere(reply.databaseId)) replace("the database was replaced")
        else {
          reader.open(reply.databaseId)
          signal.raise(reply.lastSeq)
        }
      } else if (reply.obstacle === "disk" && !reader.isOpen) reader.open(undefined)
      else if (reply.obstacle === "missing") reader.suspend(reply.reason)
      else if (reply.obstacle === "replaced") replace(reply.reason)
      else if (reply.obstacle === "locked") {
        if (stuck.onLocked()) replace(reply.reason)
        else if (reader.isOpen) reader.cutSnapshots(reply.reason)
        else reader.open(undefined)
      }
    }
    // Closes all connections to the file that was opened, and opens what stands in its place now: that may be another
    // process's, if it took the lock's file along. Replies to earlier requests open nothing before that is done.
    const replace = (reason: string): void => {
      reader.close(reason)
      if (isReopening || !lock.isHeld()) return
      isReopening = true
      port.post({ kind: "reopen" }, reply => {
        isReopening = false
        if (isOpen) react(reply)
      })
    }
    reader.onLocked = (reason, tried) => {
      if (isOpen && !isReopening && stuck.onLocked(tried)) replace(reason)
    }
    let cutAbove = walBytes
    let isRelieving = false
    // The log only starts over when no snapshot is held, so all lists have to go, and none may begin until it has.
    const relieve = (logBytes: number): void => {
      if (logBytes <= walBytes) cutAbove = walBytes
      if (logBytes <= cutAbove || isRelieving || !lock.isHeld()) return
      isRelieving = true
      reader.pause(`the write-ahead log has ${logBytes} bytes, more than ${walBytes}`)
      port.post({ kind: "checkpoint" }, reply => {
        isRelieving = false
        reader.resume()
        // Others than this process hold it up: to cut lists as often as there is a write would not help.
        const left = reply._tag === "Done" ? reply.logBytes : logBytes
        if (left > walBytes) cutAbove = 2 * left
      })
    }
    const make = options.writer === "inline" ? WriterPort.makeInline : WriterPort.makeThread
    const writer = WriterPort.afterAlone(yield* make({ file: options.file, onReply }), reader, dirname(options.file))
    const port: WriterPort.WriterPort = WriterPort.watch(writer, isBusy => reader.writing(isBusy))
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        isOpen = false
        reader.close("the store is closed")
      })
    )
    const lost = `${lock.file} was taken from this process and cannot be locked anew`
    return WriterPort.guard(port, lock.isHeld, lost)
  })

/** A request to the writer as debug logs show it: names and values of entries are left out. */
const describe = (request: Request): Readonly<Record<string, unknown>> => {
  switch (request.kind) {
    case "commit": {
      const operations = request.writes.reduce((sum, write) => sum + write.operations.length, 0)
      return { writes: request.writes.length, operations }
    }
    case "expire":
    case "trim":
      return { limit: request.limit }
    default:
      return {}
  }
}

const orTrimmed = <A extends object>(page: A | TrimmedBefore): Effect.Effect<A, HistoryTrimmed> =>
  "_tag" in page ? new HistoryTrimmed({ trimmedSeq: page.trimmedSeq }) : Effect.succeed(page)

const weigh = ({ operations }: Write): GroupCommit.Weight => {
  let bytes = 0
  for (const operation of operations) {
    bytes += 64 + operation.namespace.length + operation.key.length
    if (operation.op === "set") bytes += operation.value.length
  }
  return { operations: operations.length, bytes }
}

const outcomesOf = (reply: Reply) =>
  reply._tag === "Away" ? failureOf(reply) : Effect.succeed(reply.outcomes.map(outcomeOf))

const failureOf = ({ obstacle, reason }: Away): Effect.Effect<never, StoreUnavailable> =>
  obstacle === "defect" ? Effect.die(new WriterDefect({ message: reason })) : new StoreUnavailable({ reason })

type WriteError = PreconditionFailed | StoreUnavailable | WriterDefect

/** What the caller of a commit is told of its failure: a fault of the writer is a defect. */
const told = (
  cause: Cause.Cause<WriteError | StoreBusy>
): Cause.Cause<PreconditionFailed | StoreUnavailable | StoreBusy> =>
  Cause.flatMap(cause, error => (error._tag === "WriterDefect" ? Cause.die(error) : Cause.fail(error)))

const outcomeOf = (outcome: Outcome): Either.Either<Committed, WriteError> => {
  switch (outcome._tag) {
    case "Committed":
      return Either.right(outcome.committed)
    case "Refused": {
      const { index, currentVersion, isChangedBefore } = outcome
      return Either.left(new PreconditionFailed({ index, currentVersion, isChangedBefore }))
    }
    case "Failed":
      return Either.left(new StoreUnavailable({ reason: outcome.reason }))
    case "Defect":
      return Either.left(new WriterDefect({ message: outcome.reason }))
  }
}

/** The store in a directory. */
export const layer = (options: Options): Layer.Layer<Store | ChangeLog, StoreRefused> =>
  Layer.scopedContext(make(options))
