/** The histories of sessions in one SQLite database, which all sessions share. */
import { Clock, type Context, Duration, Effect, Either, ExecutionStrategy, Exit, Layer, Option, Scope } from "effect"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import { yieldToEventLoop } from "../../base/Time/EventLoop.ts"
import * as Retention from "../../Gateway/SessionEvents/Retention.ts"
import {
  type Retention as Bounds,
  type Opened as OpenedHistory,
  OutOfStep,
  SessionEvents,
  SessionUnreadable
} from "../../Gateway/SessionEvents.ts"
import { StoreUnavailable } from "../../Kv/Store.ts"
import type * as GroupCommit from "../Commit/GroupCommit.ts"
import type { CheckpointWrite, EventWrite } from "../Commit/SessionCommit.ts"
import * as SessionCommit from "../Commit/SessionCommit.ts"
import * as Database from "./Database/Database.ts"
import { hasRoom } from "./Database/Files.ts"
import type { StoreRefused } from "./Database/Opening.ts"
import { damageReporter, isDamage, type Reader, type ReportDamage } from "./Database/Reader.ts"
import type { WriteFailure } from "./Database/WriterPort.ts"
import * as DiskMetrics from "./DiskMetrics.ts"
import { Queries } from "./SessionEvents/Queries.ts"
import { type EventOutcome, writer } from "./SessionEvents/Tables.ts"
import type { ThreadData } from "./WriterThread.ts"

/** The directory of the histories, how they are written, and how much of each is kept. */
export interface Options extends Database.Options {
  readonly retention?: Bounds
}

type Service = Context.Tag.Service<SessionEvents>

/** Milliseconds between two commits under load. With 10 deltas in a commit, half of their cost is that of the commit. */
const spacingMillis = 4

/** The maximum number of events that one transaction removes for their age. */
const trimPortion = 500

const outcomeOf = (
  write: EventWrite | CheckpointWrite,
  outcome: EventOutcome | WriteFailure
): Either.Either<OpenedHistory | undefined, OutOfStep | StoreUnavailable> => {
  switch (outcome._tag) {
    case "Stored":
      return Either.right(outcome.history)
    case "OutOfStep":
      return Either.left(new OutOfStep({ session: write.session, headSeq: outcome.headSeq }))
    default:
      return Either.left(new StoreUnavailable({ reason: outcome.reason }))
  }
}

type Group = GroupCommit.GroupCommit<
  EventWrite | CheckpointWrite,
  OpenedHistory | undefined,
  OutOfStep | StoreUnavailable
>

interface Opened {
  readonly group: Group
  readonly reader: Reader<Queries>
  readonly trim: (before: number) => Effect.Effect<number, StoreUnavailable>
}

const open = (
  options: Options,
  retention: Bounds,
  reportDamage: ReportDamage
): Effect.Effect<Opened, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const threadData: ThreadData = { database: "sessions", retention }
    const { commit, file, reader, run, started } = yield* Database.make(options, {
      ...writer(retention),
      threadData,
      queries: connection => new Queries(connection),
      maxSnapshots: 0,
      startsLazily: true,
      onLastSeq: () => {},
      reportDamage,
      annotate: ({ session }) => ({ session }),
      describe: writes => ({
        writes: writes.length,
        events: writes.reduce((sum, write) => sum + (write.op === "append" ? write.texts.length : 0), 0)
      })
    })
    yield* DiskMetrics.files("sessions.db", file)
    const group = yield* SessionCommit.make<EventWrite | CheckpointWrite, OutOfStep | StoreUnavailable>({
      commit: (writes, now) =>
        Effect.map(commit(writes, now), outcomes =>
          outcomes.map((outcome, index) => outcomeOf(writes[index]!, outcome))
        ),
      spacingMillis,
      // The first write starts the thread, which takes seconds on a busy machine.
      prepare: Effect.zipRight(started, yieldToEventLoop)
    })
    return { group, reader, trim: before => run("trim", Effect.succeed(before), trimPortion) }
  })

/** Uses histories, which may have to be opened before. */
type Use = <A, E>(f: (opened: Opened) => Effect.Effect<A, E>) => Effect.Effect<A, E | StoreUnavailable>

