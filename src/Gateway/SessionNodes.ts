/** The nodes that share a session database, and the owners of sessions. This is the port. */
import { Context, Effect, Option } from "effect"
import type { StoreUnavailable } from "../Kv/Store.ts"

/** Another node. */
export interface Peer {
  /** The id of its run. */
  readonly node: string
  /** `<host>:<port>` where it takes commands of other nodes; null if it takes none. */
  readonly address: string | null
}

/** A node that takes commands of other nodes. */
export interface ReachablePeer extends Peer {
  readonly address: string
}

/** The node that owns a session. */
export interface SessionOwner {
  readonly node: string
  /** The fencing token with which it owns the session. */
  readonly token: number
}

/** The status of this node. */
export interface NodeStatus {
  /** The id of this run. */
  readonly id: string
  /** Number of sessions that belong to it. */
  readonly sessions: number
  /** Number of nodes, including this one. */
  readonly nodes: number
}

/** The nodes that share a session database, and the owners of sessions. */
export interface SessionNodesShape {
  /** The id of this run of the node. */
  readonly self: string
  /** None if the node is alone. */
  readonly status: () => Option.Option<NodeStatus>
  /** Stores where this node takes requests of other nodes; null if it no longer does. */
  readonly advertise: (address: string | null) => Effect.Effect<void>
  /** The other node that owns a session. None if this node or no node owns it, or if its owner has stopped. */
  readonly ownerOf: (session: string) => Effect.Effect<Option.Option<Peer>, StoreUnavailable>
  /** The other nodes that take requests; none if the node is alone. */
  readonly peers: Effect.Effect<ReadonlyArray<ReachablePeer>, StoreUnavailable>
  /**
   * Takes a session from its owner. Returns false if `from` no longer owns it. `prepare` is run before, with the fencing
   * token with which this node will own the session.
   */
  readonly adopt: <E>(
    session: string,
    from: SessionOwner,
    prepare: (token: number) => Effect.Effect<void, E>
  ) => Effect.Effect<boolean, E | StoreUnavailable>
  /** Those of the given sessions that belong to other nodes. */
  readonly elsewhere: (sessions: ReadonlyArray<string>) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
  /**
   * Calls back soon after a session may have changed in the database, on any node. Returns a function that stops this.
   * There may be spurious calls. The callback must not block or throw.
   */
  readonly watch: (session: string, onChange: () => void) => () => void
  /** The fencing token with which this node owns a session; `undefined` if it does not own it. */
  readonly tokenOf: (session: string) => number | undefined
  /**
   * Whether another node has taken a session that this node had opened. If the lease of this node may be over, this is
   * found out in the database first.
   */
  readonly hasLost: (session: string) => Effect.Effect<boolean>
}

const noSessions: ReadonlySet<string> = new Set()

/** A node that shares its database with no other. */
export const alone: SessionNodesShape = {
  self: "",
  status: Option.none,
  advertise: () => Effect.void,
  ownerOf: () => Effect.succeedNone,
  peers: Effect.succeed([]),
  adopt: () => Effect.succeed(false),
  elsewhere: () => Effect.succeed(noSessions),
  watch: () => () => {},
  tokenOf: () => undefined,
  hasLost: () => Effect.succeed(false)
}

/** The nodes that share the session database. By default this node is alone; a shared backend provides others. */
export class SessionNodes extends Context.Reference<SessionNodes>()("causeway/SessionNodes", {
  defaultValue: (): SessionNodesShape => alone
}) {}
