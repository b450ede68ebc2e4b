import { Context, Effect, Option } from "effect"
import type { StoreUnavailable } from "../Kv/Store.ts"

/** Another node. */
export interface Peer {
  /** The id of its run. */
  readonly node: string
  /** `<host>:<port>` where it takes commands of other nodes; null where it takes none. */
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

/** A node among others. */
export interface NodeStatus {
  /** The id of this run. */
  readonly id: string
  /** How many sessions belong to it. */
  readonly sessions: number
  /** How many nodes there are, this one included. */
  readonly nodes: number
}

/** What a node knows of the others that share its session database. */
export interface SessionNodesShape {
  /** The id of this run of the node. */
  readonly self: string
  /** None where the node is alone. */
  readonly status: () => Option.Option<NodeStatus>
  /** Tells the others where this node takes their requests; null where it does not any more. */
  readonly advertise: (address: string | null) => Effect.Effect<void>
  /** The node that a session belongs to; none where that is this one, or no node, or one that is gone. */
  readonly ownerOf: (session: string) => Effect.Effect<Option.Option<Peer>, StoreUnavailable>
  /** The other nodes that take requests; none where the node is alone. */
  readonly peers: Effect.Effect<ReadonlyArray<ReachablePeer>, StoreUnavailable>
  /**
   * Takes a session that another node gives up, and tells whether it was still that node's. `prepare` is run before, with
   * what this node will own the session with.
   */
  readonly adopt: <E>(
    session: string,
    from: SessionOwner,
    prepare: (token: number) => Effect.Effect<void, E>
  ) => Effect.Effect<boolean, E | StoreUnavailable>
  /** Those of some sessions that belong to other nodes. */
  readonly elsewhere: (sessions: ReadonlyArray<string>) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
  /**
   * Calls back soon after what is stored of a session may have changed, on whichever node. Returns how to stop that. A
   * call tells nothing else, and may be made for nothing; it must not block or throw.
   */
  readonly watch: (session: string, onChange: () => void) => () => void
  /**
   * With what this node owns a session: never the same after another one has had it. Nothing where it does not own it.
   */
  readonly tokenOf: (session: string) => number | undefined
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
  tokenOf: () => undefined
}

/** The nodes that share the session database. By default this one is alone; a backend that nodes share provides it. */
export class SessionNodes extends Context.Reference<SessionNodes>()("causeway/SessionNodes", {
  defaultValue: (): SessionNodesShape => alone
}) {}
