/** The WebSocket of `WebSocketChatTransport`: the streams of several chats on one connection. */
import {
  Deferred,
  Effect,
  Either,
  Exit,
  type Fiber,
  FiberId,
  Option,
  ParseResult,
  Schema,
  Scope,
  type Tracer
} from "effect"
import { excess, illFormedAt, isObject, mayBeIllFormed, parseChecked } from "../../base/Json/Parsing.ts"
import type { ApiError } from "../../Http/ApiError.ts"
import { describe, historyLimits } from "../../Http/Contract.ts"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import type { Connection, Upgrade } from "../../Http/WebSocket.ts"
import type { Authentication, Identity } from "../Authentication.ts"
import { ClientSocket, type Clocks } from "../Clients/ClientSocket.ts"
import { acceptBy, connectionSet, Handshakes, makeRunner, parentOf } from "../Clients/Handshakes.ts"
import type { Settings, Slot } from "../Clients.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import { closeCodes } from "../Protocol/Codes.ts"
import { messagesPerSecond, requestsInFlight } from "../Protocol/Limits.ts"
import { errorOf } from "../Streams/Errors.ts"
import type { Thread } from "../Streams/Turns.ts"
import { ChatFrame } from "./Api.ts"
import { ChatRequest, sendFrame } from "./ChatRequest.ts"
import type { Chats, Followed } from "./Chats.ts"
import { hasExpired } from "./EventStream.ts"

/** How long after `abort` a client may resume before the turn is stopped. */
const stopDelay = "1 second"

/** Bytes of a frame that count as one frame. */
const countedBytes = 256 * 1024

/** The services that all connections share. */
interface Shared extends Clocks {
  readonly chats: Chats
  readonly run: (effect: Effect.Effect<void>) => Fiber.RuntimeFiber<void>
}

const readFrame = Schema.decodeUnknownEither(ChatFrame, { errors: "all" })

/** A frame that is not understood. Without `requestId` it cannot be answered. */
interface Invalid {
  readonly requestId: string | undefined
  readonly error: string
}

const shape = { levels: historyLimits.levels + 2, members: historyLimits.members }

const decode = (text: string): Either.Either<ChatFrame, Invalid> => {
  const problem = excess(text, shape)
  if (problem !== undefined) return Either.left({ requestId: undefined, error: `The frame ${problem}` })
  const parsed = parseChecked(text)
  if (Either.isLeft(parsed) || !isObject(parsed.right)) {
    return Either.left({ requestId: undefined, error: "The frame is not a JSON object" })
  }
  const requestId = typeof parsed.right.requestId === "string" ? parsed.right.requestId : undefined
  if (mayBeIllFormed(text) && illFormedAt(parsed.right) !== undefined) {
    return Either.left({ requestId, error: "Invalid request: it must be Unicode, and has a lone surrogate" })
  }
  return Either.mapLeft(readFrame(parsed.right), issue => ({
    requestId,
    error: describe(ParseResult.ArrayFormatter.formatErrorSync(issue))
  }))
}

/** The connection of one client. */
class ChatConnection extends ClientSocket {
  private readonly requests = new Map<string, ChatRequest>()
  /** The turns that are about to be stopped, by chat. */
  private readonly stopping = new Map<string, Fiber.RuntimeFiber<void>>()

  constructor(
    connection: Connection,
    identity: Identity,
    private readonly parent: Tracer.AnySpan | undefined,
    private readonly agentType: string,
    slot: Slot,
    private readonly shared: Shared
  ) {
    super(connection, identity, slot, shared, countedBytes)
  }

  onRoom(): void {
    this.connection.resume()
    for (const request of [...this.requests.values()]) {
      if (!this.connection.hasRoom) return
      // The next time it is the last one.
      if (this.requests.delete(request.id)) this.requests.set(request.id, request)
      request.onRoom()
    }
  }

  protected override onExpired(): void {
    // The package takes any end of a connection for a failure of the network, and resumes.
    for (const request of [...this.requests.values()]) request.fail(hasExpired)
  }

  onClosing(): void {
    for (const request of [...this.requests.values()]) request.end()
  }

  protected onText(text: string, isTooMany: boolean): void {
    const decoded = decode(text)
    const type = Either.isRight(decoded) ? `chat_${decoded.right.type}` : GatewayMetrics.invalid
    GatewayMetrics.received.increment(type, this.shared.chats.turns.clients.tags)
    if (Either.isLeft(decoded)) {
      const { error, requestId } = decoded.left
      return requestId === undefined ? this.close(closeCodes.protocol) : this.refuse(requestId, error)
    }
    const frame = decoded.right
    if (frame.type === "abort") return this.abort(frame.requestId)
    const { size } = this.requests
    if (isTooMany) return this.refuse(frame.requestId, `More than ${messagesPerSecond} frames in a second`)
    if (size >= requestsInFlight) return this.refuse(frame.requestId, `${size} requests are in progress`)
    if (this.requests.has(frame.requestId)) return this.refuse(frame.requestId, "The requestId is in use")
    this.begin(frame)
  }

