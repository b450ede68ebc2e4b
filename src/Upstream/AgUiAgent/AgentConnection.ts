/**
 * The connection of a session to an AG-UI agent. It has no socket: each turn is a request with the conversation, one after
 * the other, and another request after a person has answered.
 */
import { Cause, Deferred, Duration, Effect, Exit, FiberId, Metric, type Scope, Stream } from "effect"
import { isObject } from "../../base/Json/Parsing.ts"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import { EventQueue } from "../AgentPlatform/EventQueue.ts"
import { largeEvents, rejectedFrames } from "../AgentPlatform/InstanceConnection.ts"
import type { InstanceConnection, Send, SendOptions } from "../AgentPlatform.ts"
import { OversizedFrame, type PlatformEvent, type PlatformFrame } from "../PlatformEvent.ts"
import { UpstreamFailure } from "../Resilience/UpstreamFailure.ts"
import { type Follower, failure as failureOf, type Received, type RunInput } from "./Agent.ts"
import * as History from "./History.ts"
import type { HistoryUnavailable } from "./SessionHistory.ts"
import { Translation } from "./Translation.ts"

/** The agent of a session, and what it gets. */
export interface Options {
  readonly threadId: string
  /** Runs the agent; see {@link Agent}. */
  readonly run: (input: RunInput, follower: Follower) => Effect.Effect<void, UpstreamFailure>
  readonly conversation: Effect.Effect<Conversation, HistoryUnavailable>
  readonly history: History.Limits
}

type MessageFrame = Extract<PlatformFrame, { readonly type: "message" }>
type AnswerFrame = Extract<PlatformFrame, { readonly type: "answer" }>

/**
 * How long a message waits for the agent's answer before it counts as sent. Failures to connect are usually known by then,
 * and the message can be sent again.
 */
const acceptance = Duration.seconds(5)

/** Whether a failure proves that the agent has not run. */
const isRefusal = ({ isUnreached, reason, statusCode = 0 }: UpstreamFailure): boolean =>
  isUnreached === true || reason === "circuit_open" || (reason === "status" && statusCode >= 300 && statusCode < 500)

/** The end of a turn that has failed by no event of the agent. `isAnswered`: the agent has started to answer. */
const endOf = (failure: UpstreamFailure, isAnswered: boolean) => {
  const { message, reason } = failure
  const end = { type: "turn.failed", message, retryable: true }
  if (!isAnswered && isRefusal(failure)) return { ...end, code: "agent_unavailable" }
  if (isAnswered && reason === "timeout") return { ...end, code: "timeout" }
  if (reason === "malformed" || reason === "too_large") return { ...end, code: "agent_malformed" }
  return { ...end, code: "delivery_unknown", message: `${message}. It is not known what the agent has done` }
}

/** A turn, from its message to its end. */
class Turn {
  readonly turnId: string
  readonly translation: Translation
  /** What the client's protocol gave in addition to the newest message or answer. */
  input: unknown
  runs = 0
  /** Done when the message counts as sent, or with the proof that it was not, which its sender reports. */
  readonly sent = Deferred.unsafeMake<void, UpstreamFailure>(FiberId.none)
  /** Open when a person has answered all that the agent has asked. */
  readonly answered = Effect.unsafeMakeLatch()
  readonly stopped = Deferred.unsafeMake<void>(FiberId.none)

  constructor(frame: MessageFrame) {
    this.turnId = frame.turnId
    this.input = frame.input
    this.translation = new Translation(frame.turnId)
  }

  accept(): this {
    Deferred.unsafeDone(this.sent, Effect.void)
    return this
  }
}

const listOf = (value: unknown): ReadonlyArray<unknown> => (Array.isArray(value) ? value : [])

class AgentConnection {
  private readonly events = new EventQueue()
  /** The turn in progress, and those that wait. */
  private readonly turns: Array<Turn> = []

  constructor(
    private readonly options: Options,
    private readonly scope: Scope.Scope
  ) {}

  readonly take = this.events.take

  end(): void {
    this.events.end(Exit.void)
  }

  readonly send: Send<UpstreamFailure> = (frame, options = {}) =>
    Effect.suspend(() => {
      if (frame.type === "message") return this.message(frame, options)
      if (frame.type === "answer") this.answer(frame)
      else this.stop(frame.turnId)
      return Effect.void
    })

  private message(frame: MessageFrame, { claim, timeout = acceptance }: SendOptions) {
    return Effect.uninterruptibleMask((restore): Effect.Effect<void, UpstreamFailure> => {
      if (claim?.() === false) return Effect.void
      const turn = new Turn(frame)
      this.turns.push(turn)
      if (this.turns[0] !== turn) return Effect.succeed(void turn.accept())
      const settled = Effect.suspend(() => Deferred.await(turn.accept().sent))
      // A sender that is gone reports nothing.
      const reported = Effect.catchAll(settled, failure => this.fail(turn, failure, false))
      const wait = Effect.timeoutOption(Effect.ignore(Deferred.await(turn.sent)), Duration.min(timeout, acceptance))
      return Effect.forkIn(Effect.interruptible(this.work), this.scope).pipe(
        Effect.zipRight(Effect.onInterrupt(restore(wait), () => reported)),
        Effect.zipRight(settled)
      )
    })
  }

  private offer(events: ReadonlyArray<PlatformEvent>): void {
    for (const event of events) this.events.offer(event)
  }

