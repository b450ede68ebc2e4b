/**
 * The histories of sessions in one SQLite database: reads on the main thread, writes of all sessions in groups on a
 * thread of their own, which the first of them starts.
 */
import { basename, dirname } from "node:path"
import { Worker } from "node:worker_threads"
import { Clock, type Context, Duration, Effect, Either, ExecutionStrategy, Layer, Option, Scope } from "effect"
import * as Retention from "../../Gateway/SessionEvents/Retention.ts"
import {
  type Retention as Bounds,
  type History,
  OutOfStep,
  SessionEvents,
  SessionUnreadable
} from "../../Gateway/SessionEvents.ts"
import { StoreUnavailable } from "../../Kv/Store.ts"
import * as Monotonic from "../../Monotonic.ts"
import * as DebugLog from "../../Observability/DebugLog.ts"
import * as GroupCommit from "../GroupCommit.ts"
import * as Outage from "../Outage.ts"
import { hasRoom } from "./Database/Directory.ts"
import type { Lock } from "./Database/Lock.ts"
import { open } from "./Database/Opening.ts"
import { StoreRefused } from "./Database/StoreRefused.ts"
import { StuckLocks } from "./Database/StuckLocks.ts"
import * as WriterPort from "./Database/WriterPort.ts"
import * as Damage from "./SessionEvents/Damage.ts"
import { format } from "./SessionEvents/Format.ts"
import { orLater } from "./SessionEvents/Late.ts"
import type { EventOutcome, EventReply, EventRequest, EventWrite } from "./SessionEvents/Messages.ts"
import { type PackedReply, packRequest, unpackReply } from "./SessionEvents/Packing.ts"
import { Reader } from "./SessionEvents/Queries.ts"
import { Writer } from "./SessionEvents/Tables.ts"
import type { ThreadData } from "./SessionEvents/Thread.ts"

/** Where the histories lie, how they are written and how much of each is kept. */
export interface Options {
  /** Made when it is missing; the database is the file `sessions.db` in it. */
  readonly directory: string
  /** Whether writes have a thread of their own (`"thread"`, the default), or block the calling one (`"inline"`). */
  readonly writer?: "thread" | "inline"
  readonly retention?: Bounds
}

/** How long the writer may take to remove what is too old, in milliseconds; the rest waits for the next time. */
const patience = 1800

/** Events that one transaction removes for their age: others get their turn in between. */
const trimPortion = 500

const startThread = (data: ThreadData): Worker => {
  const entry = import.meta.url.endsWith(".ts") ? "./SessionEvents/Thread.dev.cjs" : "./SessionEvents/Thread.js"
  return new Worker(new URL(entry, import.meta.url), { workerData: data, execArgv: [], name: "session-events" })
}

/** The way to the writer, with the reader kept off files that have been replaced. */
const makePort = (options: Options, data: ThreadData, lock: Lock, reader: Reader) =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const stuck = new StuckLocks(() => Monotonic.unsafeMillis(clock))
    let isReopening = false
    // What stands there by then may be another process's, if it took the lock's file along.
    const reopen = (reason: string): void => {
      if (isReopening || !lock.isHeld()) return reader.close()
      // Reads must not open the file again before the writer has closed it too.
      isReopening = true
      reader.suspend(reason)
      writer.post({ kind: "reopen" }, () => {
        isReopening = false
        reader.resume()
      })
    }
    reader.onLocked = (reason, tried) => {
      if (stuck.onLocked(tried)) reopen(reason)
    }
    const writer: WriterPort.WriterPort<EventRequest, EventReply> = yield* startWriter(options, data, reply => {
      if (reply._tag === "Away") {
        if (reply.obstacle === "replaced" || (reply.obstacle === "locked" && stuck.onLocked())) reopen(reply.reason)
        // Only a write has shown that all locks can be had.
      } else if (reply.outcomes.length > 0 || reply.count > 0) stuck.onDone()
    })
    const port = WriterPort.afterAlone(writer, reader, dirname(data.file))
    // The last to close folds the log into the database, which a connection that only reads cannot.
    yield* Effect.addFinalizer(() => Effect.sync(() => reader.close()))
    // What the reader has open may have been replaced before there was a writer to notice.
    yield* Effect.sync(() => reader.close())
    const lost = `${lock.file} was taken from this process and cannot be locked anew`
    return WriterPort.guard(port, lock.isHeld, lost)
  })

