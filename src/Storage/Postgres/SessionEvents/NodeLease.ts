/**
 * The lease of a node. As long as the node renews it, no other node takes its sessions. The database decides in the
 * transaction of each write whether the node still owns the session.
 */
import { Array as Arr, Duration, Effect, Option, Schedule, type Scope } from "effect"
import { constVoid } from "effect/Function"
import { SingleFlight } from "../../../base/SingleFlight.ts"
import * as Supervision from "../../../base/Supervision.ts"
import * as Monotonic from "../../../base/Time/Monotonic.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type { Pool } from "../Database/Pool.ts"
import type { Query } from "../Database/Statement.ts"
import * as SessionQueries from "./SessionQueries.ts"
import type { OwnedSessions } from "./SessionWriter.ts"

/** A node, and the number of renewals of its lease. */
export interface Renewals {
  readonly node: string
  readonly renewals: number
  /** The length of its lease, in milliseconds. */
  readonly lease: number
}

interface Other extends Renewals {
  readonly hasSameAddress: boolean
}

/** Renews the lease. Returns how often it had ended before it was renewed, and whether it existed. */
const renewal = (node: string, lease: number): Query<readonly [lapses: number, hadLease: boolean]> => ({
  text: "SELECT causeway.renew_lease($1, $2, true), EXISTS (SELECT FROM causeway.nodes WHERE id = $1)",
  values: [node, lease],
  decode: ([row]) => [row![0] as number, row![1] as boolean]
})

/** Stores the address of the node. Returns the leases of the others, and whether they have stored the same address. */
const publication = (node: string, address: string | null): Query<ReadonlyArray<Other>> => ({
  text: `WITH stored AS (
      UPDATE causeway.nodes SET address = $2 WHERE id = $1 AND address IS DISTINCT FROM $2
    )
    SELECT id, renewals, lease, coalesce(address = $2, false) FROM causeway.nodes
    WHERE id <> $1 AND expires_at > clock_timestamp()`,
  values: [node, address],
  decode: rows =>
    (rows as ReadonlyArray<readonly [string, number, number, boolean]>).map(
      ([node, renewals, lease, hasSameAddress]) => ({ node, renewals, lease, hasSameAddress })
    )
})

/**
 * Ends the lease of a node that has not renewed it since. It takes no session: if the node is alive, it keeps the
 * sessions that no other node has taken, and cannot write to the others, as after every end of a lease.
 */
const expiry = ({ node, renewals }: Renewals): Query<void> => ({
  text: `UPDATE causeway.nodes SET expires_at = clock_timestamp()
    WHERE id = $1 AND renewals = $2 AND expires_at > clock_timestamp()`,
  values: [node, renewals],
  decode: constVoid
})

const leaseOf = (node: string): Query<Renewals | undefined> => ({
  text: "SELECT renewals, lease FROM causeway.nodes WHERE id = $1 AND expires_at > clock_timestamp()",
  values: [node],
  decode: ([row]) => (row === undefined ? undefined : { node, renewals: row[0] as number, lease: row[1] as number })
})

/** Removes leases, so that the sessions of their nodes can be taken at once. */
const removal = (condition: string, ...values: Query<void>["values"]): Query<void> => ({
  text: `DELETE FROM causeway.nodes WHERE ${condition}`,
  values,
  decode: constVoid
})

/** The number of renewals within the length of a lease. */
const renewals = 3

/**
 * The number of intervals without a renewal after which the last run in the directory has ended. If the directory is a
 * copy, as from a snapshot of a volume, that run may still be alive.
 */
const silentIntervals = 1.5

/** How long a caller waits for a renewal. */
const renewalTimeout = Duration.seconds(1)

const endTimeout = Duration.seconds(1)

/** The maximum number of sessions in one query. */
const portion = 1000

/** The node, the length of its lease, and the sessions that depend on it. */
export interface Options {
  readonly pool: Pool
  readonly node: string
  /** The id of the last run in the directory of this node. It has ended, unless the directory is a copy. */
  readonly predecessor: Option.Option<string>
  readonly lease: Duration.Duration
  readonly owned: OwnedSessions
  /** Returns the address at which other nodes reach this one, if there is one. */
  readonly address: () => string | null
  /** Called at each renewal with the number of other nodes. */
  readonly onOthers: (count: number) => void
  /** Called if the lease had ended before it was renewed. */
  readonly onLapse: () => void
}

/** Publishes the address at which other nodes reach this one. Returns the others. */
export const publishAddress = (pool: Pool, node: string, address: string | null) =>
  pool.read(publication(node, address))

interface Seen {
  readonly renewals: number
  /** When this number was first seen. */
  readonly at: number
}

/**
 * Finds nodes that do not renew their leases, by the monotonic clock of this node. If only the clock of the database
 * counted, a node that is gone would keep its sessions for as long as that clock was set back. Times are its monotonic
 * milliseconds.
 */
export class NodeWatch {
  private seen = new Map<string, Seen>()
  private lookedAt = Number.NEGATIVE_INFINITY

  constructor(
    /** The length of the lease of this node, in milliseconds. */
    private readonly lease: number
  ) {}

  /**
   * Records the leases read at a time. Returns the nodes that have not renewed theirs for the longer of their lease and
   * that of this node. This node must have read them throughout: while it cannot reach the database, the others may not
   * reach it either.
   */
  update(now: number, others: ReadonlyArray<Renewals>): ReadonlyArray<Renewals> {
    const known = now - this.lookedAt <= this.lease / 2 ? this.seen : new Map<string, Seen>()
    this.lookedAt = now
    this.seen = new Map(
      others.map(({ node, renewals }) => {
        const before = known.get(node)
        return [node, before?.renewals === renewals ? before : { renewals, at: now }]
      })
    )
    return others.filter(({ lease, node }) => now - this.seen.get(node)!.at >= Math.max(this.lease, lease))
  }
}

