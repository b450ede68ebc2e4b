/**
 * The port `SessionNodes` over the connections of a node.
 */
import { Effect, Option } from "effect"
import type { SessionNodesShape } from "../../../Gateway/SessionNodes.ts"
import { bySystemClock } from "../Database/DatabaseClock.ts"
import type { Pool } from "../Database/Pool.ts"
import * as NodeLease from "./NodeLease.ts"
import type { OwnedSessions } from "./OwnedSessions.ts"
import * as Queries from "./Queries.ts"
import type { SessionNotifications } from "./SessionNotifications.ts"

/** This node among those that share the database. */
export interface Presence {
  /** The id of its run. */
  readonly node: string
  /** The address at which other nodes reach it, if there is one. */
  address: string | null
  /** The number of nodes, including this one. */
  count: number
}

/** This node, the connections, and the sessions that it owns and watches. */
export interface Options {
  readonly presence: Presence
  readonly reads: Pool
  readonly writes: Pool
  readonly owned: OwnedSessions
  readonly notifications: SessionNotifications
  /** See `NodeLease.keep`. */
  readonly leased: Effect.Effect<void>
}

/** The port `SessionNodes` of this node. */
export const make = ({ leased, notifications, owned, presence, reads, writes }: Options): SessionNodesShape => {
  const { node } = presence
  const run = Queries.on(reads)
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
    watch: (session, onChange) => notifications.watch(session, onChange),
    ownerOf: session => Effect.map(run(Queries.owner(session, node)), Option.fromNullable)
  }
}