  private begin(frame: Exclude<ChatFrame, { readonly type: "abort" }>): void {
    const { chats, run } = this.shared
    const { actor, tenant } = this.identity
    const caller = { tenant, actor }
    const chat = this.chatOf(frame.id)
    const scope = Effect.runSync(Scope.make())
    const { clients } = chats.turns
    const request = new ChatRequest(frame.requestId, frame.id, tenant, clients, this.connection, ended => {
      this.requests.delete(ended.id)
      run(Scope.close(scope, Exit.void))
    })
    this.requests.set(frame.requestId, request)
    if (frame.type === "send") request.answer("start")
    else this.keep(frame.id)
    const found = frame.type === "send" ? Effect.asSome(chats.submit(caller, chat, frame)) : chats.resume(caller, chat)
    const follow = ({ sessionId, target }: Followed) =>
      Effect.gen(function* () {
        Deferred.unsafeDone(request.turn, Effect.succeed(target.turnId))
        if (request.hasEnded) return
        const subscription = yield* clients.sessions.subscribe(caller, sessionId, request.feed)
        const begun = yield* chats.turns.histories.begin(subscription, chats.beginning(subscription, target))
        if (frame.type === "resume") request.answer("start")
        request.begin(subscription, begun)
      }).pipe(Effect.mapError(errorOf))
    const noTurn = Effect.sync(() => request.answer("no-active"))
    run(
      found.pipe(
        Effect.tapError(error => Deferred.fail(request.turn, error)),
        Effect.flatMap(Option.match({ onNone: () => noTurn, onSome: follow })),
        Effect.catchAll(({ error }) => {
          request.fail(error)
          return Effect.annotateLogs(Effect.logDebug("A request failed"), { reason: error })
        }),
        Effect.catchAllDefect(defect => {
          request.fail("Internal error")
          return Effect.logError("A request of a chat has failed", defect)
        }),
        Scope.extend(scope),
        Effect.annotateLogs({ tenant, actor }),
        // A stack would keep the connection in memory.
        Effect.withSpan(`Chat.${frame.type}`, {
          ...{ kind: "server", captureStackTrace: false, attributes: { tenant } },
          parent: this.parent
        })
      )
    )
  }

  private chatOf(id: string): Thread {
    return { agentType: this.agentType, id }
  }

  /** Ends a stream, and stops its turn unless the client resumes it soon. */
  private abort(requestId: string): void {
    const request = this.requests.get(requestId)
    if (request === undefined) return
    const { chatId: id, turn } = request
    const { chats, run } = this.shared
    const { actor, tenant } = this.identity
    request.end()
    this.keep(id)
    const stopped = Effect.flatMap(Deferred.await(turn), turnId => {
      const stop = chats.stop({ tenant, actor }, this.chatOf(id), turnId)
      return Effect.catchAll(stop, ({ error }) => Effect.logWarning("A turn was not stopped", error))
    })
    const stop = Effect.ignore(stopped).pipe(
      Effect.delay(stopDelay),
      Effect.ensuring(Effect.sync(() => this.stopping.delete(id)))
    )
    this.stopping.set(id, run(stop))
  }

  /** Does not stop a turn that was about to be stopped. */
  private keep(id: string): void {
    const fiber = this.stopping.get(id)
    this.stopping.delete(id)
    fiber?.unsafeInterruptAsFork(FiberId.none)
  }

  private refuse(requestId: string, errorText: string): void {
    sendFrame(this.connection, this.shared.chats.turns.clients, { type: "error", requestId, errorText })
  }
}

type Connect = (handshake: Parameters<Handshakes["identify"]>[0], agentType: string) => Effect.Effect<Upgrade, ApiError>

/** Accepts clients until the scope closes. */
export const make = (
  settings: Settings,
  chats: Chats
): Effect.Effect<Connect, never, Authentication | DrainingSignal | Scope.Scope> =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const run = yield* makeRunner
    const handshakes = yield* Handshakes.make(settings.connections)
    const { unsentBytes } = settings
    // A frame has the names of its members in addition to what a body has.
    const connections = yield* connectionSet({ messageBytes: historyLimits.bytes + 1024, unsentBytes })
    const shared: Shared = { chats, run, now: () => clock.unsafeCurrentTimeMillis(), monotonic: connections.now }
    return (handshake, agentType) =>
      Effect.map(handshakes.identify(handshake), identity => ({
        connections,
        accept: acceptBy(chats.turns.clients.takeSlot, identity.tenant, (connection, slot) => {
          return new ChatConnection(connection, identity, parentOf(handshake), agentType, slot, shared)
        })
      }))
  })
