/**
 * The histories of sessions in a PostgreSQL database that several nodes share. They have separate tables. A session
 * belongs to one node at a time.
 */
import { Clock, Context, Duration, Effect, Layer, Metric, MetricLabel, Option, type Scope } from "effect"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import * as Retention from "../../Gateway/SessionEvents/Retention.ts"
import { type Retention as Bounds, SessionEvents } from "../../Gateway/SessionEvents.ts"
import { SessionNodes, type SessionNodesShape } from "../../Gateway/SessionNodes.ts"
import * as SessionCommit from "../Commit/SessionCommit.ts"
import { Database } from "./Connections.ts"
import { bySystemClock } from "./Database/DatabaseClock.ts"
import type { StoreRefused } from "./Database/DatabaseError.ts"
import type { Pool } from "./Database/Pool.ts"
import * as Portions from "./Database/Portions.ts"
import * as NodeIdentity from "./SessionEvents/NodeIdentity.ts"
import * as NodeLease from "./SessionEvents/NodeLease.ts"
import type { SessionNotifications } from "./SessionEvents/SessionNotifications.ts"
import * as SessionQueries from "./SessionEvents/SessionQueries.ts"
import * as SessionWriter from "./SessionEvents/SessionWriter.ts"
import { OwnedSessions } from "./SessionEvents/SessionWriter.ts"

const owned = Metric.gauge("sessions_owned", { description: "Sessions that belong to this node." })

const nodes = Metric.gauge("session_nodes", {
  description: "Nodes that share the session database, this one included, by their leases."
})

const info = Metric.gauge("session_node_info", { description: "1, with the id of this run of the node." })

const lapses = Metric.counter("session_lease_lapses_total", {
  description: "How often the lease of this node had ended before it was renewed.",
  incremental: true
})

const lost = Metric.counter("sessions_lost_total", {
  description: "Sessions of this node that others took, as its lease had ended.",
  incremental: true
})

/** Registers the series of a node. Returns what changes them. */
const metricsOf = (id: string, tags: MetricTags.MetricTags) => {
  MetricTags.register([owned, nodes, lapses, lost], tags)
  Metric.taggedWithLabels(info, [MetricLabel.make("node", id)]).unsafeUpdate(1, tags)
  return {
    renewed: (found: { readonly owned: number; readonly nodes: number }): void => {
      owned.unsafeUpdate(found.owned, tags)
      nodes.unsafeUpdate(found.nodes, tags)
    },
    lapsed: () => lapses.unsafeUpdate(1, tags),
    lost: () => lost.unsafeUpdate(1, tags)
  }
}

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

/** The timeout of a portion of a trim, and of a checkpoint, which may be large, in milliseconds. */
const longTimeoutMillis = 6000

/** This node among those that share the database. */
interface Presence {
  /** The id of its run. */
  readonly node: string
  /** The address at which other nodes reach it, if there is one. */
  address: string | null
  /** The number of nodes, including this one. */
  count: number
}

/** This node, the connections, and the sessions that it owns and watches. */
interface NodesOptions {
  readonly presence: Presence
  readonly reads: Pool
  readonly writes: Pool
  readonly owned: OwnedSessions
  readonly notifications: SessionNotifications
  /** See `NodeLease.keep`. */
  readonly leased: Effect.Effect<void>
}