/** Warns of each other live node with the address of this one: one of the two cannot be reached. */
const addressWatch = () => {
  /**
   * The renewals of each node when it was first seen. A node that has not renewed its lease since may be an earlier
   * run.
   */
  let first = new Map<string, number>()
  return (others: ReadonlyArray<Other>, address: string | null) => {
    const sharing = others.filter(({ hasSameAddress }) => hasSameAddress)
    const found = sharing.filter(({ node, renewals }) => renewals > (first.get(node) ?? renewals))
    first = new Map(sharing.map(({ node, renewals }) => [node, first.get(node) ?? renewals]))
    for (const { node } of found) first.set(node, Number.POSITIVE_INFINITY)
    return Effect.forEach(
      found,
      ({ node }) =>
        Effect.annotateLogs(
          Effect.logWarning("Another node has published the same address: requests for its sessions do not reach it"),
          { node, address }
        ),
      { discard: true }
    )
  }
}

const loseTaken = (pool: Pool, node: string, owned: OwnedSessions): Effect.Effect<void, StoreUnavailable> =>
  Effect.suspend(() => {
    const known = owned.sessions().map(session => [session, owned.tokenOf(session)] as const)
    const askFor = (some: typeof known) => {
      const sessions = some.map(([session]) => session)
      return Effect.map(pool.read(SessionQueries.taken(sessions, node)), found => {
        const taken = new Set(found)
        for (const [session, token] of some) if (taken.has(session)) owned.lose(session, token)
      })
    }
    return Effect.forEach(Arr.chunksOf(known, portion), askFor, { discard: true })
  })

/** Ends the lease of the last run in the directory, unless that run still renews it. */
const endPredecessor = (pool: Pool, id: string, pause: Duration.Duration): Effect.Effect<void> =>
  Effect.gen(function* () {
    const before = yield* pool.read(leaseOf(id))
    if (before === undefined) return
    yield* Effect.sleep((before.lease / renewals) * silentIntervals)
    yield* pool.read(removal("id = $1 AND renewals = $2", before.node, before.renewals))
  }).pipe(Effect.retry(Schedule.spaced(pause)), Effect.ignore)

/**
 * Renews the lease until the scope closes, which ends the lease. Others may then open its sessions at once.
 *
 * The effect that is returned ends at once while the lease is valid by the clock of this node. After that, as in a
 * process that was frozen, it renews the lease first, and so finds out which sessions others have taken. It ends
 * without that if the database does not answer in time.
 */
export const keep = ({
  address,
  lease,
  node,
  onLapse,
  onOthers,
  owned,
  pool,
  predecessor
}: Options): Effect.Effect<Effect.Effect<void>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const millis = Duration.toMillis(lease)
    const watch = new NodeWatch(millis)
    const watchAddress = addressWatch()
    let lapses = 0
    let hasRenewed = false
    /** When the lease ends unless it is renewed, in monotonic milliseconds. */
    let endsAt = Number.NEGATIVE_INFINITY
    /**
     * How many more renewals check for sessions that others have taken: their transactions may not have committed yet.
     */
    let checks = 0

    const renew: Effect.Effect<void, StoreUnavailable> = Effect.gen(function* () {
      const startedAt = yield* Monotonic.millis
      // An interruption would not stop the statement, which could then recreate the lease after the node has ended it.
      const [now, hadLease] = yield* Effect.uninterruptible(pool.read(renewal(node, millis)))
      const others = yield* publishAddress(pool, node, address())
      onOthers(others.length)
      yield* watchAddress(others, address())
      for (const stalled of watch.update(yield* Monotonic.millis, others)) {
        yield* pool.read(expiry(stalled))
      }
      const isLapsed = now > lapses || (hasRenewed && !hadLease)
      hasRenewed = true
      if (isLapsed) {
        yield* Effect.logWarning("The lease of this node had ended; other nodes may have taken its sessions")
        lapses = now
        onLapse()
        checks = renewals + 1
      }
      if (checks > 0) {
        yield* loseTaken(pool, node, owned)
        checks--
      }
      endsAt = startedAt + millis
    })
    const renewing = new SingleFlight<"lease", void, StoreUnavailable>(yield* Effect.scope)
    const renewOnce = renewing.run("lease", renew)

    const interval = Duration.times(lease, 1 / renewals)
    yield* Effect.addFinalizer(() => Supervision.within(endTimeout, Effect.ignore(pool.read(removal("id = $1", node)))))
    yield* Effect.ignore(renewOnce)
    if (Option.isSome(predecessor))
      yield* Effect.forkScoped(Effect.interruptible(endPredecessor(pool, predecessor.value, interval)))
    yield* Supervision.repeatScoped("renewing the lease of the node", interval, renewOnce)
    const gone = removal("expires_at < clock_timestamp() - interval '1 day'")
    yield* Supervision.repeatScoped("removing nodes that are gone", "1 hour", pool.read(gone))
    const isOver = Effect.map(Monotonic.millis, now => now >= endsAt)
    // A renewal that was under way when the process was frozen may have ended too early.
    const renewed = Effect.zipRight(Effect.ignore(renewOnce), Effect.whenEffect(Effect.ignore(renewOnce), isOver))
    return Effect.asVoid(Effect.whenEffect(Supervision.within(renewalTimeout, renewed), isOver))
  })
