import { Context, type Effect, Option, Schema } from "effect"
import type { ReachablePeer } from "../SessionNodes.ts"
import type { HandedOver, SessionsBusy } from "../Sessions.ts"
import type { Command, Reply } from "./Command.ts"

/** No connection to the node could be made, so that nothing was done. */
export class NodeUnreachable extends Schema.TaggedError<NodeUnreachable>()("NodeUnreachable", {
  reason: Schema.String
}) {}

/** The node has refused the command before anything was done for it. */
export class NodeRefused extends Schema.TaggedError<NodeRefused>()("NodeRefused", { reason: Schema.String }) {}

/** The node was sent the command and did not answer: whether it was carried out is not known. */
export class NodeSilent extends Schema.TaggedError<NodeSilent>()("NodeSilent", { reason: Schema.String }) {}

export type NodeLinkError = NodeUnreachable | NodeRefused | NodeSilent

/** Sends commands to other nodes. */
export interface NodeLinkShape {
  /**
   * Fails with `SessionsBusy`, and sends nothing, where the tenant has its share of what may be under way. Interrupting
   * it interrupts the command there, as far as it can be.
   */
  readonly send: (owner: ReachablePeer, command: Command) => Effect.Effect<Reply, NodeLinkError | SessionsBusy>
  /** Gives a session of this node to another one; tells whether that has taken it. */
  readonly handOver: (to: ReachablePeer, handedOver: HandedOver) => Effect.Effect<boolean, NodeLinkError | SessionsBusy>
}

/** The way to other nodes; none where this one is alone, or is not told how they reach each other. */
export class NodeLink extends Context.Reference<NodeLink>()("causeway/NodeLink", {
  defaultValue: (): Option.Option<NodeLinkShape> => Option.none()
}) {}
