import { type Context, Duration, Effect, Exit } from "effect"
import type { Store, StoreUnavailable } from "../../Kv/Store.ts"
import { SessionTooLarge } from "../Sessions.ts"
import { namespaceOf } from "./SessionRecord.ts"

/** How many sessions each tenant has, held to a limit. */
export interface Quota {
  /**
   * Runs the creation of one session of a tenant, counted from before it begins; refused where the tenant has reached
   * the limit. Creations at the same time never exceed the limit together.
   */
  readonly creating: <A, E>(
    tenant: string,
    creation: Effect.Effect<A, E>,
    /** Whether a creation that failed so has certainly made no session. */
    isUndone: (error: E) => boolean
  ) => Effect.Effect<A, E | SessionTooLarge | StoreUnavailable>
  /** Runs the deletion of one session of a tenant, which tells whether there was one. */
  readonly deleting: <E>(tenant: string, deletion: Effect.Effect<boolean, E>) => Effect.Effect<void, E>
}

/** Tenants that are remembered; beyond, the oldest are counted anew. */
const mostTenants = 10_000

/** Entries that are read at once to count them. */
const pageEntries = 1000

/**
 * A tenant that seems to have reached its limit is counted again, as others may have removed some of its sessions from
 * the store; but no sooner than this after the last count, so that refusals are cheap.
 */
const recountAfter = Duration.toMillis("1 second")

/** What is known of a tenant. */
interface Tally {
  /** At least as many sessions as there are; `undefined` before the first count. */
  most: number | undefined
  /** Creations that are under way; they are part of `most`. */
  creating: number
  /** When the last count ended, in monotonic milliseconds. */
  countedAt: number
  /** Rises with the beginning and with the end of each count. */
  generation: number
  /** Held by whoever counts. */
  readonly turn: Effect.Semaphore
  /** Calls that hold on to this tally. */
  users: number
}

/** Counts sessions by their entries in the store. `now` is in monotonic milliseconds. */
export const make = (store: Context.Tag.Service<Store>, limit: number, now: () => number): Quota => {
  const tallies = new Map<string, Tally>()

  const tallyOf = (tenant: string): Tally => {
    const known = tallies.get(tenant)
    if (known !== undefined) return known
    if (tallies.size >= mostTenants) {
      for (const [oldest, { users }] of tallies) {
        if (users > 0) continue
        tallies.delete(oldest)
        break
      }
    }
    const tally: Tally = {
      most: undefined,
      creating: 0,
      countedAt: Number.NEGATIVE_INFINITY,
      generation: 0,
      turn: Effect.unsafeMakeSemaphore(1),
      users: 0
    }
    tallies.set(tenant, tally)
    return tally
  }

  const entriesOf = (tenant: string): Effect.Effect<number, StoreUnavailable> =>
    Effect.map(
      Effect.iterate(
        { after: "", more: true, sum: 0 },
        {
          while: ({ more }) => more,
          body: ({ after, sum }) =>
            Effect.map(
              store.list({ namespace: namespaceOf(tenant), prefix: "", after, limit: pageEntries }),
              ({ entries, more }) => ({ after: entries.at(-1)?.key ?? after, more, sum: sum + entries.length })
            )
        }
      ),
      ({ sum }) => sum
    )

  const isCountDue = ({ countedAt, most }: Tally): boolean =>
    most === undefined || (most >= limit && now() - countedAt >= recountAfter)

  /** Counts, unless somebody else has done so by the time it is its turn. */
  const count = (tenant: string, tally: Tally): Effect.Effect<void, StoreUnavailable> =>
    tally.turn.withPermits(1)(
      Effect.suspend(() => {
        if (!isCountDue(tally)) return Effect.void
        tally.generation++
        return Effect.map(entriesOf(tenant), counted => {
          tally.countedAt = now()
          // A creation under way may be among those counted: then the tally is one too high until the next count.
          tally.most = counted + tally.creating
        }).pipe(
          Effect.ensuring(
            Effect.sync(() => {
              tally.generation++
            })
          )
        )
      })
    )

  const using = <A, E>(tenant: string, body: (tally: Tally) => Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.acquireUseRelease(
      Effect.sync(() => {
        const tally = tallyOf(tenant)
        tally.users++
        return tally
      }),
      body,
      tally =>
        Effect.sync(() => {
          tally.users--
        })
    )

  /** Takes a place, or refuses; nothing else runs between the look and the taking. */
  const take = (tally: Tally): Effect.Effect<void, SessionTooLarge> =>
    Effect.suspend(() => {
      const most = tally.most ?? 0
      if (most >= limit) {
        return new SessionTooLarge({ message: `The tenant has ${most} sessions; the limit is ${limit}` })
      }
      tally.most = most + 1
      tally.creating++
      return Effect.void
    })

  return {
    creating: (tenant, creation, isUndone) =>
      using(tenant, tally =>
        Effect.zipRight(
          Effect.suspend(() => (isCountDue(tally) ? count(tenant, tally) : Effect.void)),
          Effect.acquireUseRelease(
            take(tally),
            () => creation,
            (_, exit) =>
              Effect.sync(() => {
                tally.creating--
                // Where nobody can tell whether there is a session now, the next count finds out.
                if (Exit.isFailure(exit) && exit.cause._tag === "Fail" && isUndone(exit.cause.error)) {
                  tally.most = (tally.most ?? 1) - 1
                }
              })
          )
        )
      ),
    deleting: (tenant, deletion) =>
      using(tenant, tally => {
        const { generation } = tally
        return Effect.map(deletion, isDeleted => {
          // A count at the same time may have left the session out already.
          const isCounted = isDeleted && tally.generation === generation && generation % 2 === 0
          if (isCounted && tally.most !== undefined) tally.most--
        })
      })
  }
}
