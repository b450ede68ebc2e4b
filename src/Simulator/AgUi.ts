/** The simulated agent by AG-UI: each thread has an instance, and a request for a run is a message to it. */
import { Effect, Either, Option, Stream } from "effect"
import { contentOf, Names } from "../AgUi/Messages.ts"
import { type AgUiEvent, encode, protocolVersion } from "../AgUi/Protocol.ts"
import * as Fold from "../Client/Conversation/Fold.ts"
import type { SessionEvent } from "../Client/SessionModel.ts"
import { RunAgentInput } from "../Gateway/AgUi/Input.ts"
import { endOf } from "../Gateway/AgUi/Runs.ts"
import { Translation } from "../Gateway/AgUi/Translation.ts"
import * as EventMapping from "../Gateway/EventMapping.ts"
import { waitingIn } from "../Gateway/Streams/Inquiries.ts"
import { fromFrame } from "../Upstream/PlatformEvent.ts"
import type { ClientConnection, Instance } from "./Instance.ts"
import { type Answer, Refused } from "./SimulatedService.ts"

/** Threads that are kept. Above it the least recently used one is forgotten, with its instance. */
const maxThreads = 64

const translationOf = (epoch: string) => new Translation(Fold.empty(epoch), new Names(epoch), true)

/** A thread, and how far it was translated. */
class Thread implements ClientConnection {
  sent: number
  /** The run in progress, or the last one: its turn, which is named after its first run, and whether it has ended. */
  run = { turnId: "", isOver: true }
  private translation = translationOf(crypto.randomUUID())
  private halves = EventMapping.noHalves
  private seq = 0
  private answered = new Set<number>()

  constructor(readonly instance: Instance) {
    this.sent = instance.history.last
  }

  close(): void {
    this.instance.detach(this)
  }

  /** Starts a run. What is left of a turn that was abandoned belongs to no later run. */
  begin(turnId: string): { readonly turnId: string; readonly isOver: boolean } {
    if (!this.run.isOver) this.translation = translationOf(crypto.randomUUID())
    this.run = { turnId, isOver: false }
    return this.run
  }

  answer(requestId: string, answer: unknown): void {
    const { conversation } = this.translation
    const request = waitingIn(conversation, this.run.turnId).find(one => one.requestId === requestId)
    if (request === undefined || !this.instance.answer(requestId, answer)) return
    this.answered.add(request.seq)
  }

  /** The events of the run that are new, and whether it has ended. */
  read(run: {
    readonly threadId: string
    readonly runId: string
  }): readonly [ReadonlyArray<AgUiEvent>, isOver: boolean] {
    const [events, isOver] = this.next(run)
    this.run.isOver = isOver
    return [events, isOver]
  }

  private next(run: {
    readonly threadId: string
    readonly runId: string
  }): readonly [ReadonlyArray<AgUiEvent>, isOver: boolean] {
    const { history } = this.instance
    const events: Array<AgUiEvent> = []
    while (this.sent < history.last) {
      events.push(...this.add(history.get(++this.sent)))
      const end = endOf(run, this.translation.conversation, this.translation.names, this.run.turnId, this.answered)
      if (end !== undefined) return [[...events, ...this.translation.end(), end], true]
    }
    if (this.instance.end === undefined) return [events, false]
    return [[...events, { type: "RUN_ERROR", code: "instance_lost", message: "The simulated agent has ended" }], true]
  }

  private add(frame: unknown): ReadonlyArray<AgUiEvent> {
    const event = typeof frame === "string" ? fromFrame(frame) : Either.left("")
    if (Either.isLeft(event)) return []
    const { turnId = this.run.turnId } = event.right.payload
    if (turnId !== this.run.turnId) return []
    const { halves, mapped } = EventMapping.mapJoined(this.halves, event.right, { turnId: this.run.turnId })
    this.halves = halves
    return mapped.events.flatMap(body => {
      const envelope = { sessionId: "", seq: ++this.seq, timestamp: this.instance.now(), traceId: "" }
      return this.translation.add({ ...body, ...envelope } as SessionEvent)
    })
  }
}

/** Starts an instance; `undefined` if there are too many. */
type Start = (agentType: string) => Instance | undefined

export class Threads {
  private readonly threads = new Map<string, Thread>()

  constructor(
    private readonly start: Start,
    private readonly reclaim: (instance: Instance) => void
  ) {}

  private find(agentType: string, threadId: string): Thread | undefined {
    const key = `${agentType} ${threadId}`
    const known = this.threads.get(key)
    this.threads.delete(key)
    const instance = known?.instance.end === undefined ? known?.instance : undefined
    const thread = instance === undefined ? this.begin(agentType) : known!
    if (thread === undefined) return undefined
    this.threads.set(key, thread)
    if (this.threads.size > maxThreads) {
      const [oldest, { instance }] = this.threads.entries().next().value!
      this.threads.delete(oldest)
      this.reclaim(instance)
    }
    return thread
  }

  private begin(agentType: string): Thread | undefined {
    const instance = this.start(agentType)
    return instance === undefined ? undefined : new Thread(instance)
  }

  /** The answer to a request for a run: its events as they come. The end of the request interrupts the turn. */
  run(agentType: string, input: RunAgentInput): Effect.Effect<Answer, Refused> {
    return Effect.suspend(() => {
      const { messages, resume = [], runId, threadId } = input
      const thread = this.find(agentType, threadId)
      if (thread === undefined) return new Refused({ status: 429, message: "Too many instances are alive" })
      const { instance } = thread
      const last = messages.at(-1)
      if (resume.length === 0 && last === undefined) return new Refused({ status: 400, message: "There is no message" })
      const begin = Effect.acquireRelease(
        Effect.sync(() => {
          instance.attach(thread)
          const run = thread.begin(resume.length === 0 ? runId : thread.run.turnId)
          if (resume.length === 0) {
            instance.message((last === undefined ? undefined : contentOf(last)) ?? "", runId)
          }
          for (const { interruptId, payload = null, status } of resume) {
            thread.answer(interruptId, status === "resolved" ? payload : { approved: false, reason: "cancelled" })
          }
          return run
        }),
        run =>
          Effect.sync(() => {
            if (thread.run === run) instance.detach(thread)
            if (!run.isOver) instance.interrupt(run.turnId)
          })
      )
      const started: AgUiEvent = { type: "RUN_STARTED", threadId, runId, protocolVersion }
      const pieces = Stream.unwrapScoped(
        Effect.as(begin, Stream.concat(Stream.succeed([started]), eventsOf(thread, input)))
      ).pipe(Stream.map(events => Buffer.from(events.map(encode).join(""))))
      const headers = { "content-type": "text/event-stream", "cache-control": "no-cache" }
      return Effect.succeed<Answer>({ status: 200, headers, pieces, pace: 0 })
    })
  }
}

const eventsOf = (thread: Thread, run: RunAgentInput): Stream.Stream<ReadonlyArray<AgUiEvent>> => {
  const { changes, history } = thread.instance
  return Stream.unfoldEffect(false, isOver => {
    if (isOver) return Effect.succeedNone
    const isNews = () => thread.sent < history.last || thread.instance.end !== undefined
    return changes
      .until(() => (isNews() ? Option.some(undefined) : Option.none()))
      .pipe(
        Effect.map(() => {
          const next = thread.read(run)
          // The agent waits for slow clients.
          changes.notify()
          return Option.some(next)
        })
      )
  })
}

export { RunAgentInput }