  /** The turns one after the other, until there are none. */
  private readonly work: Effect.Effect<void> = Effect.gen(this, function* () {
    for (let turn = this.turns[0]; turn !== undefined; turn = this.turns[0]) {
      yield* Effect.raceFirst(this.turn(turn), Deferred.await(turn.stopped))
      this.turns.shift()
    }
  })

  /** The runs of a turn. A person may answer before the request of the run that has asked is closed. */
  private turn(turn: Turn): Effect.Effect<void> {
    const { answered, translation } = turn
    return Effect.gen(this, function* () {
      for (;;) {
        yield* this.run(turn)
        if (translation.state.is !== "asking" && translation.state.is !== "resuming") return
        yield* answered.await
        answered.unsafeClose()
      }
    })
  }

  private run(turn: Turn): Effect.Effect<void> {
    let isAnswered = false
    const follower: Follower = {
      begin: () => {
        isAnswered = true
        turn.accept()
      },
      take: received => this.read(turn, received),
      end: Effect.suspend(() => {
        const { is } = turn.translation.state
        if (is === "running") return failureOf("connection", "The agent's stream ended before its run")
        if (is === "calling") this.offer(turn.translation.finish({ type: "turn.completed" }))
        return Effect.void
      })
    }
    return Effect.flatMap(this.inputOf(turn), input => this.options.run(input, follower)).pipe(
      Effect.catchAllDefect(defect =>
        Effect.zipRight(
          Effect.logError("A run of an agent failed", Cause.die(defect)),
          failureOf("connection", "The gateway failed")
        )
      ),
      Effect.catchAll(failure => {
        // The sender reports that its message was not sent, if it still waits.
        const isRefused = !isAnswered && isRefusal(failure)
        const isReported = isRefused ? Deferred.fail(turn.sent, failure) : Effect.succeed(false)
        return Effect.unlessEffect(this.fail(turn, failure, isAnswered), isReported)
      })
    )
  }

  private inputOf(turn: Turn): Effect.Effect<RunInput, UpstreamFailure> {
    const { conversation, history, threadId } = this.options
    const { translation, turnId } = turn
    return Effect.map(conversation, all => {
      const later = new Set(this.turns.slice(1).map(({ turnId }) => turnId))
      const messages = History.messagesFor(all, { turnId, later }, history)
      const given = isObject(turn.input) ? turn.input : {}
      const tools = listOf(given.tools)
      const { state } = translation
      translation.begin(messages, tools)
      return {
        threadId,
        runId: ++turn.runs === 1 ? turnId : `${turnId}-${turn.runs}`,
        state: given.state ?? {},
        messages: [...listOf(given.messages).filter(isObject), ...messages],
        tools,
        context: listOf(given.context),
        forwardedProps: given.forwardedProps ?? {},
        ...(state.is === "resuming" ? { resume: state.answers } : {})
      }
    }).pipe(
      Effect.mapError(
        ({ message }) => new UpstreamFailure({ operation: "run", reason: "connection", isUnreached: true, message })
      )
    )
  }

  /** Passes on events. Returns whether others may follow. */
  private read({ translation }: Turn, received: ReadonlyArray<Received>): Effect.Effect<boolean, UpstreamFailure> {
    const large = received.filter(one => one instanceof OversizedFrame).length
    const { awaitRoom } = this.events
    // What has arrived together waits together.
    const ready = large === 0 ? awaitRoom : Effect.zipRight(Metric.incrementBy(largeEvents, large), awaitRoom)
    return Effect.flatMap(ready, () => {
      for (const one of received) {
        if (one instanceof UpstreamFailure) return Effect.zipRight(Metric.increment(rejectedFrames), one)
        this.offer(one instanceof OversizedFrame ? [one.event] : translation.add(one))
        if (!translation.isOpen) return Effect.succeed(false)
      }
      return Effect.succeed(true)
    })
  }

  private fail(turn: Turn, failure: UpstreamFailure, isAnswered: boolean): Effect.Effect<void> {
    return Effect.suspend(() => {
      const end = endOf(failure, isAnswered)
      this.offer(turn.accept().translation.finish(end))
      const annotations = { threadId: this.options.threadId, reason: end.message }
      return Effect.annotateLogs(Effect.logWarning("A run of an agent broke off"), annotations)
    })
  }

  private answer({ answer, input, requestId }: AnswerFrame): void {
    const [turn] = this.turns
    const events = turn?.translation.answer(requestId, answer) ?? []
    if (turn === undefined || events.length === 0) return
    if (input !== undefined) turn.input = input
    this.offer(events)
    if (turn.translation.state.is === "resuming") turn.answered.unsafeOpen()
  }

  /** Ends a turn, and its request. The next turn starts when the request has ended. */
  private stop(turnId: string): void {
    const turn = this.turns.find(turn => turn.turnId === turnId)
    this.offer((turn?.translation ?? new Translation(turnId)).finish({ type: "turn.cancelled" }))
    if (turn === undefined) return
    Deferred.unsafeDone(turn.accept().stopped, Effect.void)
    if (turn !== this.turns[0]) this.turns.splice(this.turns.indexOf(turn), 1)
  }
}

/** Connects a session to its agent until the scope ends. Nothing is sent before the first message. */
export const make = (options: Options): Effect.Effect<InstanceConnection<UpstreamFailure>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const connection = new AgentConnection(options, yield* Effect.scope)
    yield* Effect.addFinalizer(() => Effect.sync(() => connection.end()))
    const { send, take } = connection
    return { send, take, states: Stream.concat(Stream.make("connected" as const), Stream.never), ready: Effect.void }
  })
