/**
 * The connection of one client: which requests it may send, in which order they are carried out, and when it is closed.
 */
import { Effect, Either, type Fiber, FiberId } from "effect"
import type { LogValue } from "../../base/Observability/LogValue.ts"
import * as FrameSummary from "../../base/Observability/LogValue.ts"
import type { Connection } from "../../Http/WebSocket.ts"
import { ClientSocket, type Clocks } from "../Clients/ClientSocket.ts"
import type { Slot } from "../Clients.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import { closeCodes } from "../Protocol/Codes.ts"
import { messagesPerSecond, requestsInFlight } from "../Protocol/Limits.ts"
import type { Request } from "../Protocol/Request.ts"
import { encode } from "../Protocol.ts"
import {
  type Call,
  decodeRequest,
  defect,
  type Failure,
  failureOf,
  fileRequests,
  largestAnswer,
  Refused,
  type RequestError,
  smallFrame
} from "../Requests.ts"
import { type Client, Responder } from "./Responder.ts"
import { type Shared as SharedBySubscriptions, Subscriptions } from "./Subscriptions.ts"

/** A unit of work in a queue. */
export interface Task<E> {
  /** Starts the work. Calls back at its end. */
  readonly begin: (onEnd: (failure: E | undefined) => void) => void
  /** Whether it is abandoned when a task before it fails. */
  readonly isDependent: boolean
  /** Called instead of {@link begin} if the task is abandoned. */
  readonly abandon: (failure: E) => void
}

/** A queue for each key. The tasks of a queue run one at a time, in order. */
export class SerialQueues<E> {
  /** The tasks that wait, by key; present while a task of the key runs. */
  private readonly queues = new Map<string, Array<Task<E>>>()

  add(key: string, task: Task<E>): void {
    const waiting = this.queues.get(key)
    if (waiting !== undefined) {
      waiting.push(task)
      return
    }
    this.queues.set(key, [])
    this.run(key, task)
  }

  /** Abandons the waiting tasks. The running one continues. */
  abandon(key: string, failure: E): void {
    for (const task of this.queues.get(key)?.splice(0) ?? []) task.abandon(failure)
  }

  private run(key: string, task: Task<E>): void {
    task.begin(failure => {
      const waiting = this.queues.get(key)
      if (failure !== undefined && waiting !== undefined) {
        const dependent = waiting.filter(({ isDependent }) => isDependent)
        waiting.splice(0, waiting.length, ...waiting.filter(({ isDependent }) => !isDependent))
        for (const task of dependent) task.abandon(failure)
      }
      const next = waiting?.shift()
      if (next === undefined) this.queues.delete(key)
      else this.run(key, next)
    })
  }
}

/** Whether a request is carried out after the earlier messages of the client to the same session. */
const isInOrder = (request: Call): boolean => {
  switch (request.type) {
    case "send_message":
    case "answer":
      return true
    // A turn whose id the client knows has started, so the request does not wait for later messages.
    case "interrupt_turn":
      return request.turnId === undefined
    default:
      return false
  }
}

const stopRequests = new Set<Request["type"]>(["stop_session", "delete_session"])

/** Concurrent file calls of one connection. Others wait, because answers may be large. */
const fileCalls = 4

const tooMany = { code: "rate_limited", message: `More than ${messagesPerSecond} messages in a second` } as const

const stopped: Failure = {
  code: "session_not_active",
  message: "The session was stopped in the meantime",
  retryable: true
}

/** The services and settings that all connections share. */
export interface Shared extends SharedBySubscriptions, Clocks {}

/** The connection of one client. It has no fiber. Each request has one while it is carried out. */
export class ClientConnection extends ClientSocket {
  private readonly responder: Responder
  private readonly inFlight = new Map<string, Fiber.RuntimeFiber<void> | undefined>()
  private readonly subscriptions: Subscriptions
  private readonly queues = new SerialQueues<Failure>()
  /** Made at the first request for a file, because it takes almost a kilobyte. */
  private files: Effect.Semaphore | undefined

  constructor(
    connection: Connection,
    private readonly client: Client,
    slot: Slot,
    private readonly shared: Shared
  ) {
    super(connection, client.identity, slot, shared)
    this.responder = new Responder(connection, client, shared)
    this.subscriptions = new Subscriptions(this.responder, client.identity, shared, () =>
      this.close(closeCodes.slowConsumer)
    )
  }

  override onOpen(): void {
    super.onOpen()
    this.shared.debug?.("A client has connected", { tenant: this.client.identity.tenant })
  }

  onRoom(): void {
    this.connection.resume()
    this.responder.onRoom()
  }

  onClosing(): void {
    this.subscriptions.endAll()
    for (const fiber of this.inFlight.values()) fiber?.unsafeInterruptAsFork(FiberId.none)
    this.inFlight.clear()
  }