/**
 * Opens the histories. If a full disk has no space to create or migrate their database, the opening is deferred: every
 * use fails with `StoreUnavailable` until there is space, and the first use after that opens them.
 */
const openOrDefer = (
  directory: string,
  open: Effect.Effect<Opened, StoreRefused, Scope.Scope>
): Effect.Effect<Use, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    // A failed attempt releases what it has acquired.
    const attempt = Effect.flatMap(Scope.fork(scope, ExecutionStrategy.sequential), own =>
      Effect.onError(Scope.extend(open, own), cause => Scope.close(own, Exit.failCause(cause)))
    )
    const warning = Effect.logWarning("session histories cannot be opened until there is room on the disk")
    let opened: Opened | undefined = yield* Effect.catchAll(attempt, refused =>
      hasRoom(directory) ? refused : Effect.as(Effect.annotateLogs(warning, "reason", refused.message), undefined)
    )
    const one = yield* Effect.makeSemaphore(1)
    const deferred = Effect.suspend((): Effect.Effect<Opened, StoreUnavailable> => {
      if (opened !== undefined) return Effect.succeed(opened)
      if (!hasRoom(directory)) return new StoreUnavailable({ reason: "the disk is full" })
      return Effect.uninterruptible(attempt).pipe(
        Effect.mapError(({ message }) => new StoreUnavailable({ reason: message })),
        Effect.tap(made => {
          opened = made
        })
      )
    }).pipe(one.withPermits(1))
    return f => (opened === undefined ? Effect.flatMap(deferred, f) : f(opened))
  })

/** The histories in the file `sessions.db` of a directory. This process owns the file until the scope closes. */
export const make = (options: Options): Effect.Effect<Service, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const retention = options.retention ?? Retention.defaults
    const reportDamage = damageReporter("session database", "session_database_damage_total", yield* MetricTags.current)
    const use = yield* openOrDefer(options.directory, open(options, retention, reportDamage))
    const read = <A>(body: (queries: Queries) => A, session?: string): Effect.Effect<A, StoreUnavailable> =>
      use(({ reader }) => reader.read(body, session === undefined ? undefined : { session }))
    const find = <A>(body: (queries: Queries) => A | undefined, session?: string) =>
      Effect.map(read(body, session), Option.fromNullable)
    return SessionEvents.of({
      ...SessionCommit.members(write => use(({ group }) => group.submit(write))),
      // Histories belong to no node.
      release: () => Effect.void,
      receipt: (session, id) => find(queries => queries.receipt(session, id)),
      checkpoint: session => find(queries => queries.checkpoint(session), session),
      saveCheckpoint: (session, checkpoint) =>
        Effect.asVoid(
          Effect.catchTag(
            use(({ group }) => group.submit({ op: "saveCheckpoint", session, checkpoint })),
            "OutOfStep",
            Effect.die
          )
        ),
      configuration: session => read(queries => queries.configuration(session), session),
      summaries: sessions =>
        Effect.tap(
          read(queries => queries.summaries(sessions)),
          summaries =>
            summaries.includes(null)
              ? reportDamage("read", "SQLITE_CORRUPT: a row cannot be read", {
                  session: sessions[summaries.indexOf(null)]
                })
              : Effect.void
        ),
      active: query => read(queries => queries.active(query)),
      counts: (limit, tenant) => read(queries => queries.counts(limit, tenant)),
      sessions: (after, limit) => read(queries => queries.sessions(after, limit)),
      find: session => find(queries => queries.find(session), session),
      read: (session, after, limit) =>
        find(queries => queries.page(session, after, limit), session).pipe(
          Effect.mapError(error =>
            isDamage(error.reason) ? new SessionUnreadable({ session, reason: error.reason }) : error
          )
        ),
      unfinished: Effect.suspend(() => read(queries => queries.unfinished())),
      isShared: false,
      abandoned: Effect.succeed([]),
      taken: Effect.never,
      trim: age =>
        Effect.gen(function* () {
          const before = (yield* Clock.currentTimeMillis) - Duration.toMillis(age)
          const oldest = yield* read(queries => queries.oldest())
          return oldest === undefined || oldest >= before ? 0 : yield* use(({ trim }) => trim(before))
        })
    })
  })

export const layer = (options: Options): Layer.Layer<SessionEvents, StoreRefused> =>
  Layer.scoped(SessionEvents, make(options))
