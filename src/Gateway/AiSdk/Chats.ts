/** Chats: what their clients send, and the messages that they follow. A chat is a session, whose name is the chat's id. */
import { Effect, Option, type Scope } from "effect"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import * as Fold from "../../Client/Conversation/Fold.ts"
import { type ApiError, Conflict, NotFound } from "../../Http/ApiError.ts"
import type { Caller, Subscription } from "../Sessions.ts"
import { errorOf } from "../Streams/Errors.ts"
import * as Turns from "../Streams/Turns.ts"
import { MessageStream } from "./MessageStream.ts"
import { type Done, endOf, type Submission, stepOf, type Target } from "./Submission.ts"
import { messagesOf, segmentAfter, type UiMessage, type UiPart } from "./UiMessage.ts"

export type Followed = Turns.Followed<Target>

/** Where the stream of a message begins. */
export interface Beginning {
  readonly stream: MessageStream
  /** The parts of the message that the client has. */
  readonly client: ReadonlyArray<UiPart> | undefined
  /** What is kept of the conversation. */
  readonly characters: () => number
}

/** The fold of a turn, without the messages of others that have ended. */
const foldOf = (conversation: Conversation, turnId: string): Fold.Fold => {
  const messages = conversation.messages.filter(
    message => message.role === "agent" && (message.turnId === turnId || message.status === "running")
  )
  return Fold.resume({ ...conversation, messages })
}

/** Serves chats until the scope closes. */
export const make: Effect.Effect<Chats, never, Turns.Needed | Scope.Scope> = Effect.map(
  Turns.make("ai_sdk"),
  turns => new Chats(turns)
)

/** The chats of all tenants. */
export class Chats {
  constructor(readonly turns: Turns.Turns) {}

  /** Carries out what a client sends: its new messages, one after the other. */
  submit(caller: Caller, chat: Turns.Thread, submission: Submission, done?: Done): Effect.Effect<Followed, ApiError> {
    let index = endOf(submission)
    const plan = (conversation: Conversation) =>
      Effect.sync(() => {
        const step = stepOf(conversation, submission, done)
        index = step.index
        return step.plan
      })
    return Effect.flatMap(Effect.mapError(this.turns.submit(caller, chat, plan), errorOf), followed =>
      index < endOf(submission)
        ? this.submit(caller, chat, submission, { index, ...followed.target })
        : Effect.succeed(followed)
    )
  }

  /** The turn in progress; none if nothing runs. */
  resume(caller: Caller, chat: Turns.Thread): Effect.Effect<Option.Option<Followed>, ApiError> {
    return Effect.gen(this, function* () {
      const found = yield* this.turns.find({ ...caller, resumes: true }, chat)
      if (Option.isNone(found)) return Option.none()
      const { histories } = this.turns
      const turnId = yield* histories.read(caller, found.value, ({ turns }) => Effect.succeed(turns.at(-1)))
      return turnId === undefined ? Option.none() : Option.some({ sessionId: found.value, target: { turnId } })
    }).pipe(
      Effect.mapError(errorOf),
      Effect.catchIf(
        error => error instanceof NotFound,
        () => Effect.succeedNone
      )
    )
  }

  /** Begins the stream of a message, which keeps a part of the conversation. */
  readonly beginning =
    ({ session: { id, tenant } }: Subscription, { after, client, decisions, turnId }: Target) =>
    (conversation: Conversation): Effect.Effect<Beginning, Turns.Failed> =>
      Effect.gen(this, function* () {
        const fold = foldOf(conversation, turnId)
        const message = fold.turns.get(turnId)
        if (message === undefined) return yield* new Conflict({ error: "The answer to this message is no longer kept" })
        // A receipt does not say what was decided.
        const answered = yield* this.turns.histories.answered({ tenant }, id, conversation)
        const unknown = [...answered].map(seq => [seq, undefined] as const)
        const segment = after === undefined ? undefined : segmentAfter(message, after)
        const stream = new MessageStream(fold, turnId, new Map([...unknown, ...(decisions ?? [])]), segment)
        return { stream, client, characters: () => fold.size }
      })

  /** Interrupts a turn, by default the one in progress, if it has not ended. */
  stop(caller: Caller, chat: Turns.Thread, turnId?: string): Effect.Effect<void, ApiError> {
    return this.turns.stop(caller, { id: chat.id }, turnId).pipe(
      Effect.asVoid,
      Effect.mapError(errorOf),
      Effect.catchIf(
        error => error instanceof NotFound,
        () => Effect.void
      )
    )
  }

  /** The messages of a chat; none if it was never used. */
  messages(caller: Caller, chat: Turns.Thread): Effect.Effect<ReadonlyArray<UiMessage>, ApiError> {
    return Effect.gen(this, function* () {
      const found = yield* this.turns.find(caller, chat)
      if (Option.isNone(found)) return []
      const { histories } = this.turns
      return yield* histories.read(caller, found.value, conversation => Effect.succeed(messagesOf(conversation)))
    }).pipe(Effect.mapError(errorOf))
  }
}
