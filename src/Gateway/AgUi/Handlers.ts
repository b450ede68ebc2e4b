/** Serves AG-UI over the sessions: threads are sessions with a name, and runs are turns. */
import { type Context, Effect, Fiber, Layer, Option } from "effect"
import { messageOfTurn } from "../../AgUi/Messages.ts"
import { continuingHeader } from "../../AgUi/Protocol.ts"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import { empty } from "../../Client/Conversation/Fold.ts"
import { type ApiError, BadRequest, Conflict, NotFound } from "../../Http/ApiError.ts"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import * as Reply from "../../Http/Reply.ts"
import { turnOf } from "../../Upstream/PlatformSocket.ts"
import { Clients } from "../Clients.ts"
import { Conversations } from "../Conversations.ts"
import type { AnswerOf } from "../Protocol/Answer.ts"
import { Refused, type RequestError } from "../Requests.ts"
import { SessionEvents } from "../SessionEvents.ts"
import {
  type Caller,
  type ClientRun,
  runReceipt,
  SessionNotFound,
  type Subscriber,
  type Subscription
} from "../Sessions.ts"
import { errorOf } from "../Streams/Errors.ts"
import * as EventStreams from "../Streams/EventStreams.ts"
import { Threads } from "../Threads.ts"
import { AgUi } from "./Endpoints.ts"
import type { RunAgentInput } from "./Input.ts"
import { inputOf, type Known, type Plan, planOf } from "./Plan.ts"
import { encodingOf } from "./RunStream.ts"
import { answerKey, waitingIn } from "./Runs.ts"

/** Names the requests of AG-UI to other nodes. */
const id = "ag-ui"

/** Maximum number of requests whose answers are looked up. */
const maxLookups = 32

/** How often the message of a run is looked for, and at what interval. */
const looks = 10
const lookEvery = "100 millis"

/** Whether a run is recorded, and its message is not. */
const isIncomplete = ({ conversation, run }: Known): boolean =>
  run?.turnId != null && messageOfTurn(conversation, run.turnId) === undefined

const headers = { "cache-control": "no-store", "x-accel-buffering": "no", [continuingHeader]: "true" }

const callerOf = ({ identity }: Incoming): Caller => ({ tenant: identity!.tenant!, actor: identity!.actor! })

const silent: Subscriber = { onFrames: () => {}, onDeleted: () => {}, onLost: () => {} }

const unknownThread = (threadId: string) => new NotFound({ error: `There is no thread ${JSON.stringify(threadId)}` })

type Failure = RequestError | Refused | ApiError

const isRequestError = (failure: Failure): failure is RequestError | Refused =>
  failure instanceof Refused || !("error" in failure)

/** The HTTP error of a failure. A session that was deleted is an unknown thread. */
const apiError =
  (threadId: string) =>
  (failure: Failure): ApiError =>
    failure instanceof SessionNotFound || (failure instanceof Refused && failure.failure.code === "not_found")
      ? unknownThread(threadId)
      : isRequestError(failure)
        ? errorOf(failure)
        : failure

/** What the handlers need. */
class RunRequests {
  constructor(
    private readonly clients: Context.Tag.Service<Clients>,
    private readonly names: Context.Tag.Service<Threads>,
    private readonly conversations: Context.Tag.Service<Conversations>,
    private readonly events: Context.Tag.Service<SessionEvents>
  ) {}

  /** The session of a thread, if it was ever made. */
  find(caller: Caller, threadId: string) {
    return this.names.find(caller, threadId)
  }

  /** The conversation at the start of a subscription, or later. */
  read(subscription: Subscription): Effect.Effect<Conversation, Failure> {
    return this.conversations.read(subscription).pipe(
      Effect.tap(({ text }) => turnOf(text.length)),
      Effect.map(({ text }) => JSON.parse(text) as Conversation),
      Effect.catchTag("SessionUnreadable", () =>
        Effect.fail(new Refused({ code: "internal", message: "The thread cannot be read", retryable: false }))
      )
    )
  }

  run({ tenant }: Caller, sessionId: string, runId: string) {
    return Effect.map(this.events.receipt(`${tenant}/${sessionId}`, runReceipt(runId)), Option.getOrUndefined)
  }

  /** The keys of the requests that wait in a conversation and were answered by a run. */
  answered({ tenant }: Caller, sessionId: string, conversation: Conversation) {
    const keys = waitingIn(conversation)
      .slice(-maxLookups)
      .map(request => answerKey(conversation, request))
    const isAnswered = (key: string) => Effect.map(this.events.receipt(`${tenant}/${sessionId}`, key), Option.isSome)
    return Effect.map(Effect.filter(keys, isAnswered), found => new Set(found))
  }

  /** What is known of a thread before a run. */
  known(caller: Caller, sessionId: string, agentType: string, runId: string) {
    return Effect.gen(this, function* () {
      const subscription = yield* this.clients.sessions.subscribe(caller, sessionId, silent)
      if (subscription.session.agentType !== agentType) {
        const { agentType: other } = subscription.session
        return yield* new Conflict({ error: `The thread belongs to the agent type ${JSON.stringify(other)}` })
      }
      const conversation = yield* this.read(subscription)
      const answered = yield* this.answered(caller, sessionId, conversation)
      return { conversation, answered, run: yield* this.run(caller, sessionId, runId) } satisfies Known
    }).pipe(Effect.scoped)
  }

