/** The link to other nodes. This is the port; `NodeClient` implements it. */
import { Context, type Effect, Option, Schema } from "effect"
import type { ReachablePeer } from "../SessionNodes.ts"
import type { SessionsBusy, TransferredSession } from "../Sessions.ts"
import type { Command, Reply } from "./Command.ts"

/** No connection to the node could be established. The command was not carried out. */
export class NodeUnreachable extends Schema.TaggedError<NodeUnreachable>()("NodeUnreachable", {
  reason: Schema.String
}) {}

/** The node has refused the command. The command was not carried out. */
export class NodeRefused extends Schema.TaggedError<NodeRefused>()("NodeRefused", { reason: Schema.String }) {}

/** The command was sent and the node did not answer. Whether it was carried out is not known. */
export class NodeSilent extends Schema.TaggedError<NodeSilent>()("NodeSilent", { reason: Schema.String }) {}

/** Why there is no reply. Only after `NodeSilent` the command may have been carried out. */
export type NodeLinkError = NodeUnreachable | NodeRefused | NodeSilent

/** Sends commands to other nodes. */
export interface NodeLinkShape {
  /**
   * Fails with `SessionsBusy`, and sends nothing, if the tenant has used its share of the commands in progress. A command
   * ends with the reply `displaced` if another tenant needs its place. An interruption also interrupts the command on the
   * other node, as far as it is interruptible.
   */
  readonly send: (owner: ReachablePeer, command: Command) => Effect.Effect<Reply, NodeLinkError | SessionsBusy>
  /** Transfers a session of this node to another one. Returns whether that node has taken it. */
  readonly transfer: (
    to: ReachablePeer,
    transferred: TransferredSession
  ) => Effect.Effect<boolean, NodeLinkError | SessionsBusy>
}

/** The link to other nodes; none if this node is alone or has no settings for it. */
export class NodeLink extends Context.Reference<NodeLink>()("causeway/NodeLink", {
  defaultValue: (): Option.Option<NodeLinkShape> => Option.none()
}) {}
