/**
 * What clients of other protocols do with the sessions that they name: their inputs are carried out, and turns are
 * followed. A protocol adds its plans and its encoding.
 */
import { Effect, Fiber, Option, type Scope } from "effect"
import { type Conversation, ownKey } from "../../Client/Conversation/Conversation.ts"
import { empty } from "../../Client/Conversation/Fold.ts"
import { type ApiError, Conflict, NotFound, PayloadTooLarge, ServiceUnavailable } from "../../Http/ApiError.ts"
import { DrainingSignal } from "../../Http/DrainingSignal.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import * as Reply from "../../Http/Reply.ts"
import { Clients, type ClientsShape } from "../Clients.ts"
import { Conversations } from "../Conversations.ts"
import type { AnswerOf } from "../Protocol/Answer.ts"
import type { Session } from "../Protocol/Fields.ts"
import { frameBytes } from "../Protocol/Limits.ts"
import { SessionEvents } from "../SessionEvents.ts"
import type { Caller, Subscription } from "../Sessions.ts"
import { callerOf } from "./Caller.ts"
import { errorOf, type Failed } from "./Errors.ts"
import type { Client, Encoding, EventStream } from "./EventStream.ts"
import * as EventStreams from "./EventStreams.ts"
import { Histories, type Keeping } from "./Histories.ts"
import type * as Plan from "./Plan.ts"
import { Threads } from "./Threads.ts"

/** A session as a client names it, and the type of its agent. */
export interface Thread {
  readonly id: string
  readonly agentType: string
}

type Named = Pick<Thread, "id"> & Partial<Thread>

/** The session of a thread, and what its client gets. */
export interface Followed<T extends Plan.Target> {
  readonly sessionId: string
  readonly target: T
  /** Whether the client joins what others have started. */
  readonly isJoined?: boolean
}

/** A plan for a client's input. No session has been created for the thread if there is no id. */
export type Planning<T extends Plan.Target> = (
  conversation: Conversation,
  sessionId: string | undefined
) => Effect.Effect<Plan.Plan<T>, Failed>

/** How a turn is written for its client, from a state of the conversation on, and what is kept of that. */
export type Writing<T extends Plan.Target> = (
  conversation: Conversation,
  followed: Followed<T>,
  subscription: Subscription
) => Effect.Effect<Keeping & { readonly encoding: Encoding }, Failed>

const isConflict = (error: Failed): boolean => errorOf(error)._tag === "Conflict"

/** No turn is in progress, or there is no session. */
const isOver = (error: Failed): boolean => isConflict(error) || errorOf(error) instanceof NotFound

/** The session of a thread, whose agent has the type that the client names, if it names one. */
const ofAgent = ({ agentType, id }: Session, thread: Named): Effect.Effect<string, Conflict> =>
  thread.agentType === undefined || agentType === thread.agentType
    ? Effect.succeed(id)
    : new Conflict({ error: `The session ${JSON.stringify(thread.id)} is with an agent of another type` })

/** Bytes of a frame to the instance in addition to what it says: its type and the id of its turn or its request. */
const envelopeBytes = 1024

/** Fails for what is refused, and for what is larger than a request of the other protocols. */
const admitted = <T extends Plan.Target>(plan: Plan.Plan<T>): Effect.Effect<Plan.Plan<T>, Failed> =>
  Effect.suspend((): Effect.Effect<Plan.Plan<T>, Failed> => {
    if (plan.is === "refused") return Effect.fail(plan.error)
    if (plan.is === "attach") return Effect.succeed(plan)
    const { input } = plan.run ?? {}
    const said = plan.is === "send" ? [plan.content] : plan.replies.map(({ answer }) => answer)
    const limit = frameBytes - envelopeBytes
    const bytes = Math.max(...said.map(content => Buffer.byteLength(JSON.stringify([content, input]))))
    return bytes <= limit
      ? Effect.succeed(plan)
      : new PayloadTooLarge({ error: `The message and its input have ${bytes} bytes as JSON; the limit is ${limit}` })
  })

/** What clients of a protocol do. */
export class Turns {
  constructor(
    /** The name of the protocol in metrics. */
    private readonly protocol: string,
    readonly clients: ClientsShape,
    readonly histories: Histories,
    private readonly threads: Threads["Type"],
    private readonly streams: EventStreams.EventStreams,
    private readonly draining: DrainingSignal["Type"],
    private readonly scope: Scope.Scope
  ) {}

  /** The session of a thread, if it was used before. Waits until messages that are on their way are recorded. */
  find(caller: Caller, thread: Thread): Effect.Effect<Option.Option<string>, Failed> {
    return this.untilDrain(this.found({ ...caller, awaitsMessages: true }, thread))
  }

  /**
   * Carries out an input, which takes memory of its tenant in the meantime. It continues without its client, which may have
   * disconnected because a page was loaded again.
   */
  submit<T extends Plan.Target>(
    caller: Caller,
    thread: Thread,
    input: object,
    plan: Planning<T>
  ): Effect.Effect<Followed<T>, Failed> {
    const claim = Effect.filterOrFail(
      Effect.acquireRelease(
        Effect.sync(() => this.clients.kept.take(caller.tenant, JSON.stringify(input).length)),
        held => Effect.sync(() => held?.release())
      ),
      held => held !== undefined,
      () => this.clients.kept.refusal()
    )
    const work = Effect.gen(this, function* () {
      const found = yield* this.find(caller, thread)
      // Nothing is created for what is refused.
      if (Option.isNone(found)) yield* Effect.flatMap(plan(empty(""), undefined), admitted)
      const sessionId = Option.isSome(found)
        ? found.value
        : yield* Effect.flatMap(this.threads.open(caller, thread.id, thread.agentType), opened =>
            ofAgent(opened, thread)
          )
      const planned = this.histories.read(caller, sessionId, conversation => plan(conversation, sessionId))
      const made = yield* Effect.flatMap(planned, admitted)
      return { sessionId, target: yield* this.carryOut(caller, sessionId, made), isJoined: made.is === "attach" }
    })
    return this.continuing(Effect.scoped(Effect.zipRight(claim, work)))
  }

