/**
 * What clients of other protocols do with the sessions that they name: their inputs are carried out, and turns are
 * followed. A protocol adds its plans and its encoding.
 */
import { type Context, Effect, Fiber, Option, type Scope } from "effect"
import { MiB } from "../../base/Bytes.ts"
import { turnOf } from "../../base/Time/PacedWork.ts"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import { empty } from "../../Client/Conversation/Fold.ts"
import { type ApiError, Conflict, NotFound } from "../../Http/ApiError.ts"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import * as Reply from "../../Http/Reply.ts"
import { Clients } from "../Clients.ts"
import { Conversations } from "../Conversations.ts"
import type { Claim } from "../FairPool.ts"
import type { AnswerOf } from "../Protocol/Answer.ts"
import type { Receipt } from "../SessionEvents.ts"
import { SessionEvents } from "../SessionEvents.ts"
import { keyOf } from "../Sessions/Session/SessionRecords.ts"
import type { Caller, Subscriber, Subscription } from "../Sessions.ts"
import { callerOf } from "./Caller.ts"
import { errorOf, type Failed } from "./Errors.ts"
import type { Encoding } from "./EventStream.ts"
import * as EventStreams from "./EventStreams.ts"
import { Kept } from "./Kept.ts"
import type * as Plan from "./Plan.ts"
import { Threads } from "./Threads.ts"

/** A session as a client names it, and the type of its agent. */
export interface Thread {
  readonly id: string
  readonly agentType: string
}

/** The session of a thread, and what its client gets. */
export interface Followed<T extends Plan.Target> {
  readonly sessionId: string
  readonly target: T
}

/** What a stream keeps of a conversation. */
interface Keeping {
  /** Its characters at present. */
  readonly characters: () => number
}

/** What a stream keeps, as memory of its tenant, and the newest event in it. */
export type Begun<A> = A & { readonly kept: Kept; readonly after: number }

/** A plan for a client's input. No session has been created for the thread if there is no id. */
export type Planning<T extends Plan.Target> = (
  conversation: Conversation,
  sessionId: string | undefined
) => Effect.Effect<Plan.Plan<T>, Failed>

/** Maximum bytes of a conversation in memory, until its size is known. */
const conversationBytes = 32 * MiB

/** Maximum number of answers that are looked up. */
const maxLookups = 32

/** How often a plan that may pass is made again, and at what interval. */
const looks = 10
const lookEvery = "100 millis"

const silent: Subscriber = { onFrames: () => {}, onDeleted: () => {}, onLost: () => {} }

const isConflict = (error: Failed): boolean => errorOf(error)._tag === "Conflict"

/** No turn is in progress, or there is no session. */
const isOver = (error: Failed): boolean => isConflict(error) || errorOf(error) instanceof NotFound

/** The conversations of sessions, and the answers that persons gave. */
class Histories {
  constructor(
    readonly clients: Context.Tag.Service<Clients>,
    private readonly conversations: Context.Tag.Service<Conversations>,
    private readonly events: Context.Tag.Service<SessionEvents>
  ) {}

  private parse(subscription: Subscription, claim: Claim): Effect.Effect<Conversation, Failed> {
    return Effect.gen(this, function* () {
      const { text } = yield* this.conversations.read(subscription)
      if (!claim.resize(2 * text.length)) return yield* Effect.fail(this.clients.files.refusal())
      yield* turnOf(text.length)
      return JSON.parse(text) as Conversation
    })
  }

  /** Works with the conversation of a subscription, which takes memory of its tenant in the meantime. */
  use<A, R>(
    subscription: Subscription,
    work: (conversation: Conversation) => Effect.Effect<A, Failed, R>
  ): Effect.Effect<A, Failed, R> {
    return this.clients.files.use(subscription.session.tenant, conversationBytes, claim =>
      Effect.flatMap(this.parse(subscription, claim), work)
    )
  }

