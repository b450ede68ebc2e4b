/**
 * The link to other nodes: the port, which `NodeClient` implements, the commands and replies, and how nodes authenticate
 * each other. They use TLS with a pre-shared key (RFC 4279, RFC 5489), which both derive from the secret. The handshake of
 * a node without the secret fails, and no other process can read or change the traffic.
 */
import { createHash } from "node:crypto"
import type { TlsOptions } from "node:tls"
import { Context, Duration, type Effect, Either, Option, Redacted, Schema } from "effect"
import type { Recorded } from "../../Operations/Activity/Model.ts"
import type { Wanted } from "../../Operations/Activity/Recorder.ts"
import type { Answer } from "../Protocol/Answer.ts"
import { optional } from "../Protocol/Fields.ts"
import { frameBytes } from "../Protocol/Limits.ts"
import { Request } from "../Protocol/Request.ts"
import type { Call, Failure } from "../Requests.ts"
import type { ReachablePeer } from "../SessionNodes.ts"
import type { SessionsBusy, TransferredSession } from "../Sessions.ts"

/** Maximum bytes of a command. It may be longer than the client's frame: numbers may have more digits. */
export const commandBytes = 4 * frameBytes

/** The HTTP paths of a node. Nodes of different versions run together during an upgrade, so they stay the same. */
export const paths = { command: "/commands", transfer: "/transfers", activity: "/activity" } as const

/** The header with the tenant of a command. The tenant's share is checked before the command is read. */
export const tenantHeader = "causeway-tenant"

/** A client's request. Only the node that it names carries it out. */
const Command = Schema.Struct({
  /** The id of that node's run. Another run may have its address by now. */
  node: Schema.String,
  tenant: Schema.String,
  actor: Schema.String,
  /** The same for each attempt, so that the command is carried out once. */
  commandId: Schema.String,
  /** See `Caller`. */
  key: optional(Schema.String),
  awaitsMessages: optional(Schema.Boolean),
  run: optional(Schema.Struct({ id: Schema.String, digest: Schema.String, input: optional(Schema.Unknown) })),
  /** Whether the node that sends it has subscribers to the session. */
  hasSubscribers: optional(Schema.Boolean),
  resumes: optional(Schema.Boolean),
  unlessResumed: optional(Schema.Boolean),
  request: Request
})

export interface Command extends Omit<(typeof Command)["Type"], "request"> {
  readonly request: Call
}

const CommandText = Schema.parseJson(Command)

/** A command as JSON text, with the secrets that its request may have. */
export const encodeCommand: (command: Command) => string = Schema.encodeSync(CommandText)

const decodeText = Schema.decodeUnknownEither(CommandText)

const isCall = (request: Request): request is Call =>
  request.type !== "subscribe" && request.type !== "unsubscribe" && request.type !== "ping"

/** Parses a command. Left is the reason why the text is not one. */
export const decodeCommand = (text: string): Either.Either<Command, string> => {
  const decoded = Either.mapLeft(decodeText(text), ({ message }) => message)
  return Either.flatMap(decoded, command => {
    const { request } = command
    return isCall(request)
      ? Either.right({ ...command, request })
      : Either.left(`${request.type} concerns a connection`)
  })
}

/** A session that is transferred to the node that it names. */
const Transfer = Schema.Struct({
  node: Schema.String,
  session: Schema.String,
  from: Schema.Struct({ node: Schema.String, token: Schema.Number }),
  secrets: Schema.Record({ key: Schema.String, value: Schema.Redacted(Schema.String) })
})

export interface Transfer extends TransferredSession {
  readonly node: string
}

const TransferText = Schema.parseJson(Transfer)

/** The text has the secrets. */
export const encodeTransfer: (transfer: Transfer) => string = Schema.encodeSync(TransferText)

/** Parses a transfer. None has no reason: the text may contain secrets. */
export const decodeTransfer: (text: unknown) => Option.Option<Transfer> = Schema.decodeUnknownOption(TransferText)

/** Asks a node what it has recorded. It is for no tenant. */
const ActivityRequest = Schema.Struct({ node: Schema.String, lastMs: Schema.Number, most: Schema.Number })

export type ActivityRequest = typeof ActivityRequest.Type

const ActivityText = Schema.parseJson(ActivityRequest)

export const encodeActivityRequest: (request: ActivityRequest) => string = Schema.encodeSync(ActivityText)

export const decodeActivityRequest: (text: unknown) => Option.Option<ActivityRequest> =
  Schema.decodeUnknownOption(ActivityText)

/** The tenant of a session. */
export const tenantOf = (session: string): string => session.slice(0, session.indexOf("/"))

/** A node's reply to a command. */
export type Reply =
  | { readonly is: "answer"; readonly answer: Answer }
  | { readonly is: "failure"; readonly failure: Failure }
  /** The session belongs to the node now. */
  | { readonly is: "adopted" }
  /** What the node has recorded. */
  | { readonly is: "recorded"; readonly recorded: Recorded }
  /** Another tenant needed the place of the command. It may have been carried out. */
  | { readonly is: "displaced" }
  /** The session does not belong to the node, or the command is for another run. Nothing was done. */
  | { readonly is: "not_owner" }

/** A reply as JSON text. */
export const encodeReply = (reply: Reply): string => JSON.stringify(reply)

/** Parses a reply. Its content is not checked further: it comes from a node that has proved to have the secret. */
export const decodeReply = (text: string): Reply | undefined => {
  try {
    const reply: unknown = JSON.parse(text)
    return typeof reply === "object" && reply !== null && "is" in reply ? (reply as Reply) : undefined
  } catch {
    return undefined
  }
}

const identity = "causeway"

/**
 * Node.js supports pre-shared keys in TLS 1.2 only. The exchange is ephemeral: a secret that leaks later reveals no traffic.
 */
const common = {
  ciphers: "ECDHE-PSK-CHACHA20-POLY1305",
  minVersion: "TLSv1.2",
  maxVersion: "TLSv1.2"
} as const

const keyOf = (secret: Redacted.Redacted): Buffer =>
  createHash("sha256").update("causeway nodes\0").update(Redacted.value(secret)).digest()

/** An option of `node:tls`, in milliseconds. */
const handshakeTimeout = Duration.toMillis("2 seconds")

/** Options of a server that accepts only nodes with the secret. */
export const ofServer = (secret: Redacted.Redacted): TlsOptions => {
  const psk = keyOf(secret)
  return { ...common, handshakeTimeout, pskCallback: (_socket, name) => (name === identity ? psk : null) }
}

/** Options of connections to a server with the secret; a handshake with any other server fails. */
export const ofClient = (secret: Redacted.Redacted) => {
  const psk = keyOf(secret)
  return {
    ...common,
    pskCallback: () => ({ psk, identity }),
    // There are no certificates: the key identifies the node.
    checkServerIdentity: () => undefined
  }
}

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
  /** What another node has recorded; none if it records nothing. */
  readonly activity: (
    of: ReachablePeer,
    wanted: Wanted
  ) => Effect.Effect<Option.Option<Recorded>, NodeLinkError | SessionsBusy>
}

/** The link to other nodes; none if this node is alone or has no settings for it. */
export class NodeLink extends Context.Reference<NodeLink>()("causeway/NodeLink", {
  defaultValue: (): Option.Option<NodeLinkShape> => Option.none()
}) {}
