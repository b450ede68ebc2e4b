/**
 * The histories of sessions in a PostgreSQL database that several nodes share. They have separate tables. A session
 * belongs to one node at a time.
 */
import { Context, Duration, Effect, Either, Exit, Layer, Option, type Scope } from "effect"
import * as Retention from "../../Gateway/SessionEvents/Retention.ts"
import {
  type Retention as Bounds,
  type History,
  OutOfStep,
  SessionElsewhere,
  SessionEvents
} from "../../Gateway/SessionEvents.ts"
import { SessionNodes, type SessionNodesShape } from "../../Gateway/SessionNodes.ts"
import type { StoreUnavailable } from "../../Kv/Store.ts"
import * as MetricTags from "../../MetricTags.ts"
import * as SessionCommit from "../SessionCommit.ts"
import { Database } from "./Connections.ts"
import { bySystemClock } from "./Database/DatabaseClock.ts"
import { isOfContent, unavailable } from "./Database/DatabaseError.ts"
import * as GroupCall from "./Database/GroupCall.ts"
import * as Metrics from "./Database/Metrics.ts"
import * as Portions from "./Database/Portions.ts"
import { calling } from "./Database/Statement.ts"
import * as NodeIdentity from "./SessionEvents/NodeIdentity.ts"
import * as NodeLease from "./SessionEvents/NodeLease.ts"
import { OwnedSessions } from "./SessionEvents/OwnedSessions.ts"
import * as Queries from "./SessionEvents/Queries.ts"
import * as Writes from "./SessionEvents/Writes.ts"

/** Settings of the histories of sessions, and of this node. */
export interface Options {
  /** The limits of each history. */
  readonly retention?: Bounds
  /** How long a node keeps its sessions without renewing its lease. */
  readonly lease?: Duration.Duration
  /** The directory in which the node stores its id, so that its next run can take its sessions over at once. */
  readonly directory?: string
}

/** A node that is gone is noticed after this time, or at most after twice this time. */
export const defaultLease = Duration.seconds(10)

/** The timeout of a portion of a trim, in milliseconds. */
const trimTimeoutMillis = 6000

const trimStatement = calling("trim_sessions", 2)

type WriteError = OutOfStep | SessionElsewhere | StoreUnavailable

