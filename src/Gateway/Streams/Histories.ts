/** The conversations of sessions for clients of other protocols, and what was done for them. */
import { type Context, Effect, Option, type Scope } from "effect"
import { MiB } from "../../base/Bytes.ts"
import { turnOf } from "../../base/Time/PacedWork.ts"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import type { ClientsShape } from "../Clients.ts"
import type { Conversations } from "../Conversations.ts"
import type { Receipt, SessionEvents } from "../SessionEvents.ts"
import { keyOf } from "../Sessions/Session/SessionRecords.ts"
import { answerReceipt, type Caller, type Subscriber, type Subscription } from "../Sessions.ts"
import type { Failed } from "./Errors.ts"
import { waitingIn } from "./Inquiries.ts"
import { Kept } from "./Kept.ts"

/** What a stream keeps of a conversation. */
export interface Keeping {
  /** Its characters at present. */
  readonly characters: () => number
}

/** What a stream keeps, as memory of its tenant, and the newest event in it. */
export type Begun<A> = A & { readonly kept: Kept; readonly after: number }

/** Maximum bytes of a conversation in memory, until its size is known. */
const conversationBytes = 32 * MiB

/** Maximum number of answers that are looked up. */
const maxLookups = 32

const silent: Subscriber = { onFrames: () => {}, onDeleted: () => {}, onLost: () => {} }

/** The conversations of sessions, and the receipts of what clients did. */
export class Histories {
  constructor(
    private readonly clients: ClientsShape,
    private readonly conversations: Context.Tag.Service<Conversations>,
    private readonly events: Context.Tag.Service<SessionEvents>
  ) {}

  /** Works with the conversation of a subscription, which takes memory of its tenant in the meantime. */
  use<A, R>(
    subscription: Subscription,
    work: (conversation: Conversation) => Effect.Effect<A, Failed, R>
  ): Effect.Effect<A, Failed, R> {
    const { files } = this.clients
    return files.use(subscription.session.tenant, conversationBytes, claim =>
      Effect.gen(this, function* () {
        const { text } = yield* this.conversations.read(subscription)
        if (!claim.resize(2 * text.length)) return yield* Effect.fail(files.refusal())
        yield* turnOf(text.length)
        return yield* work(JSON.parse(text) as Conversation)
      })
    )
  }

  /** Works with the conversation of a session. */
  read<A>(
    caller: Caller,
    sessionId: string,
    work: (conversation: Conversation) => Effect.Effect<A, Failed>
  ): Effect.Effect<A, Failed> {
    const subscribed = this.clients.sessions.subscribe(caller, sessionId, silent)
    return Effect.scoped(Effect.flatMap(subscribed, subscription => this.use(subscription, work)))
  }

  /** Begins to follow a conversation. What is kept of it takes memory of its tenant until the scope closes. */
  begin<A extends Keeping>(
    subscription: Subscription,
    make: (conversation: Conversation) => Effect.Effect<A, Failed>
  ): Effect.Effect<Begun<A>, Failed, Scope.Scope> {
    return this.use(subscription, conversation =>
      Effect.gen(this, function* () {
        // It is changed by what follows.
        const after = conversation.seq
        const made = yield* make(conversation)
        const { kept: pool } = this.clients
        const kept = yield* Effect.acquireRelease(
          Effect.sync(() => Kept.take(pool, subscription.session.tenant, made.characters)),
          kept => Effect.sync(() => kept?.release())
        )
        return kept === undefined ? yield* Effect.fail(pool.refusal()) : { ...made, kept, after }
      })
    )
  }

  /** The receipt of a run or of an answer. */
  receipt(
    { tenant }: Pick<Caller, "tenant">,
    sessionId: string,
    id: string
  ): Effect.Effect<Receipt | undefined, Failed> {
    return Effect.map(this.events.receipt(keyOf(tenant, sessionId), id), Option.getOrUndefined)
  }

  /**
   * The requests of a conversation that are answered although their resolution has not arrived, each by its `seq`. The
   * newest are looked up.
   */
  answered(
    caller: Pick<Caller, "tenant">,
    sessionId: string,
    conversation: Conversation
  ): Effect.Effect<ReadonlySet<number>, Failed> {
    const seqs = waitingIn(conversation).map(({ seq }) => seq)
    const isAnswered = (seq: number) =>
      Effect.map(this.receipt(caller, sessionId, answerReceipt(conversation.epoch, seq)), found => found !== undefined)
    return Effect.map(Effect.filter(seqs.slice(-maxLookups), isAnswered), found => new Set(found))
  }
}
