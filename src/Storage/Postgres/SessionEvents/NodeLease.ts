/**
 * The lease of a node: as long as it renews it, no other node takes the sessions that it owns. Whether it still owns one
 * is decided by the database, in the transaction of each write.
 */
import { Array as Arr, Duration, Effect, Option, Schedule, type Scope } from "effect"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import * as Monotonic from "../../../Monotonic.ts"
import * as Supervision from "../../../Supervision.ts"
import type { Pool } from "../Database/Pool.ts"
import type { Statement } from "../Database/Statement.ts"
import { NodeWatch, type Renewals } from "./NodeWatch.ts"
import type { OwnedSessions } from "./OwnedSessions.ts"
import * as Queries from "./Queries.ts"

/** Renews the lease. Tells how often it had ended before that, and whether there was one. */
const renewal: Statement = {
  name: "renew_lease",
  text: "SELECT causeway.renew_lease($1, $2, true), EXISTS (SELECT FROM causeway.nodes WHERE id = $1)"
}

/** Tells the address of the node, and reads the leases of the others, and whether they have told the same address. */
const publication: Statement = {
  name: "publish_address",
  text: `WITH told AS (
      UPDATE causeway.nodes SET address = $2 WHERE id = $1 AND address IS DISTINCT FROM $2
    )
    SELECT id, renewals, lease, coalesce(address = $2, false) FROM causeway.nodes WHERE id <> $1 AND expires_at > clock_timestamp()`
}

/**
 * Ends the lease of a node that has not renewed it since. It takes nothing from that node: if it is alive after all, it
 * keeps the sessions that nobody has taken, and is refused those that somebody has, as after any lease that has ended.
 */
const expiry: Statement = {
  name: "expire_lease",
  text: `UPDATE causeway.nodes SET expires_at = clock_timestamp()
    WHERE id = $1 AND renewals = $2 AND expires_at > clock_timestamp()`
}

const leaseOf: Statement = {
  name: "lease_of_node",
  text: "SELECT renewals, lease FROM causeway.nodes WHERE id = $1 AND expires_at > clock_timestamp()"
}

/** Removes the lease of a node that has not renewed it since, so that its sessions can be taken at once. */
const removal: Statement = {
  name: "remove_stalled_lease",
  text: "DELETE FROM causeway.nodes WHERE id = $1 AND renewals = $2"
}

const endOfLease: Statement = { name: "end_lease", text: "DELETE FROM causeway.nodes WHERE id = $1" }

/** Rows of nodes that were gone for long. */
const cleaning: Statement = {
  name: "remove_nodes",
  text: "DELETE FROM causeway.nodes WHERE expires_at < clock_timestamp() - interval '1 day'"
}

/** A lease is renewed so often before it ends. */
const renewals = 3

/**
 * Intervals between renewals after which the last run in the directory counts as over. It may run still, where the
 * directory is a copy, as from a snapshot of a volume.
 */
const silentIntervals = 1.5

/** How long the end of the lease may take. */
const endLimit = Duration.seconds(1)

/** Sessions that are asked for at once. */
const portion = 1000

export interface Options {
  readonly pool: Pool
  readonly node: string
  /** The last run in the directory of this node, which has ended unless the directory is a copy. */
  readonly predecessor: Option.Option<string>
  readonly lease: Duration.Duration
  /** The sessions that the node owns. */
  readonly owned: OwnedSessions
  /** Where other nodes reach this one, if they do. */
  readonly address: () => string | null
  /** Called with the number of other nodes, with each renewal. */
  readonly onOthers: (count: number) => void
  /** Called where the lease had ended before it was renewed. */
  readonly onLapse: () => void
}

interface Other extends Renewals {
  readonly hasSameAddress: boolean
}