/** The histories in a database. Calls fail with `StoreUnavailable` until the database is open. */
export const make = (
  options: Options = {}
): Effect.Effect<Context.Context<SessionEvents | SessionNodes>, never, Database | Scope.Scope> =>
  Effect.gen(function* () {
    const { atNow, lastServerTime, reads, sessions, writes } = yield* Database
    const { lease = defaultLease, retention = Retention.defaults } = options
    const millis = Duration.toMillis(lease)
    const { id: node, predecessor } = yield* NodeIdentity.make(options.directory)
    const metrics = Metrics.ofNode(node, yield* MetricTags.current)
    const owned = new OwnedSessions(metrics.lost)
    let address: string | null = null
    let nodeCount = 1
    const onOthers = (count: number): void => {
      sessions.hasOthers = count > 0
      nodeCount = count + 1
      metrics.renewed({ owned: owned.size, nodes: nodeCount })
    }
    yield* bySystemClock(
      NodeLease.keep({
        pool: writes,
        node,
        predecessor,
        lease,
        owned,
        address: () => address,
        onOthers,
        onLapse: metrics.lapsed
      })
    )

    const holder: Writes.LeaseHolder = { node, lease: millis, tokenOf: owned.tokenOf }
    const callGroup = GroupCall.make(writes, lastServerTime)
    const run = Queries.on(reads)

    const commitAll = (group: ReadonlyArray<Writes.EventWrite>, isGivenUp: () => boolean) =>
      Effect.suspend(() => {
        const encoded = Writes.encode(group, holder, retention)
        return Effect.map(
          callGroup(Writes.call, id => [id, ...encoded.parameters], isGivenUp),
          result => Writes.decode(encoded, result).map((outcome, index) => settle(group[index]!, outcome))
        )
      })

    /** A write that the database refuses must not fail the others of its group. */
    const commitEach = (group: ReadonlyArray<Writes.EventWrite>, isGivenUp: () => boolean) =>
      Effect.forEach(group, one =>
        Effect.match(commitAll([one], isGivenUp), {
          onFailure: (error): Either.Either<History | undefined, WriteError> => Either.left(unavailable(error)),
          onSuccess: ([outcome]) => outcome!
        })
      )

    const settle = (
      write: Writes.EventWrite,
      outcome: Writes.Outcome
    ): Either.Either<History | undefined, WriteError> => {
      const { op, session } = write
      switch (outcome._tag) {
        case "Stored":
          if (op === "remove") owned.remove(session)
          if (op === "remove" || op === "append") sessions.changed(session)
          return Either.right(undefined)
        case "Opened":
          owned.add(session, outcome.token)
          if (op === "restart") sessions.changed(session)
          return Either.right(outcome.history)
        case "OutOfStep":
          return Either.left(new OutOfStep({ session, headSeq: outcome.headSeq }))
        case "Elsewhere":
          owned.lose(session)
          return Either.left(new SessionElsewhere({ session }))
      }
    }

    const group = yield* SessionCommit.make<Writes.EventWrite, WriteError>({
      commit: (group, _, isGivenUp) =>
        Effect.catchAll(bySystemClock(commitAll(group, isGivenUp)), error =>
          isOfContent(error) && group.length > 1 ? commitEach(group, isGivenUp) : Exit.fail(unavailable(error))
        )
    })
    const portions = Portions.make()
    const events = SessionEvents.of({
      ...SessionCommit.members(group.submit),
      release: session =>
        Effect.suspend(() => {
          const token = owned.tokenOf(session)
          if (token === undefined) return Effect.void
          owned.remove(session)
          return Effect.asVoid(group.submit({ op: "release", session, token }))
          // The function that releases a session returns neither outcome.
        }).pipe(Effect.catchTags({ SessionElsewhere: Effect.die, OutOfStep: Effect.die })),
      find: session => Effect.map(run(Queries.find(session)), Option.fromNullable),
      read: (session, after, limit) => Effect.map(run(Queries.page(session, after, limit)), Option.fromNullable),
      receipt: (session, id) => Effect.map(run(Queries.receipt(session, id)), Option.fromNullable),
      configuration: session => run(Queries.configuration(session)),
      summaries: sessions => run(Queries.summaries(sessions)),
      unfinished: run(Queries.unfinished(node, millis)),
      isShared: true,
      abandoned: run(Queries.abandoned(node, millis)),
      taken: Effect.sync(() => owned.takeLost()),
      // By the time of the database: a node whose clock is ahead must not remove recent events of others.
      trim: age =>
        atNow(now => {
          const before = Math.trunc(now - Duration.toMillis(age))
          return portions(size =>
            writes.read(trimStatement, [before, size], rows => rows[0]![0] as number, trimTimeoutMillis)
          )
        })
    })
    const nodes: SessionNodesShape = {
      self: node,
      status: () => Option.some({ id: node, sessions: owned.size, nodes: nodeCount }),
      tokenOf: owned.tokenOf,
      advertise: next =>
        Effect.suspend(() => {
          address = next
          // Each renewal repeats it.
          return Effect.ignore(bySystemClock(NodeLease.publishAddress(writes, node, next)))
        }),
      peers: run(Queries.peers(node)),
      adopt: (session, from, prepare) =>
        Effect.gen(function* () {
          const adopt = Queries.on(writes)
          const token = yield* adopt(Queries.nextToken)
          yield* prepare(token)
          const taking = Effect.tap(adopt(Queries.adopt(session, { node, token }, from)), isAdopted => {
            if (isAdopted) owned.add(session, token)
          })
          // An interruption would not stop the statement. The node would then own a session without knowing it.
          return yield* Effect.uninterruptible(taking)
        }),
      elsewhere: sessions => Effect.map(run(Queries.elsewhere(sessions, node)), found => new Set(found)),
      watch: (session, onChange) => sessions.watch(session, onChange),
      ownerOf: session => Effect.map(run(Queries.owner(session, node)), Option.fromNullable)
    }
    return Context.make(SessionEvents, events).pipe(Context.add(SessionNodes, nodes))
  })

/** The histories in the database of the store, and the other nodes that share it. */
export const layer = (options: Options = {}): Layer.Layer<SessionEvents | SessionNodes, never, Database> =>
  Layer.scopedContext(make(options))