  /** Works with the conversation of a thread, whose agent has the type that the client names. */
  readonly read = <A>(
    caller: Caller,
    { agentType, id }: Thread,
    sessionId: string,
    work: (conversation: Conversation) => Effect.Effect<A, Failed>
  ): Effect.Effect<A, Failed> =>
    Effect.gen(this, function* () {
      const subscription = yield* this.clients.sessions.subscribe(caller, sessionId, silent)
      if (subscription.session.agentType !== agentType) {
        return yield* new Conflict({ error: `The session ${JSON.stringify(id)} is with an agent of another type` })
      }
      return yield* this.use(subscription, work)
    }).pipe(Effect.scoped)

  /** The conversation of a subscription again. */
  readonly reread = (subscription: Subscription): Effect.Effect<Conversation, Failed> =>
    this.use(subscription, Effect.succeed)

  /** Begins to follow a conversation. What is kept of it takes memory of its tenant until the scope closes. */
  readonly begin = <A extends Keeping>(
    subscription: Subscription,
    make: (conversation: Conversation) => Effect.Effect<A, Failed>
  ): Effect.Effect<Begun<A>, Failed, Scope.Scope> =>
    this.use(subscription, conversation =>
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

  /** The receipt of a run or of an answer. */
  readonly receipt = ({ tenant }: Pick<Caller, "tenant">, sessionId: string, id: string) =>
    Effect.map(this.events.receipt(keyOf(tenant, sessionId), id), (found): Receipt | undefined =>
      Option.getOrUndefined(found)
    )

  /** The keys under which answers were given, although the agent may not have confirmed them. The newest are looked up. */
  readonly given = (caller: Pick<Caller, "tenant">, sessionId: string, keys: ReadonlyArray<string>) =>
    Effect.map(
      Effect.filter(keys.slice(-maxLookups), key =>
        Effect.map(this.receipt(caller, sessionId, key), found => found !== undefined)
      ),
      (found): ReadonlySet<string> => new Set(found)
    )
}

/** What clients of a protocol do. */
export class Turns extends Histories {
  constructor(
    /** The name of the protocol in metrics. */
    private readonly protocol: string,
    private readonly threads: Context.Tag.Service<Threads>,
    private readonly streams: EventStreams.EventStreams,
    private readonly scope: Scope.Scope,
    ...histories: ConstructorParameters<typeof Histories>
  ) {
    super(...histories)
  }

  /** The session of a thread, if it was used before. */
  find(caller: Caller, { id }: Pick<Thread, "id">): Effect.Effect<Option.Option<string>, Failed> {
    return Effect.map(
      this.threads.find(caller, id),
      Option.map(session => session.id)
    )
  }

  /** Carries out an input. It continues without its client, which may have disconnected because a page was loaded again. */
  submit<T extends Plan.Target>(caller: Caller, thread: Thread, plan: Planning<T>): Effect.Effect<Followed<T>, Failed> {
    return Effect.gen(this, function* () {
      const found = yield* this.find(caller, thread)
      if (Option.isNone(found)) {
        // Nothing is created for what is refused.
        const first = yield* plan(empty(""), undefined)
        if (first.is === "refused") return yield* Effect.fail(first.error)
      }
      const sessionId = Option.isSome(found)
        ? found.value
        : (yield* this.threads.open(caller, thread.id, thread.agentType)).id
      const made = yield* this.planned(caller, thread, sessionId, plan)
      return { sessionId, target: yield* this.carryOut(caller, sessionId, made) }
    }).pipe(Effect.forkIn(this.scope), Effect.flatMap(Fiber.join))
  }

  /** Interrupts a turn, by default the one in progress, if it has not ended. */
  interrupt(caller: Caller, sessionId: string, turnId?: string): Effect.Effect<void, Failed> {
    const { clients, protocol: id } = this
    const ofTurn = turnId === undefined ? {} : { turnId }
    return clients.execute(caller, { type: "interrupt_turn", id, sessionId, ...ofTurn }).pipe(
      Effect.asVoid,
      Effect.catchIf(isOver, () => Effect.void)
    )
  }

