/**
 * What a node sends to the node that a session belongs to, and what it is answered.
 */
import { Either, type Option, Schema } from "effect"
import type { Answer } from "../Protocol/Answer.ts"
import { frameBytes } from "../Protocol/Limits.ts"
import { Request } from "../Protocol/Request.ts"
import type { Call, Failure } from "../Requests.ts"
import type { HandedOver } from "../Sessions.ts"

/** Bytes of a command: numbers may be longer than a client wrote them. */
export const commandBytes = 4 * frameBytes

/** Where a node takes what. */
export const paths = { command: "/commands", handover: "/handovers" } as const

/** The header that names the tenant of a command, so that its share is known before the command is read. */
export const tenantHeader = "causeway-tenant"

/** A request of a client. It is carried out by the node that it names, or by none. */
const Command = Schema.Struct({
  /** The id of that node's run: another one may have its address meanwhile. */
  node: Schema.String,
  tenant: Schema.String,
  actor: Schema.String,
  /** The same for each attempt, so that no two of them are carried out. */
  commandId: Schema.String,
  request: Request
})

export interface Command extends Omit<(typeof Command)["Type"], "request"> {
  readonly request: Call
}

const CommandText = Schema.parseJson(Command)

export const encodeCommand: (command: Command) => string = Schema.encodeSync(CommandText)

const decodeText = Schema.decodeUnknownEither(CommandText)

const isCall = (request: Request): request is Call =>
  request.type !== "subscribe" && request.type !== "unsubscribe" && request.type !== "ping"

/** The command of a text, or what is wrong with it. */
export const decodeCommand = (text: string): Either.Either<Command, string> => {
  const decoded = Either.mapLeft(decodeText(text), ({ message }) => message)
  return Either.flatMap(decoded, command => {
    const { request } = command
    return isCall(request)
      ? Either.right({ ...command, request })
      : Either.left(`${request.type} concerns a connection`)
  })
}

/** A session that is handed over, for the node that it names. */
const Handover = Schema.Struct({
  node: Schema.String,
  session: Schema.String,
  from: Schema.Struct({ node: Schema.String, token: Schema.Number }),
  secrets: Schema.Record({ key: Schema.String, value: Schema.Redacted(Schema.String) })
})

export interface Handover extends HandedOver {
  readonly node: string
}

const HandoverText = Schema.parseJson(Handover)

/** The text has the secrets. */
export const encodeHandover: (handover: Handover) => string = Schema.encodeSync(HandoverText)

const decodeHandoverText = Schema.decodeUnknownOption(HandoverText)

/** The session of a text. What is wrong with it is not told, as it may have secrets. */
export const decodeHandover: (text: string) => Option.Option<Handover> = text => decodeHandoverText(text)

/** The tenant of a session. */
export const tenantOf = (session: string): string => session.slice(0, session.indexOf("/"))

/** What a node answers. */
export type Reply =
  | { readonly is: "answer"; readonly answer: Answer }
  | { readonly is: "failure"; readonly failure: Failure }
  /** The session belongs to the node now. */
  | { readonly is: "adopted" }
  /** The session does not belong to the node, or the command is for another run. Nothing was done. */
  | { readonly is: "not_owner" }

export const encodeReply = (reply: Reply): string => JSON.stringify(reply)

/** The reply of a text. It comes from a node that has the secret, so that its content is not checked any further. */
export const decodeReply = (text: string): Reply | undefined => {
  try {
    const reply: unknown = JSON.parse(text)
    return typeof reply === "object" && reply !== null && "is" in reply ? (reply as Reply) : undefined
  } catch {
    return undefined
  }
}
