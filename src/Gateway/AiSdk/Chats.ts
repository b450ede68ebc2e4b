/** Chats: what their clients send, and the messages that they follow. A chat is a session, whose name is the chat's id. */
import { Effect, Option } from "effect"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import * as Fold from "../../Client/Conversation/Fold.ts"
import { Conflict, NotFound } from "../../Http/ApiError.ts"
import type { Caller } from "../Sessions.ts"
import { errorOf } from "../Streams/Errors.ts"
import type * as Turns from "../Streams/Turns.ts"
import { encodingOf, type Form } from "./EventStream.ts"
import { MessageStream } from "./MessageStream.ts"
import { type Done, endOf, type Submission, stepOf, type Target } from "./Submission.ts"
import { messagesOf, type UiMessage } from "./UiMessage.ts"

export type Followed = Turns.Followed<Target>

/** The fold of a turn, without the messages of others that have ended. */
const foldOf = (conversation: Conversation, turnId: string): Fold.Fold => {
  const messages = conversation.messages.filter(
    message => message.role === "agent" && (message.turnId === turnId || message.status === "running")
  )
  return Fold.resume({ ...conversation, messages })
}

/** Nothing is in progress in a chat that was deleted. */
const unlessDeleted = <A>(found: Effect.Effect<Option.Option<A>, Turns.Failed>) =>
  Effect.catchIf(
    found,
    error => errorOf(error) instanceof NotFound,
    () => Effect.succeedNone
  )

/** The chats of all tenants. */
export class Chats {
  constructor(readonly turns: Turns.Turns) {}

  /** Carries out what a client sends: its new messages, one after the other. */
  submit(caller: Caller, chat: Turns.Thread, sent: Submission, done?: Done): Effect.Effect<Followed, Turns.Failed> {
    let index = endOf(sent)
    const plan = (conversation: Conversation) =>
      Effect.sync(() => {
        const step = stepOf(conversation, sent, done)
        index = step.index
        return step.plan
      })
    const submitted = Effect.flatMap(this.turns.submit(caller, chat, sent, plan), followed =>
      index < endOf(sent) ? this.submit(caller, chat, sent, { index, ...followed.target }) : Effect.succeed(followed)
    )
    return this.turns.continuing(submitted)
  }

  /** The turn in progress; none if nothing runs. */
  resume(caller: Caller, chat: Turns.Thread): Effect.Effect<Option.Option<Followed>, Turns.Failed> {
    const found = this.read({ ...caller, resumes: true }, chat, ({ turns }, sessionId) =>
      Option.map(Option.fromNullable(turns.at(-1)), turnId => ({ sessionId, target: { turnId } }))
    )
    return unlessDeleted(Effect.map(found, Option.flatten))
  }

  /** Writes the message of a turn. A part of the conversation is kept. */
  readonly writing =
    (form: Form): Turns.Writing<Target> =>
    (conversation, { sessionId, target: { after, client, decisions, turnId } }, { session }) =>
      Effect.gen(this, function* () {
        const fold = foldOf(conversation, turnId)
        if (!fold.turns.has(turnId))
          return yield* new Conflict({ error: "The answer to this message is no longer kept" })
        // A receipt does not say what was decided.
        const answered = yield* this.turns.histories.answered(session, sessionId, conversation)
        const unknown = [...answered].map(seq => [seq, undefined] as const)
        const stream = new MessageStream(fold, turnId, new Map([...unknown, ...(decisions ?? [])]), after)
        return { encoding: encodingOf(stream, client, form), characters: () => fold.size }
      })

  /** Interrupts a turn, by default the one in progress, if it has not ended. */
  stop(caller: Caller, { id }: Pick<Turns.Thread, "id">, turnId?: string): Effect.Effect<void, Turns.Failed> {
    return Effect.asVoid(unlessDeleted(this.turns.stop(caller, { id }, turnId)))
  }

  /** The messages of a chat; none if it was never used. */
  messages(caller: Caller, chat: Turns.Thread): Effect.Effect<ReadonlyArray<UiMessage>, Turns.Failed> {
    return Effect.map(
      this.read(caller, chat, messagesOf),
      Option.getOrElse(() => [])
    )
  }

  private read<A>(caller: Caller, chat: Turns.Thread, of: (conversation: Conversation, sessionId: string) => A) {
    const { histories } = this.turns
    return Effect.flatMap(
      this.turns.find(caller, chat),
      Effect.transposeMapOption(id => histories.read(caller, id, conversation => Effect.succeed(of(conversation, id))))
    )
  }
}