  /** Answers with the event stream of a turn. */
  stream(
    incoming: Incoming,
    sessionId: string,
    headers: Readonly<Record<string, string>>,
    make: (
      conversation: Conversation,
      subscription: Subscription
    ) => Effect.Effect<Keeping & { readonly encoding: Encoding }, Failed>
  ): Effect.Effect<Reply.Reply, ApiError> {
    const client = { caller: callerOf(incoming), expiresAt: incoming.identity?.expiresAt }
    const opened = this.streams.open(client, sessionId, subscription =>
      this.begin(subscription, conversation => make(conversation, subscription)).pipe(
        Effect.map(begun => ({ ...begun, maySkip: false })),
        Effect.mapError(errorOf)
      )
    )
    return Effect.map(opened, stream => Reply.written("text/event-stream", stream, headers, stream.release))
  }

  private planned<T extends Plan.Target>(
    caller: Caller,
    thread: Thread,
    sessionId: string,
    plan: Planning<T>,
    left = looks
  ): Effect.Effect<Plan.Plan<T>, Failed> {
    return Effect.flatMap(
      this.read(caller, thread, sessionId, conversation => plan(conversation, sessionId)),
      made =>
        made.is === "refused" && made.mayPass === true && left > 0
          ? Effect.delay(this.planned(caller, thread, sessionId, plan, left - 1), lookEvery)
          : Effect.succeed(made)
    )
  }

  private answer(caller: Caller, sessionId: string, reply: Plan.Reply) {
    return this.clients.execute(caller, { type: "answer", id: this.protocol, sessionId, ...reply })
  }

  private carryOut<T extends Plan.Target>(
    caller: Caller,
    sessionId: string,
    plan: Plan.Plan<T>
  ): Effect.Effect<T, Failed> {
    switch (plan.is) {
      case "refused":
        return Effect.fail(plan.error)
      case "attach":
        return Effect.succeed(plan.target)
      case "answer": {
        const { replies, run, target } = plan
        const as = run === undefined ? caller : { ...caller, run }
        return Effect.as(
          Effect.forEach(replies, reply => this.answer(as, sessionId, reply)),
          target
        )
      }
      case "send": {
        const { clientMessageId, content, earlier = [], run } = plan
        const as = run === undefined ? caller : { ...caller, run }
        const answered = Effect.findFirst(earlier, ({ reply }) =>
          this.answer(caller, sessionId, reply).pipe(
            Effect.as(true),
            Effect.catchIf(isOver, () => Effect.succeed(false))
          )
        )
        const request = { type: "send_message", id: this.protocol, sessionId, content, clientMessageId } as const
        return this.clients.execute(as, request).pipe(
          Effect.map(accepted => ({ turnId: (accepted as AnswerOf<"accepted">).turnId ?? "" }) as T),
          Effect.catchIf(isConflict, error =>
            Effect.flatMap(
              answered,
              Option.match({ onNone: () => Effect.fail(error), onSome: ({ target }) => Effect.succeed(target) })
            )
          )
        )
      }
    }
  }
}

/** What it needs. */
export type Needed = Clients | Conversations | DrainingSignal | SessionEvents | Threads

/** Carries out what clients of a protocol ask for, until the scope closes. `protocol` names it in metrics. */
export const make = (protocol: string): Effect.Effect<Turns, never, Needed | Scope.Scope> =>
  Effect.gen(function* () {
    const [clients, conversations, events] = [yield* Clients, yield* Conversations, yield* SessionEvents]
    const [streams, scope] = [yield* EventStreams.make(protocol), yield* Effect.scope]
    return new Turns(protocol, yield* Threads, streams, scope, clients, conversations, events)
  })

export type { Failed }
