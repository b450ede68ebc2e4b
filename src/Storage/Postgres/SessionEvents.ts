/**
 * The histories of sessions in a PostgreSQL database that several nodes share. They have separate tables. A session
 * belongs to one node at a time.
 */
import { Context, Duration, Effect, Layer, Option, type Scope } from "effect"
import * as Retention from "../../Gateway/SessionEvents/Retention.ts"
import { type Retention as Bounds, SessionEvents } from "../../Gateway/SessionEvents.ts"
import { SessionNodes } from "../../Gateway/SessionNodes.ts"
import * as MetricTags from "../../MetricTags.ts"
import * as SessionCommit from "../SessionCommit.ts"
import { Database } from "./Connections.ts"
import { bySystemClock } from "./Database/DatabaseClock.ts"
import * as Metrics from "./Database/Metrics.ts"
import * as Portions from "./Database/Portions.ts"
import { calling, type Statement } from "./Database/Statement.ts"
import * as NodeIdentity from "./SessionEvents/NodeIdentity.ts"
import * as NodeLease from "./SessionEvents/NodeLease.ts"
import * as Nodes from "./SessionEvents/Nodes.ts"
import { OwnedSessions } from "./SessionEvents/OwnedSessions.ts"
import * as Queries from "./SessionEvents/Queries.ts"
import * as Writer from "./SessionEvents/Writer.ts"
import type { EventWrite } from "./SessionEvents/Writes.ts"
import type { StoreRefused } from "./StoreRefused.ts"

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

const creation: Statement = {
  name: "create_history",
  text: `INSERT INTO causeway.histories (session, epoch, database_epoch) VALUES ($1, $2, causeway.epoch())
    ON CONFLICT (session) DO NOTHING`
}

/** The histories in a database. Fails if another process has the directory. Calls fail with `StoreUnavailable` until the database is open. */
export const make = (
  options: Options = {}
): Effect.Effect<Context.Context<SessionEvents | SessionNodes>, StoreRefused, Database | Scope.Scope> =>
  Effect.gen(function* () {
    const { atNow, lastServerTime, reads, sessions: notifications, writes } = yield* Database
    const { lease = defaultLease, retention = Retention.defaults } = options
    const millis = Duration.toMillis(lease)
    const { id: node, predecessor } = yield* NodeIdentity.make(options.directory)
    const metrics = Metrics.ofNode(node, yield* MetricTags.current)
    const owned = new OwnedSessions(metrics.lost)
    const presence: Nodes.Presence = { node, address: null, count: 1 }
    const onOthers = (count: number): void => {
      notifications.hasOthers = count > 0
      presence.count = count + 1
      metrics.renewed({ owned: owned.size, nodes: presence.count })
    }
    const leased = yield* bySystemClock(
      NodeLease.keep({
        pool: writes,
        node,
        predecessor,
        lease,
        owned,
        address: () => presence.address,
        onOthers,
        onLapse: metrics.lapsed
      })
    )

    const commit = Writer.make({ pool: writes, lastServerTime, node, lease: millis, owned, notifications, retention })
    const group = yield* SessionCommit.make<EventWrite, Writer.WriteError>({
      commit: (group, _, isGivenUp) => bySystemClock(commit(group, isGivenUp))
    })
    const run = Queries.on(reads)
    const portions = Portions.make()
    const events = SessionEvents.of({
      ...SessionCommit.members(group.submit),
      create: (session, epoch) => writes.read(creation, [session, epoch], () => undefined),
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
      sessions: (after, limit) => run(Queries.sessions(after, limit)),
      unfinished: run(Queries.unfinished(node, millis)),
      isShared: true,
      abandoned: run(Queries.abandoned(node, millis)),
      taken: owned.takeLost,
      // By the time of the database: a node whose clock is ahead must not remove recent events of others.
      trim: age =>
        atNow(now => {
          const before = Math.trunc(now - Duration.toMillis(age))
          return portions(size =>
            writes.read(trimStatement, [before, size], rows => rows[0]![0] as number, trimTimeoutMillis)
          )
        })
    })
    const nodes = Nodes.make({ presence, reads, writes, owned, notifications, leased: bySystemClock(leased) })
    return Context.make(SessionEvents, events).pipe(Context.add(SessionNodes, nodes))
  })

/** The histories in the database of the store, and the other nodes that share it. */
export const layer = (options: Options = {}): Layer.Layer<SessionEvents | SessionNodes, StoreRefused, Database> =>
  Layer.scopedContext(make(options))
