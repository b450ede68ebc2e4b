/**
 * Commits groups of writes to histories, and keeps the sessions that this node owns and watches up to date with them.
 */
import { Effect, Either, Exit } from "effect"
import { type History, OutOfStep, type Retention, SessionElsewhere } from "../../../Gateway/SessionEvents.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import { isOfContent, type QueryError, unavailable } from "../Database/DatabaseError.ts"
import * as GroupCall from "../Database/GroupCall.ts"
import type { Pool } from "../Database/Pool.ts"
import type { OwnedSessions } from "./OwnedSessions.ts"
import type { SessionNotifications } from "./SessionNotifications.ts"
import * as Writes from "./Writes.ts"

/** Why a write was not committed. */
export type WriteError = OutOfStep | SessionElsewhere | StoreUnavailable

/** The outcome of a write. One that opens a history returns it. */
type Outcome = Either.Either<History | undefined, WriteError>

/** The connections, this node and its sessions. */
export interface Options {
  readonly pool: Pool
  /** See `GroupCall`. */
  readonly lastServerTime: () => number
  readonly node: string
  /** The length of the lease of the node, in milliseconds. */
  readonly lease: number
  readonly owned: OwnedSessions
  readonly notifications: SessionNotifications
  readonly retention: Retention
}

/** Returns the outcome of each write. Callers must not overlap calls. For `isGivenUp` see `GroupCall`. */
export type Commit = (
  group: ReadonlyArray<Writes.EventWrite>,
  isGivenUp: () => boolean
) => Effect.Effect<ReadonlyArray<Outcome>, StoreUnavailable>

/** Makes the commit of a node. */
export const make = ({ lastServerTime, lease, node, notifications, owned, pool, retention }: Options): Commit => {
  const holder: Writes.LeaseHolder = { node, lease, tokenOf: owned.tokenOf }
  const call = GroupCall.make(pool, lastServerTime)

  /** Applies the outcome of a write to what this node knows of the session. */
  const settle = ({ op, session }: Writes.EventWrite, outcome: Writes.Outcome): Outcome => {
    switch (outcome._tag) {
      case "Stored":
        if (op === "remove") owned.remove(session)
        if (op === "remove" || op === "append") notifications.changed(session)
        return Either.right(undefined)
      case "Opened":
        owned.add(session, outcome.token)
        if (op === "renewEpoch") notifications.changed(session)
        return Either.right(outcome.history)
      case "OutOfStep":
        return Either.left(new OutOfStep({ session, headSeq: outcome.headSeq }))
      case "Elsewhere":
        owned.lose(session)
        return Either.left(new SessionElsewhere({ session }))
    }
  }

  const commitAll = (
    group: ReadonlyArray<Writes.EventWrite>,
    isGivenUp: () => boolean
  ): Effect.Effect<ReadonlyArray<Outcome>, QueryError | StoreUnavailable> =>
    Effect.suspend(() => {
      const encoded = Writes.encode(group, holder, retention)
      return Effect.map(
        call(Writes.call, id => [id, ...encoded.parameters], isGivenUp),
        result => Writes.decode(encoded, result).map((outcome, index) => settle(group[index]!, outcome))
      )
    })

  /** A write that the database refuses must not fail the others of its group. */
  const commitEach = (
    group: ReadonlyArray<Writes.EventWrite>,
    isGivenUp: () => boolean
  ): Effect.Effect<ReadonlyArray<Outcome>> =>
    Effect.forEach(group, one =>
      Effect.match(commitAll([one], isGivenUp), {
        onFailure: (error): Outcome => Either.left(unavailable(error)),
        onSuccess: ([outcome]) => outcome!
      })
    )

  return (group, isGivenUp) =>
    Effect.catchAll(commitAll(group, isGivenUp), error =>
      isOfContent(error) && group.length > 1 ? commitEach(group, isGivenUp) : Exit.fail(unavailable(error))
    )
}
