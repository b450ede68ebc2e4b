/** What the input of a client of another protocol asks for. Pure. */
import type { AgentMessage, Conversation } from "../../Client/Conversation/Conversation.ts"
import { BadRequest, Conflict } from "../../Http/ApiError.ts"
import type { ClientRun } from "../Sessions.ts"

/** What a client gets: a turn, and what its protocol adds. */
export interface Target {
  readonly turnId: string
}

/** An answer to the agent. */
export interface Reply {
  readonly requestId: string
  readonly answer: unknown
  /** The client's key of it. Without one, the run or the protocol makes it idempotent. */
  readonly clientMessageId?: string
}

/** An input that is not carried out. */
export interface Refusal {
  readonly is: "refused"
  readonly error: BadRequest | Conflict
}

/** What is to be done before the client gets the target. */
export type Plan<T extends Target = Target> =
  | { readonly is: "attach"; readonly target: T }
  | {
      readonly is: "send"
      readonly content: string
      /** The client's key of the message, or else that of the protocol: see `Caller`. */
      readonly clientMessageId?: string
      readonly key?: string
      readonly run?: ClientRun
      /** Answers that the message may have been: what it is, if it cannot be sent. */
      readonly earlier?: ReadonlyArray<{ readonly reply: Reply; readonly target: T }>
    }
  | { readonly is: "answer"; readonly replies: ReadonlyArray<Reply>; readonly target: T; readonly run?: ClientRun }
  | Refusal

/** A client's mistake. The text names the member. */
export const invalid = (error: string): Refusal => ({
  is: "refused",
  error: new BadRequest({ error: `Invalid request: ${error}` })
})

/** What the state of the session does not allow. */
export const conflict = (error: string): Refusal => ({ is: "refused", error: new Conflict({ error }) })

/** The agent's message of a turn. */
export const messageOfTurn = ({ messages }: Conversation, turnId: string): AgentMessage | undefined =>
  messages.findLast((message): message is AgentMessage => message.role === "agent" && message.turnId === turnId)

const unsentCodes: ReadonlySet<string | undefined> = new Set(["not_sent", "not_recorded"])

/** Whether the message of a turn has not reached the agent, so that the same message may be sent again. */
export const isUnsent = ({ error }: Pick<AgentMessage, "error">): boolean => unsentCodes.has(error?.code)

/** A conversation without the messages of users that have not reached the agent. */
export const sentIn = (conversation: Conversation): Conversation => {
  const unsent = new Set(
    conversation.messages.flatMap(message => (message.role === "agent" && isUnsent(message) ? [message.turnId] : []))
  )
  const messages = conversation.messages.filter(({ role, turnId }) => role === "agent" || !unsent.has(turnId))
  return { ...conversation, messages }
}