  /** Work that continues without its client. */
  continuing<A, E>(work: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Effect.flatMap(Effect.forkIn(work, this.scope), Fiber.join)
  }

  /**
   * Interrupts a turn of a thread: by default that of the caller's run, or the one in progress, also before it is recorded.
   * Returns whether there was such a turn; none if the thread was not used before.
   */
  stop(caller: Caller, thread: Named, turnId?: string): Effect.Effect<Option.Option<boolean>, Failed> {
    const request = { type: "interrupt_turn", id: this.protocol, ...(turnId === undefined ? {} : { turnId }) } as const
    const stop = (sessionId: string) => unlessOver(this.clients.execute(caller, { ...request, sessionId }))
    return Effect.flatMap(this.found(caller, thread), Effect.transposeMapOption(stop))
  }

  /**
   * Opens the event stream of a turn. Its connection is reserved before the turn is found or begun, so that nothing runs
   * for a client that is refused.
   */
  open<T extends Plan.Target>(
    client: Client,
    followed: Effect.Effect<Followed<T>, Failed>,
    writing: Writing<T>,
    streams: EventStreams.EventStreams = this.streams
  ): Effect.Effect<EventStream, ApiError> {
    const found = this.untilDrain(Effect.mapError(followed, errorOf))
    return streams.open(client, found, (subscription, _time, of) => {
      const begun = this.histories.begin(subscription, conversation => writing(conversation, of, subscription))
      return Effect.mapBoth(begun, { onFailure: errorOf, onSuccess: begun => ({ ...begun, maySkip: false }) })
    })
  }

  /** Answers with the event stream of a turn, as {@link open} opens it. */
  stream<T extends Plan.Target>(
    incoming: Incoming,
    followed: Effect.Effect<Followed<T>, Failed>,
    headers: Readonly<Record<string, string>>,
    writing: Writing<T>
  ): Effect.Effect<Reply.Reply, ApiError> {
    const client = { caller: callerOf(incoming), expiresAt: incoming.identity?.expiresAt }
    return Effect.map(this.open(client, followed, writing), stream =>
      Reply.written("text/event-stream", stream, headers, stream.release)
    )
  }

  /** A wait for an instance may be long. It ends as the service drains; what it has started continues. */
  private untilDrain<A, E>(work: Effect.Effect<A, E>): Effect.Effect<A, E | ServiceUnavailable> {
    const draining = Effect.zipRight(this.draining.started, ServiceUnavailable.later("The service is shutting down"))
    return Effect.raceFirst(work, draining)
  }

  private found(caller: Caller, thread: Named): Effect.Effect<Option.Option<string>, Failed> {
    const found = this.threads.find(caller, thread.id)
    return Effect.flatMap(
      found,
      Effect.transposeMapOption(session => ofAgent(session, thread))
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
    if (plan.is === "refused") return Effect.fail(plan.error)
    if (plan.is === "attach") return Effect.succeed(plan.target)
    const { run } = plan
    // Without a run, the same answer again is that of any client of this protocol.
    const as = run === undefined ? { ...caller, key: ownKey(this.protocol) } : { ...caller, run }
    if (plan.is === "answer") {
      const answered = Effect.forEach(plan.replies, reply => this.answer(as, sessionId, reply))
      return Effect.as(answered, plan.target)
    }
    const { clientMessageId, content, earlier = [], key } = plan
    const answered = Effect.findFirst(earlier, ({ reply }) => unlessOver(this.answer(caller, sessionId, reply)))
    const named = clientMessageId === undefined ? {} : { clientMessageId }
    const request = { type: "send_message", id: this.protocol, sessionId, content, ...named } as const
    return this.clients.execute({ ...caller, ...(run && { run }), ...(key && { key }) }, request).pipe(
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

/** Whether something was done: false if its turn has ended, or its session is deleted. */
const unlessOver = (done: Effect.Effect<unknown, Failed>): Effect.Effect<boolean, Failed> =>
  done.pipe(
    Effect.as(true),
    Effect.catchIf(isOver, () => Effect.succeed(false))
  )

/** What it needs. */
export type Needed = Clients | Conversations | DrainingSignal | SessionEvents | Threads

/** Carries out what clients of a protocol ask for, until the scope closes. `protocol` names it in metrics. */
export const make = (protocol: string): Effect.Effect<Turns, never, Needed | Scope.Scope> =>
  Effect.gen(function* () {
    const clients = yield* Clients
    const histories = new Histories(clients, yield* Conversations, yield* SessionEvents)
    const streams = yield* EventStreams.make(protocol)
    const draining = yield* DrainingSignal
    return new Turns(protocol, clients, histories, yield* Threads, streams, draining, yield* Effect.scope)
  })

export type { Failed }