  protected onText(text: string, isTooMany: boolean): void {
    // Above the rate limit only a small frame is decoded, for its id.
    const decoded =
      !isTooMany || text.length <= smallFrame ? decodeRequest(text) : Either.left({ id: undefined, ...tooMany })
    GatewayMetrics.received.increment(
      Either.isRight(decoded) ? decoded.right.type : GatewayMetrics.invalid,
      this.shared.tags
    )
    const frame = this.shared.debug === undefined ? undefined : FrameSummary.ofText(text)
    if (isTooMany) return this.responder.refuse(Either.merge(decoded).id, tooMany, frame)
    if (Either.isRight(decoded)) this.onRequest(decoded.right, frame)
    else this.responder.refuse(decoded.left.id, decoded.left, frame)
  }

  private onRequest(request: Request, frame: LogValue | undefined): void {
    const { id } = request
    if (this.inFlight.has(id)) {
      const message = "A request with this id has not been answered yet"
      return this.responder.refuse(id, { code: "conflict", message }, frame)
    }
    if (this.inFlight.size >= requestsInFlight) {
      const message = `${this.inFlight.size} requests have not been answered yet; the limit is ${requestsInFlight}`
      return this.responder.refuse(id, { code: "rate_limited", message }, frame)
    }
    switch (request.type) {
      case "ping": {
        const pong = () => ({ type: "pong", id, timestamp: this.shared.now() }) as const
        if (frame === undefined) return this.responder.send("pong", encode(pong()))
        return this.start(
          request,
          Effect.suspend(() => this.responder.answer(pong())),
          frame
        )
      }
      case "subscribe":
        return this.inQueue(`subscription ${request.sessionId}`, request, this.subscriptions.subscribe(request), frame)
      case "unsubscribe":
        return this.inQueue(
          `subscription ${request.sessionId}`,
          request,
          this.subscriptions.unsubscribe(request),
          frame
        )
      default:
        return this.call(request, frame)
    }
  }

  private call(request: Call, frame: LogValue | undefined): void {
    const { type } = request
    if (fileRequests.has(type)) return this.start(request, this.file(request), frame)
    const work = Effect.flatMap(this.shared.execute(this.client.identity, request), answer =>
      this.responder.answer(answer)
    )
    if ("sessionId" in request) {
      const key = `messages ${request.sessionId}`
      if (isInOrder(request)) return this.inQueue(key, request, work, frame, type === "send_message")
      // Waiting messages are not sent to a session that is stopped.
      if (stopRequests.has(type)) this.queues.abandon(key, stopped)
    }
    this.start(request, work, frame)
  }

  private file(request: Call): Effect.Effect<void, RequestError | Refused> {
    const { identity } = this.client
    const work = this.shared.files.use(identity.tenant, largestAnswer(request.type), claim =>
      Effect.flatMap(this.shared.execute(identity, request), answer => this.responder.answerFile(answer, claim))
    )
    this.files ??= Effect.unsafeMakeSemaphore(fileCalls)
    return this.files.withPermits(1)(work)
  }

  /** Executes a request after the earlier ones of its queue. If a message fails, those after it are abandoned. */
  private inQueue(
    key: string,
    request: Request,
    work: Effect.Effect<void, RequestError | Refused>,
    frame: LogValue | undefined,
    isMessage = false
  ): void {
    const { id } = request
    this.inFlight.set(id, undefined)
    this.queues.add(key, {
      begin: onEnd => {
        if (!this.inFlight.has(id)) return onEnd(undefined)
        this.start(request, work, frame, failure => onEnd(isMessage ? failure : undefined))
      },
      isDependent: isMessage,
      abandon: failure => {
        this.inFlight.delete(id)
        this.responder.refuse(id, failure, frame)
      }
    })
  }

  private start(
    request: Request,
    work: Effect.Effect<void, RequestError | Refused>,
    frame: LogValue | undefined,
    onEnd: (failure: Failure | undefined) => void = () => {}
  ): void {
    const { id, type } = request
    let failed: Failure | undefined
    const answered = work.pipe(
      Effect.catchAll(error => {
        failed = error instanceof Refused ? error.failure : failureOf(error)
        return this.responder.answerFailure(id, failed)
      }),
      Effect.catchAllDefect(error => {
        failed = defect
        const logged = Effect.logError("A request of a client failed", error)
        return Effect.zipRight(logged, this.responder.answerFailure(id, defect))
      })
    )
    this.inFlight.set(id, undefined)
    const fiber = this.shared.run(this.responder.inSpan(type, answered, frame))
    if (this.inFlight.has(id)) this.inFlight.set(id, fiber)
    fiber.addObserver(() => {
      if (this.inFlight.get(id) === fiber) this.inFlight.delete(id)
      onEnd(failed)
    })
  }
}