/** The port `SessionNodes` of this node. */
const makeNodes = ({ leased, notifications, owned, presence, reads, writes }: NodesOptions): SessionNodesShape => {
  const { node } = presence
  return {
    self: node,
    status: () => Option.some({ id: node, sessions: owned.size, nodes: presence.count }),
    tokenOf: owned.tokenOf,
    hasLost: session => Effect.map(leased, () => owned.tokenOf(session) === undefined),
    advertise: next =>
      Effect.suspend(() => {
        presence.address = next
        // Each renewal repeats it.
        return Effect.ignore(bySystemClock(NodeLease.publishAddress(writes, node, next)))
      }),
    peers: reads.read(SessionQueries.peers(node)),
    adopt: (session, from, prepare) =>
      Effect.gen(function* () {
        const token = yield* writes.read(SessionQueries.nextToken)
        yield* prepare(token)
        const taking = Effect.tap(writes.read(SessionQueries.adopt(session, { node, token }, from)), isAdopted => {
          if (isAdopted) owned.add(session, token)
        })
        // An interruption would not stop the statement. The node would then own a session without knowing it.
        return yield* Effect.uninterruptible(taking)
      }),
    elsewhere: sessions => Effect.map(reads.read(SessionQueries.elsewhere(sessions, node)), found => new Set(found)),
    watch: (session, onChange) => notifications.watch(session, onChange),
    ownerOf: session => Effect.map(reads.read(SessionQueries.owner(session, node)), Option.fromNullable)
  }
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
    const metrics = metricsOf(node, yield* MetricTags.current)
    const owned = new OwnedSessions(metrics.lost)
    const presence: Presence = { node, address: null, count: 1 }
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

    const own = { node, lease: millis, owned, notifications, retention }
    const commit = SessionWriter.make({ pool: writes, lastServerTime, ...own })
    const group = yield* SessionCommit.make<SessionWriter.EventWrite, SessionWriter.WriteError>({
      commit: (group, _, isGivenUp) => bySystemClock(commit(group, isGivenUp))
    })
    const portions = Portions.make()
    const events = SessionEvents.of({
      ...SessionCommit.members(group.submit),
      create: (session, epoch, activeAt) =>
        Effect.flatMap(Clock.currentTimeMillis, now =>
          writes.read(SessionQueries.create(session, epoch, activeAt ?? Math.trunc(now)))
        ),
      release: session =>
        Effect.suspend(() => {
          const token = owned.tokenOf(session)
          if (token === undefined) return Effect.void
          owned.remove(session)
          return Effect.asVoid(group.submit({ op: "release", session, token }))
          // The function that releases a session returns neither outcome.
        }).pipe(Effect.catchTags({ SessionElsewhere: Effect.die, OutOfStep: Effect.die })),
      find: session => Effect.map(reads.read(SessionQueries.find(session)), Option.fromNullable),
      read: (session, after, limit) =>
        Effect.map(reads.read(SessionQueries.page(session, after, limit)), Option.fromNullable),
      receipt: (session, id) => Effect.map(reads.read(SessionQueries.receipt(session, id)), Option.fromNullable),
      checkpoint: session => Effect.map(reads.read(SessionQueries.checkpoint(session)), Option.fromNullable),
      saveCheckpoint: (session, checkpoint) =>
        writes.read(SessionQueries.saveCheckpoint(session, checkpoint), longTimeoutMillis),
      configuration: session => reads.read(SessionQueries.configuration(session)),
      summaries: sessions => reads.read(SessionQueries.summaries(sessions)),
      active: query => reads.read(SessionQueries.active(query)),
      counts: (limit, tenant) => reads.read(SessionQueries.counts(limit, tenant)),
      sessions: (after, limit) => reads.read(SessionQueries.sessions(after, limit)),
      unfinished: reads.read(SessionQueries.unfinished(node, millis)),
      isShared: true,
      abandoned: reads.read(SessionQueries.abandoned(node, millis)),
      taken: owned.takeLost,
      // By the time of the database: a node whose clock is ahead must not remove recent events of others.
      trim: age =>
        atNow(now => {
          const before = Math.trunc(now - Duration.toMillis(age))
          return portions(size => writes.read(SessionQueries.trim(before, size), longTimeoutMillis))
        })
    })
    const nodes = makeNodes({ presence, reads, writes, owned, notifications, leased: bySystemClock(leased) })
    return Context.make(SessionEvents, events).pipe(Context.add(SessionNodes, nodes))
  })

/** The histories in the database of the store, and the other nodes that share it. */
export const layer = (options: Options = {}): Layer.Layer<SessionEvents | SessionNodes, StoreRefused, Database> =>
  Layer.scopedContext(make(options))