  /** Does what a plan says, and returns the turn. */
  carryOut(
    caller: Caller,
    sessionId: string,
    plan: Plan,
    run: Omit<ClientRun, "digest">
  ): Effect.Effect<string, Failure> {
    switch (plan.is) {
      case "attach":
        return Effect.succeed(plan.turnId)
      case "send": {
        const { content, digest, key: clientMessageId } = plan
        const request = { type: "send_message", id, sessionId, content, clientMessageId } as const
        return Effect.map(
          this.clients.execute({ ...caller, run: { ...run, digest } }, request),
          accepted => (accepted as AnswerOf<"accepted">).turnId ?? ""
        )
      }
      case "answer": {
        const { answers, digest, turnId } = plan
        const asked = Effect.forEach(answers, ({ answer, key: clientMessageId, requestId }) => {
          const request = { type: "answer", id, sessionId, requestId, answer, clientMessageId } as const
          return this.clients.execute({ ...caller, run: { ...run, digest } }, request)
        })
        return Effect.as(asked, turnId)
      }
      case "invalid":
        return Effect.fail(new BadRequest({ error: `Invalid request: ${plan.error}` }))
      case "conflict":
        return Effect.fail(new Conflict({ error: plan.error }))
    }
  }

  /** Starts, continues or finds the turn of a run. Returns it and its session. */
  begin(caller: Caller, agentType: string, input: RunAgentInput) {
    return Effect.gen(this, function* () {
      const { runId, threadId } = input
      const found = yield* this.find(caller, threadId)
      if (Option.isNone(found)) {
        // Nothing is made for an invalid input.
        const plan = planOf(input, { conversation: empty(""), answered: new Set(), run: undefined })
        if (plan.is === "invalid" || plan.is === "conflict") {
          return yield* Effect.as(this.carryOut(caller, "", plan, { id: runId }), { sessionId: "", turnId: "" })
        }
      }
      const { id: sessionId } = Option.isSome(found) ? found.value : yield* this.names.open(caller, threadId, agentType)
      const find = this.known(caller, sessionId, agentType, runId)
      let known = yield* find
      // A run is recorded shortly before its message.
      for (let left = looks; left > 0 && isIncomplete(known); left--) {
        yield* Effect.sleep(lookEvery)
        known = yield* find
      }
      const given = inputOf(input)
      const run = { id: runId, ...(given === undefined ? {} : { input: given }) }
      const turnId = yield* this.carryOut(caller, sessionId, planOf(input, known), run)
      return { sessionId, turnId }
    })
  }
}

const make = Effect.gen(function* () {
  const clients = yield* Clients
  const streams = yield* EventStreams.make
  const scope = yield* Effect.scope
  const requests = new RunRequests(clients, yield* Threads, yield* Conversations, yield* SessionEvents)

  /** Work that continues without the client that has requested it. */
  const detached = <A, E>(work: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.flatMap(Effect.forkIn(work, scope), Fiber.join)

  const run = (incoming: Incoming, agentType: string, input: RunAgentInput): Effect.Effect<Reply.Reply, Failure> =>
    Effect.gen(function* () {
      const caller = callerOf(incoming)
      const { messages, runId, threadId } = input
      const { sessionId, turnId } = yield* detached(requests.begin(caller, agentType, input))
      const stream = yield* streams.open({ caller, expiresAt: incoming.identity?.expiresAt }, sessionId, subscription =>
        Effect.gen(function* () {
          const conversation = yield* requests.read(subscription)
          const answered = yield* requests.answered(caller, sessionId, conversation)
          const after = conversation.seq
          const request = { threadId, runId, turnId, messages, answered }
          const encoding = encodingOf(request, conversation, requests.read(subscription))
          return { after, maySkip: false, encoding }
        }).pipe(Effect.mapError(apiError(threadId)))
      )
      return Reply.written("text/event-stream", stream, headers, stream.release)
    })

  const stop = (
    caller: Caller,
    agentType: string,
    threadId: string,
    runId: string
  ): Effect.Effect<Reply.Reply, Failure> =>
    Effect.gen(function* () {
      const found = yield* requests.find(caller, threadId)
      if (Option.isNone(found)) return yield* unknownThread(threadId)
      const sessionId = found.value.id
      const { run } = yield* requests.known(caller, sessionId, agentType, runId)
      const turnId = run?.turnId
      if (turnId == null) return yield* new NotFound({ error: `There is no run ${JSON.stringify(runId)}` })
      const interrupted = clients.execute(caller, { type: "interrupt_turn", id, sessionId, turnId })
      return yield* Effect.catchAll(Effect.as(interrupted, Reply.empty(204)), failure => {
        const { code } = failure instanceof Refused ? failure.failure : { code: failure._tag }
        // The turn has ended.
        const isOver = ["SessionConflict", "SessionNotActive", "conflict", "session_not_active"].includes(code)
        return isOver ? Effect.succeed(Reply.empty(204)) : Effect.fail(failure)
      })
    })

  return AgUi.of({
    run: ({ incoming, path: { agentType }, payload }) =>
      Effect.mapError(run(incoming, agentType, payload), apiError(payload.threadId)),
    stop: ({ incoming, path: { agentType, runId, threadId } }) =>
      Effect.mapError(stop(callerOf(incoming), agentType, threadId, runId), apiError(threadId))
  })
})

/** Serves AG-UI until the scope closes. */
export const layer: Layer.Layer<AgUi, never, Clients | Conversations | DrainingSignal | SessionEvents | Threads> =
  Layer.scoped(AgUi, make)
