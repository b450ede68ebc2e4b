/** Chats: what their clients send, and the turns that they follow. A chat is a session, whose name is the chat's id. */
import { Context, Effect, Layer, Option } from "effect"
import type { AgentMessage, Conversation } from "../../Client/Conversation/Conversation.ts"
import * as Fold from "../../Client/Conversation/Fold.ts"
import { type ApiError, Conflict, InternalServerError, NotFound } from "../../Http/ApiError.ts"
import { turnOf } from "../../Upstream/PlatformSocket.ts"
import { Clients, type ClientsShape } from "../Clients.ts"
import { Conversations } from "../Conversations.ts"
import type { AnswerOf } from "../Protocol/Answer.ts"
import type { Refused, RequestError } from "../Requests.ts"
import { SessionEvents, type SessionUnreadable } from "../SessionEvents.ts"
import { keyOf } from "../Sessions/Session/SessionRecords.ts"
import type { Caller, Subscriber, Subscription } from "../Sessions.ts"
import { errorOf } from "../Streams/Errors.ts"
import { Threads } from "../Threads.ts"
import { type Decision, MessageStream } from "./MessageStream.ts"
import { decisionKey, earlierAnswers, planOf, type Reply, type Submission, type Target } from "./Submission.ts"
import { messagesOf, segmentAfter, type UiMessage, type UiPart } from "./UiMessage.ts"

/** A chat, by its id and the type of its agent. */
export interface Chat {
  readonly agentType: string
  readonly id: string
}

/** The message of a session that a client follows. */
export interface Followed {
  readonly sessionId: string
  readonly target: Target
}

/** Where the stream of a message begins. */
export interface Beginning {
  readonly stream: MessageStream
  /** The parts of the message that the client has. */
  readonly client: ReadonlyArray<UiPart> | undefined
  /** The newest event in it. */
  readonly after: number
}

type Failed = RequestError | Refused | SessionUnreadable | ApiError

/** Names the requests of chats to other nodes. */
const id = "chat"

export interface ChatsShape {
  /** Carries out what a client sends. */
  readonly submit: (caller: Caller, chat: Chat, submission: Submission) => Effect.Effect<Followed, ApiError>
  /** The turn in progress; none if nothing runs. */
  readonly resume: (caller: Caller, chat: Chat) => Effect.Effect<Option.Option<Followed>, ApiError>
  /** Begins the stream of a message. */
  readonly begin: (subscription: Subscription, target: Target) => Effect.Effect<Beginning, ApiError>
  /** Interrupts a turn, by default the one in progress, if it has not ended. */
  readonly stop: (caller: Caller, chat: Chat, turnId?: string) => Effect.Effect<void, ApiError>
  /** The messages of a chat; none if it was never used. */
  readonly messages: (caller: Caller, chat: Chat) => Effect.Effect<ReadonlyArray<UiMessage>, ApiError>
  /** What connections share. */
  readonly clients: ClientsShape
}

/** Chats of all tenants. */
export class Chats extends Context.Tag("causeway/GatewayChats")<Chats, ChatsShape>() {}

const toApiError = (error: Failed): ApiError => {
  if (!("_tag" in error)) return errorOf(error)
  if (error._tag === "SessionUnreadable") return new InternalServerError({ error: "The history cannot be read" })
  return "error" in error ? error : errorOf(error)
}

const isConflict = (error: Failed): boolean =>
  "_tag" in error ? error._tag === "SessionConflict" : error.failure.code === "conflict"

/** No turn is in progress, or there is no instance. */
const hasNoTurn = (error: ApiError): boolean => error._tag === "Conflict" || error._tag === "NotFound"

const ignored: Subscriber = { onFrames: () => {}, onDeleted: () => {}, onLost: () => {} }

/** The fold of a turn, without the messages of others that have ended. */
const foldOf = (conversation: Conversation, turnId: string): Fold.Fold => {
  const messages = conversation.messages.filter(
    message => message.role === "agent" && (message.turnId === turnId || message.status === "running")
  )
  return Fold.resume({ ...conversation, messages })
}

/** Maximum number of requests of which it is looked up whether they were decided. */
const maxLookups = 32

