/**
 * The connection of a session to an AG-UI agent. It has no socket: each turn is a request with the conversation, one after
 * the other, and another request after a person has answered.
 */
import { Cause, Deferred, Duration, Effect, Exit, Fiber, FiberId, Metric, Option, type Scope, Stream } from "effect"
import { isObject } from "../../base/Json/Parsing.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import { EventQueue } from "../AgentPlatform/EventQueue.ts"
import { largeEvents, rejectedFrames } from "../AgentPlatform/InstanceConnection.ts"
import type { ConnectionState, InstanceConnection, Send, SendOptions } from "../AgentPlatform.ts"
import { OversizedFrame, type PlatformFrame } from "../PlatformEvent.ts"
import { UpstreamFailure } from "../Resilience/UpstreamFailure.ts"
import { type Follow, failure as failureOf, type OpenRun, type RunInput, type Times } from "./Agent.ts"
import * as History from "./History.ts"
import * as Interrupts from "./Interrupts.ts"
import type { HistoryUnavailable } from "./SessionHistory.ts"
import { Translation } from "./Translation.ts"

/** The agent of a session, and what it gets. */
export interface Options {
  readonly threadId: string
  /** Runs the agent; see `Agent.run`. */
  readonly run: (input: RunInput, follow: Follow) => Effect.Effect<void, UpstreamFailure>
  readonly conversation: Effect.Effect<Conversation, HistoryUnavailable>
  readonly history: History.Limits
  readonly times: Times
}

type MessageFrame = Extract<PlatformFrame, { readonly type: "message" }>
type AnswerFrame = Extract<PlatformFrame, { readonly type: "answer" }>

/**
 * How long a message waits for the agent's answer before it counts as sent. Failures to connect are usually known by then,
 * and the message can be sent again.
 */
const acceptance = Duration.seconds(5)

/** How often the time limits of a run are looked at, at least. */
const watchMillis = 2000

/** Whether a failure proves that the agent has not run. */
const isRefusal = ({ isUnreached, reason, statusCode = 0 }: UpstreamFailure): boolean =>
  isUnreached === true || reason === "circuit_open" || (reason === "status" && statusCode >= 300 && statusCode < 500)

/** How a turn ends that has failed by no event of the agent. */
interface Ending {
  readonly code: string
  readonly message: string
}

/** `isAnswered`: the agent has started to answer. */
const endingOf = (failure: UpstreamFailure, isAnswered = false): Ending => {
  const { message, reason } = failure
  if (!isAnswered && isRefusal(failure)) return { code: "agent_unavailable", message }
  if (isAnswered && reason === "timeout") return { code: "timeout", message }
  if (reason === "malformed" || reason === "too_large") return { code: "agent_malformed", message }
  return { code: "delivery_unknown", message: `${message}. It is not known what the agent has done` }
}

const broken = failureOf("connection", "The agent's stream ended before its run")