/** Tells where other nodes reach this one. Returns the others. */
export const publishAddress = (pool: Pool, node: string, address: string | null) =>
  pool.read(publication, [node, address], rows =>
    rows.map(
      ([id, renewals, lease, hasSameAddress]): Other => ({
        node: String(id),
        renewals: Number(renewals),
        lease: Number(lease),
        hasSameAddress: hasSameAddress === true
      })
    )
  )

/** Warns of each other node that is alive and tells the address of this one: one of the two cannot be reached. */
const addressWatch = () => {
  /** How often a node had renewed its lease when it was first seen; one that has not since may be an earlier run. */
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
          Effect.logWarning("Another node has told the same address: requests for its sessions do not reach it"),
          { node, address }
        ),
      { discard: true }
    )
  }
}

/** Renews the lease until the scope closes, which ends it: others may then open its sessions at once. */
export const keep = ({
  address,
  lease,
  node,
  onLapse,
  onOthers,
  owned,
  pool,
  predecessor
}: Options): Effect.Effect<void, never, Scope.Scope> =>
  Effect.gen(function* () {
    const millis = Duration.toMillis(lease)
    const watch = new NodeWatch(millis)
    const watchAddress = addressWatch()
    let lapses = 0
    let hasRenewed = false
    /** How many renewals are still followed by a check of what others have taken, which they may not have committed. */
    let checks = 0

    const check = Effect.suspend(() => {
      const known = owned.sessions().map(session => [session, owned.tokenOf(session)] as const)
      const portions = Arr.chunksOf(known, portion)
      return Effect.forEach(
        portions,
        some => {
          const query = Queries.owned(
            some.map(([session]) => session),
            node
          )
          return Effect.map(Queries.on(pool)(query), sessions => {
            const left = new Set(sessions)
            for (const [session, token] of some) if (!left.has(session)) owned.lose(session, token)
          })
        },
        { discard: true }
      )
    })

    const renew: Effect.Effect<void, StoreUnavailable> = Effect.gen(function* () {
      // An interruption would not stop the statement, which could then begin the lease again after the node has ended it.
      const [now, hadLease] = yield* Effect.uninterruptible(
        pool.read(renewal, [node, millis], ([row]) => [Number(row?.[0]), row?.[1] === true] as const)
      )
      const others = yield* publishAddress(pool, node, address())
      onOthers(others.length)
      yield* watchAddress(others, address())
      for (const stalled of watch.look(yield* Monotonic.millis, others)) {
        yield* pool.read(expiry, [stalled.node, stalled.renewals], () => undefined)
      }
      const isLapsed = now > lapses || (hasRenewed && !hadLease)
      hasRenewed = true
      if (isLapsed) {
        yield* Effect.logWarning("The lease of this node had ended; other nodes may have taken its sessions")
        lapses = now
        onLapse()
        checks = renewals + 1
      }
      if (checks === 0) return
      yield* check
      checks--
    })

    const endPredecessor = (id: string) =>
      Effect.gen(function* () {
        const before = yield* pool.read(leaseOf, [id], ([row]) => row)
        if (before === undefined) return
        const [count, predecessorLease] = [Number(before[0]), Number(before[1])]
        yield* Effect.sleep((predecessorLease / renewals) * silentIntervals)
        yield* pool.read(removal, [id, count], () => undefined)
      }).pipe(Effect.retry(Schedule.spaced(Duration.times(lease, 1 / renewals))), Effect.ignore)

    yield* Effect.addFinalizer(() =>
      Supervision.within(endLimit, Effect.ignore(pool.read(endOfLease, [node], () => undefined)))
    )
    yield* Effect.ignore(renew)
    if (Option.isSome(predecessor)) yield* Effect.forkScoped(Effect.interruptible(endPredecessor(predecessor.value)))
    yield* Supervision.repeatScoped("renewing the lease of the node", Duration.times(lease, 1 / renewals), renew)
    yield* Supervision.repeatScoped(
      "removing nodes that are gone",
      "1 hour",
      pool.read(cleaning, [], () => undefined)
    )
  })