const make = Effect.gen(function* () {
  const clients = yield* Clients
  const conversations = yield* Conversations
  const threads = yield* Threads
  const events = yield* SessionEvents
  const { execute, sessions } = clients

  const read = (subscription: Subscription): Effect.Effect<Conversation, Failed> =>
    Effect.gen(function* () {
      const { text } = yield* conversations.read(subscription)
      yield* turnOf(text.length)
      return JSON.parse(text) as Conversation
    })

  /** The session of a chat that was used before. `SessionNotFound` if it was deleted. */
  const find = (caller: Caller, chat: Chat) =>
    Effect.map(
      threads.find(caller, chat.id),
      Option.map(session => session.id)
    )

  /** The conversation of a chat's session. */
  const conversationOf = (caller: Caller, chat: Chat, sessionId: string): Effect.Effect<Conversation, Failed> =>
    Effect.gen(function* () {
      const subscription = yield* sessions.subscribe(caller, sessionId, ignored)
      if (subscription.session.agentType !== chat.agentType) {
        return yield* new Conflict({ error: `The chat ${JSON.stringify(chat.id)} is with an agent of another type` })
      }
      return yield* read(subscription)
    }).pipe(Effect.scoped)

  /** The requests of a message that were decided and are not confirmed by the agent. A receipt does not say how. */
  const decided = ({ session: { id, tenant } }: Subscription, { parts }: AgentMessage) =>
    Effect.filter(
      parts.filter(part => part.type === "approval" && part.status === "pending").slice(-maxLookups),
      ({ seq }) => Effect.map(events.receipt(keyOf(tenant, id), decisionKey(seq)), Option.isSome)
    ).pipe(Effect.map(found => found.map(({ seq }): readonly [number, Decision | undefined] => [seq, undefined])))

  const answer = (caller: Caller, sessionId: string, reply: Reply) =>
    execute(caller, { type: "answer", id, sessionId, ...reply })

  /** The question that a message has answered before. */
  const answeredBefore = (caller: Caller, sessionId: string, conversation: Conversation, text: string, key: string) =>
    Effect.findFirst(earlierAnswers(conversation, text, key), ({ reply }) =>
      answer(caller, sessionId, reply).pipe(
        Effect.as(true),
        Effect.catchIf(
          error => isConflict(error) || hasNoTurn(errorOf(error)),
          () => Effect.succeed(false)
        )
      )
    )

  const carryOut = (
    caller: Caller,
    sessionId: string,
    conversation: Conversation,
    submission: Submission
  ): Effect.Effect<Target, Failed> => {
    const plan = planOf(conversation, submission)
    switch (plan.is) {
      case "refused":
        return Effect.fail(plan.error)
      case "attach":
        return Effect.succeed(plan.target)
      case "answer":
        return Effect.as(
          Effect.forEach(plan.replies, reply => answer(caller, sessionId, reply)),
          plan.target
        )
      case "send": {
        const { clientMessageId, content } = plan
        const sent = execute(caller, { type: "send_message", id, sessionId, content, clientMessageId })
        return Effect.map(sent, accepted => ({ turnId: (accepted as AnswerOf<"accepted">).turnId! })).pipe(
          Effect.catchIf(isConflict, error =>
            Effect.flatMap(
              answeredBefore(caller, sessionId, conversation, content, clientMessageId),
              Option.match({ onNone: () => Effect.fail(error), onSome: ({ target }) => Effect.succeed(target) })
            )
          )
        )
      }
    }
  }

  return Chats.of({
    clients,
    submit: (caller, chat, submission) =>
      Effect.gen(function* () {
        // Nothing is created for an invalid request.
        const plan = planOf(Fold.empty(""), submission)
        if (plan.is === "refused" && plan.error._tag === "BadRequest") return yield* plan.error
        const { id: sessionId } = yield* threads.open(caller, chat.id, chat.agentType)
        const conversation = yield* conversationOf(caller, chat, sessionId)
        return { sessionId, target: yield* carryOut(caller, sessionId, conversation, submission) }
      }).pipe(Effect.mapError(toApiError)),
    resume: (caller, chat) =>
      Effect.gen(function* () {
        const sessionId = yield* find(caller, chat)
        if (Option.isNone(sessionId)) return Option.none()
        const { turns } = yield* conversationOf(caller, chat, sessionId.value)
        const turnId = turns.at(-1)
        return turnId === undefined ? Option.none() : Option.some({ sessionId: sessionId.value, target: { turnId } })
      }).pipe(
        Effect.mapError(toApiError),
        Effect.catchIf(
          error => error instanceof NotFound,
          () => Effect.succeedNone
        )
      ),
    begin: (subscription, { after, client, decisions, turnId }) =>
      Effect.gen(function* () {
        const conversation = yield* read(subscription)
        const fold = foldOf(conversation, turnId)
        const message = fold.turns.get(turnId)
        if (message === undefined) return yield* new Conflict({ error: "The answer to this message is no longer kept" })
        const all = new Map([...(yield* decided(subscription, message)), ...(decisions ?? [])])
        const segment = after === undefined ? undefined : segmentAfter(message, after)
        return { stream: new MessageStream(fold, turnId, all, segment), client, after: conversation.seq }
      }).pipe(Effect.mapError(toApiError)),
    stop: (caller, chat, turnId) =>
      Effect.gen(function* () {
        const sessionId = yield* find(caller, chat)
        if (Option.isNone(sessionId)) return
        const ofTurn = turnId === undefined ? {} : { turnId }
        yield* execute(caller, { type: "interrupt_turn", id, sessionId: sessionId.value, ...ofTurn })
      }).pipe(
        Effect.mapError(toApiError),
        Effect.catchIf(hasNoTurn, () => Effect.void)
      ),
    messages: (caller, chat) =>
      Effect.gen(function* () {
        const sessionId = yield* find(caller, chat)
        return Option.isNone(sessionId) ? [] : messagesOf(yield* conversationOf(caller, chat, sessionId.value))
      }).pipe(Effect.mapError(toApiError))
  })
})

/** Chats over sessions. */
export const layer: Layer.Layer<Chats, never, Clients | Conversations | SessionEvents | Threads> = Layer.effect(
  Chats,
  make
)