/** A turn, from its message to its end. */
class Turn {
  readonly turnId: string
  readonly translation: Translation
  /** What the client's protocol gave in addition to the newest message or answer. */
  input: unknown
  readonly answers = new Map<string, Interrupts.Resume>()
  /** Runs that were started; the newest is the one that counts. */
  runs = 0
  fiber: Fiber.Fiber<void> | undefined
  /** When the newest event has arrived, in monotonic milliseconds; none while it waits for the session. */
  silentSince: number | undefined
  /** Done when the message counts as sent, or with the proof that it was not, which its sender reports. */
  readonly sent = Deferred.unsafeMake<void, UpstreamFailure>(FiberId.none)

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
  private readonly waiting: Array<MessageFrame> = []
  private current: Turn | undefined

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
      switch (frame.type) {
        case "message":
          return this.message(frame, options)
        case "answer":
          return this.answer(frame)
        case "interrupt":
          return this.stop(frame.turnId)
      }
    })

  private message(
    frame: MessageFrame,
    { claim, timeout = acceptance }: SendOptions
  ): Effect.Effect<void, UpstreamFailure> {
    return Effect.uninterruptibleMask(restore => {
      if (claim?.() === false) return Effect.void
      if (this.current !== undefined) {
        this.waiting.push(frame)
        return Effect.void
      }
      const turn = new Turn(frame)
      this.current = turn
      const settled = Effect.suspend(() => Deferred.await(turn.accept().sent))
      // A sender that is gone reports nothing.
      const reported = Effect.catchAll(settled, failure => Effect.sync(() => this.fail(turn, endingOf(failure))))
      const wait = Effect.timeoutOption(Effect.ignore(Deferred.await(turn.sent)), Duration.min(timeout, acceptance))
      return this.run(turn).pipe(
        Effect.zipRight(Effect.onInterrupt(restore(wait), () => reported)),
        Effect.zipRight(settled)
      )
    })
  }

  /** Starts a run of a turn. */
  private run(turn: Turn, resume?: ReadonlyArray<Interrupts.Resume>): Effect.Effect<void> {
    const number = ++turn.runs
    const after = Effect.suspend(() => this.onEnd(turn, number))
    const work = Effect.interruptible(Effect.zipRight(this.work(turn, resume), after))
    return Effect.map(Effect.forkIn(work, this.scope), fiber => {
      turn.fiber = fiber
    })
  }

  private work(turn: Turn, resume: ReadonlyArray<Interrupts.Resume> | undefined): Effect.Effect<void> {
    let isAnswered = false
    return Effect.gen(this, function* () {
      const input = yield* this.inputOf(turn, resume)
      yield* this.options.run(input, run => {
        isAnswered = true
        turn.accept()
        return this.follow(turn, run)
      })
    }).pipe(
      Effect.catchAll(failure => this.onFailure(turn, failure, isAnswered)),
      Effect.catchAllDefect(defect => {
        this.fail(turn, { code: "internal", message: "The gateway failed" })
        return Effect.logError("A run of an agent failed", Cause.die(defect))
      })
    )
  }

  private inputOf(turn: Turn, resume: ReadonlyArray<Interrupts.Resume> | undefined) {
    const { conversation, history, threadId } = this.options
    return Effect.map(conversation, (all): RunInput => {
      const later = new Set(this.waiting.map(({ turnId }) => turnId))
      const messages = History.messagesFor(all, { turnId: turn.turnId, later }, history)
      const given = isObject(turn.input) ? turn.input : {}
      const tools = listOf(given.tools)
      turn.translation.learn(
        messages,
        tools.flatMap(tool => (isObject(tool) ? [tool.name] : []))
      )
      return {
        threadId,
        runId: turn.runs === 1 ? turn.turnId : `${turn.turnId}-${turn.runs}`,
        state: given.state ?? {},
        messages: [...listOf(given.messages).filter(isObject), ...messages],
        tools,
        context: listOf(given.context),
        forwardedProps: given.forwardedProps ?? {},
        ...(resume === undefined ? {} : { resume })
      }
    }).pipe(
      Effect.catchAll(
        ({ message }) => new UpstreamFailure({ operation: "run", reason: "connection", isUnreached: true, message })
      )
    )
  }

  /** Follows a run until an event has ended it, or something that is no event. */
  private follow(turn: Turn, run: OpenRun): Effect.Effect<void, UpstreamFailure> {
    return Effect.raceFirst(this.read(turn, run), Effect.raceFirst(this.watch(turn), run.abandoned))
  }

  /** Passes on the events of a run until one has ended it. */
  private read(turn: Turn, { next }: OpenRun): Effect.Effect<void, UpstreamFailure> {
    const { translation } = turn
    return Effect.gen(this, function* () {
      for (;;) {
        turn.silentSince = yield* Monotonic.millis
        const received = yield* next
        turn.silentSince = undefined
        for (const one of received) {
          if (one instanceof UpstreamFailure) return yield* Effect.zipRight(Metric.increment(rejectedFrames), one)
          if (one instanceof OversizedFrame) yield* Metric.increment(largeEvents)
          for (const event of one instanceof OversizedFrame ? [one.event] : translation.add(one)) {
            yield* this.events.awaitRoom
            this.events.offer(event)
          }
          if (translation.state.is === "ended" || translation.state.is === "asking") return
        }
      }
    }).pipe(
      Effect.catchAll(end => {
        if (end instanceof UpstreamFailure) return end
        if (Option.isSome(end)) return end.value
        if (translation.state.is !== "calling") return broken
        for (const event of translation.complete()) this.events.offer(event)
        return Effect.void
      })
    )
  }

  /** Fails when a run takes too long, or when the agent is silent for too long. */
  private watch(turn: Turn): Effect.Effect<never, UpstreamFailure> {
    const { run, silence: longest } = this.options.times
    return Effect.gen(function* () {
      const end = (yield* Monotonic.millis) + Duration.toMillis(run)
      for (;;) {
        const now = yield* Monotonic.millis
        const silent = (turn.silentSince ?? now) + Duration.toMillis(longest)
        if (now >= end) return yield* failureOf("timeout", `The run took more than ${Monotonic.words(run)}`)
        if (now >= silent) {
          return yield* failureOf("timeout", `The agent has sent nothing for ${Monotonic.words(longest)}`)
        }
        yield* Effect.sleep(Math.min(Math.ceil(Math.min(end, silent) - now), watchMillis))
      }
    })
  }

  /** After a failure: its message was not sent, which the sender reports if it still waits, or its turn ends. */
  private onFailure(turn: Turn, failure: UpstreamFailure, isAnswered: boolean): Effect.Effect<void> {
    const isRefused = !isAnswered && isRefusal(failure)
    return Effect.flatMap(isRefused ? Deferred.fail(turn.sent, failure) : Effect.succeed(false), isReported => {
      if (isReported) return Effect.void
      turn.accept()
      const ending = endingOf(failure, isAnswered)
      this.fail(turn, ending)
      const annotations = { threadId: this.options.threadId, reason: ending.message }
      return Effect.annotateLogs(Effect.logWarning("A run of an agent broke off"), annotations)
    })
  }

  private fail({ translation }: Turn, { code, message }: Ending): void {
    for (const event of translation.fail(code, message)) this.events.offer(event)
  }

  /** After a run: the next turn starts, unless this one waits for a person. */
  private onEnd(turn: Turn, number: number): Effect.Effect<void> {
    // The answer of a person may come before the request of the run that has asked is closed.
    if (this.current !== turn || turn.runs !== number || turn.translation.state.is === "asking") return Effect.void
    const frame = this.waiting.shift()
    this.current = frame === undefined ? undefined : new Turn(frame).accept()
    return this.current === undefined ? Effect.void : this.run(this.current)
  }

  /** Records an answer. When there is one to each question, the turn continues. */
  private answer({ answer, input, requestId }: AnswerFrame): Effect.Effect<void> {
    const turn = this.current
    if (turn === undefined || turn.translation.state.is !== "asking") return Effect.void
    const { interrupts } = turn.translation.state
    const interrupt = interrupts.find(({ id }) => id === requestId)
    if (interrupt === undefined || turn.answers.has(requestId)) return Effect.void
    turn.answers.set(requestId, Interrupts.resumeOf(interrupt, answer))
    if (input !== undefined) turn.input = input
    const payload = Interrupts.resolvedBy(interrupt, answer, turn.turnId)
    this.events.offer({ id: undefined, type: payload.type, timestamp: undefined, payload })
    if (turn.answers.size < interrupts.length) return Effect.void
    const resume = [...turn.answers.values()]
    turn.answers.clear()
    turn.translation.resume()
    return this.run(turn, resume)
  }

  /** Ends a turn, and its request. The next turn starts when the request has ended. */
  private stop(turnId: string): Effect.Effect<void> {
    const turn = this.current
    const at = this.waiting.findIndex(frame => frame.turnId === turnId)
    if (at >= 0) this.waiting.splice(at, 1)
    if (turn?.turnId !== turnId) {
      for (const event of new Translation(turnId).cancel()) this.events.offer(event)
      return Effect.void
    }
    turn.accept()
    for (const event of turn.translation.cancel()) this.events.offer(event)
    const ended = turn.fiber === undefined ? Effect.void : Fiber.interrupt(turn.fiber)
    return Effect.asVoid(
      Effect.forkIn(
        Effect.zipRight(
          ended,
          Effect.suspend(() => this.onEnd(turn, turn.runs))
        ),
        this.scope
      )
    )
  }
}

/** Connects a session to its agent until the scope ends. Nothing is sent before the first message. */
export const make = (options: Options): Effect.Effect<InstanceConnection<UpstreamFailure>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const connection = new AgentConnection(options, yield* Effect.scope)
    yield* Effect.addFinalizer(() => Effect.sync(() => connection.end()))
    const { send, take } = connection
    const states: Stream.Stream<ConnectionState> = Stream.concat(Stream.succeed("connected" as const), Stream.never)
    return { send, take, states, ready: Effect.void }
  })