const startWriter = (options: Options, data: ThreadData, onReply: (reply: EventReply) => void) =>
  options.writer === "inline"
    ? WriterPort.inline<EventRequest, EventReply>(() => new Writer(data.file, data.retention), onReply)
    : WriterPort.thread<EventRequest, EventReply, PackedReply>(() => startThread(data), onReply, {
        pack: packRequest,
        unpack: unpackReply
      })

/** Makes sure that the database can be written. */
const probe = ({ file, retention }: ThreadData): Effect.Effect<void, StoreRefused> =>
  Effect.suspend(() => {
    const writer = new Writer(file, retention)
    const reply = writer.handle({ kind: "probe" })
    writer.handle({ kind: "close" })
    // What lies on a full disk can be read, and the writer tries again with each write.
    return reply._tag === "Done" || !hasRoom(dirname(file))
      ? Effect.void
      : new StoreRefused({ file, reason: `cannot be opened for writing (${reply.reason})` })
  })

/** A request to the writer as debug logs show it: what events say is left out. */
const describe = (request: EventRequest): Readonly<Record<string, unknown>> => {
  if (request.kind === "trim") return { limit: request.limit }
  if (request.kind !== "commit") return {}
  const events = request.writes.reduce((sum, write) => sum + (write.op === "append" ? write.texts.length : 0), 0)
  return { writes: request.writes.length, events }
}

const weigh = (write: EventWrite): GroupCommit.Weight => {
  switch (write.op) {
    case "append":
      return { operations: write.texts.length + 1, bytes: write.texts.reduce((sum, text) => sum + text.length, 64) }
    case "configure": {
      const { deployment, environment } = write.configuration
      return { operations: 1, bytes: 64 + (deployment?.length ?? 0) + (environment?.length ?? 0) }
    }
    default:
      return { operations: 1, bytes: 64 }
  }
}

const outcomeOf =
  (write: EventWrite) =>
  (outcome: EventOutcome): Either.Either<History | undefined, OutOfStep | StoreUnavailable> => {
    switch (outcome._tag) {
      case "Stored":
        return Either.right(outcome.history)
      case "OutOfStep":
        return Either.left(new OutOfStep({ session: write.session, headSeq: outcome.headSeq }))
      case "Failed":
        return Either.left(new StoreUnavailable({ reason: outcome.reason }))
    }
  }

/** The histories in a directory, which belong to it until the scope closes. */
export const make = (options: Options): Effect.Effect<Context.Tag.Service<SessionEvents>, StoreRefused, Scope.Scope> =>
  orLater(options.directory, makeNow(options))

