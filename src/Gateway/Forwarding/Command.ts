/**
 * The commands that a node sends to the node that owns a session, and the replies.
 */
import { Either, type Option, Schema } from "effect"
import type { Answer } from "../Protocol/Answer.ts"
import { optional } from "../Protocol/Fields.ts"
import { frameBytes } from "../Protocol/Limits.ts"
import { Request } from "../Protocol/Request.ts"
import type { Call, Failure } from "../Requests.ts"
import type { TransferredSession } from "../Sessions.ts"

/** Maximum bytes of a command. It may be longer than the client's frame: numbers may have more digits. */
export const commandBytes = 4 * frameBytes

/** The HTTP paths of a node. Nodes of different versions run together during an upgrade, so they stay the same. */
export const paths = { command: "/commands", transfer: "/transfers" } as const

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
  /** Whether the node that sends it has subscribers to the session. */
  hasSubscribers: optional(Schema.Boolean),
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

/** The tenant of a session. */
export const tenantOf = (session: string): string => session.slice(0, session.indexOf("/"))

/** A node's reply to a command. */
export type Reply =
  | { readonly is: "answer"; readonly answer: Answer }
  | { readonly is: "failure"; readonly failure: Failure }
  /** The session belongs to the node now. */
  | { readonly is: "adopted" }
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