const makeNow = (options: Options): Effect.Effect<Context.Tag.Service<SessionEvents>, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const { file, lock } = yield* open(options.directory, format)
    const data: ThreadData = { file, retention: options.retention ?? Retention.defaults }
    yield* probe(data)
    const debug = yield* DebugLog.make
    const reader = yield* Effect.acquireRelease(
      Effect.sync(() => new Reader(file, debug)),
      reader => Effect.sync(() => reader.close())
    )
    // A thread takes 10 MiB and 45 ms: a service without sessions never starts it. Whenever it is started, it is of a
    // scope that closes after the committer, which finishes with it what waits.
    const portScope = yield* Scope.fork(yield* Effect.scope, ExecutionStrategy.sequential)
    const port = yield* Effect.cached(
      Effect.map(Effect.uninterruptible(Scope.extend(makePort(options, data, lock, reader), portScope)), port =>
        WriterPort.logged(port, debug, basename(file), describe)
      )
    )
    const tell = Damage.make()
    const ask = (request: EventRequest) =>
      Effect.flatMap(port, ({ send }) => send(request)).pipe(
        Effect.flatMap(reply =>
          reply._tag === "Done"
            ? Effect.succeed(reply)
            : Effect.zipRight(tell("write", reply.reason), new StoreUnavailable({ reason: reply.reason }))
        )
      )
    const tellOutcomes = (writes: ReadonlyArray<EventWrite>, outcomes: ReadonlyArray<EventOutcome>) =>
      Effect.forEach(
        outcomes,
        (outcome, index) =>
          outcome._tag === "Failed" ? tell("write", outcome.reason, writes[index]?.session) : Effect.void,
        { discard: true }
      )
    const told = <A>(read: Effect.Effect<A, StoreUnavailable>, session?: string) =>
      Effect.tapError(read, ({ reason }) => tell("read", reason, session))
    const group = yield* GroupCommit.make<EventWrite, History | undefined, OutOfStep | StoreUnavailable>({
      commit: writes =>
        Effect.flatMap(ask({ kind: "commit", writes }), ({ outcomes }) => {
          const results = outcomes.map((outcome, index) => outcomeOf(writes[index]!)(outcome))
          return outcomes.some(({ _tag }) => _tag === "Failed")
            ? Effect.as(tellOutcomes(writes, outcomes), results)
            : Effect.succeed(results)
        }),
      weigh,
      outage: Outage.make("writing of session histories")
    })
    const submit = (write: Exclude<EventWrite, { op: "append" }>) =>
      // Only an append can be out of step.
      Effect.catchTag(group.submit(write), "OutOfStep", Effect.die)
    const maintenance = yield* Effect.makeSemaphore(1)
    const trim = (before: number): Effect.Effect<number, StoreUnavailable> =>
      Effect.iterate(
        { total: 0, last: trimPortion },
        {
          while: ({ last }) => last === trimPortion,
          body: ({ total }) =>
            Effect.map(ask({ kind: "trim", before, limit: trimPortion }), ({ count }) => ({
              total: total + count,
              last: count
            }))
        }
      ).pipe(
        Effect.map(({ total }) => total),
        Effect.timeoutFail({
          duration: patience,
          onTimeout: () => new StoreUnavailable({ reason: `trim takes longer than ${patience} ms` })
        }),
        maintenance.withPermits(1)
      )
    const gone = new StoreUnavailable({ reason: "the writer lost sight of a history" })

    const begin = (op: "open" | "restart") => (session: string, epoch: string) =>
      Effect.flatMap(submit({ op, session, epoch }), history =>
        history === undefined ? gone : Effect.succeed(history)
      )

    return SessionEvents.of({
      open: begin("open"),
      receipt: (session, id) => Effect.map(reader.receipt(session, id), Option.fromNullable),
      restart: begin("restart"),
      configure: (session, configuration) => Effect.asVoid(submit({ op: "configure", session, configuration })),
      configuration: session => told(reader.configuration(session), session),
      summaries: sessions =>
        Effect.tap(told(reader.summaries(sessions)), summaries =>
          summaries.includes(null)
            ? tell("read", "SQLITE_CORRUPT: a row cannot be read", sessions[summaries.indexOf(null)])
            : Effect.void
        ),
      find: session => Effect.map(told(reader.find(session), session), Option.fromNullable),
      append: append => Effect.asVoid(group.submit({ op: "append", ...append })),
      read: (session, after, limit) =>
        Effect.map(told(reader.page(session, after, limit), session), Option.fromNullable).pipe(
          Effect.mapError(error =>
            Damage.isDamage(error.reason) ? new SessionUnreadable({ session, reason: error.reason }) : error
          )
        ),
      remove: session => Effect.asVoid(submit({ op: "remove", session })),
      unfinished: told(reader.unfinished),
      trim: age =>
        Effect.gen(function* () {
          const before = (yield* Clock.currentTimeMillis) - Duration.toMillis(age)
          const oldest = yield* told(reader.oldest)
          return oldest === undefined || oldest >= before ? 0 : yield* trim(before)
        })
    })
  })

/** The histories in a directory. */
export const layer = (options: Options): Layer.Layer<SessionEvents, StoreRefused> =>
  Layer.scoped(SessionEvents, make(options))
