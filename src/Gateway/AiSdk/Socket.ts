/** The WebSocket of `WebSocketChatTransport`: the streams of several chats on one connection. */
import { Deferred, Effect, Either, type Fiber, Option, ParseResult, Schema, type Scope, type Tracer } from "effect"
import { excess, illFormedAt, isObject, mayBeIllFormed, parseChecked } from "../../base/Json/Parsing.ts"
import type { ApiError } from "../../Http/ApiError.ts"
import { describe, historyLimits } from "../../Http/Contract.ts"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import type { Connection, Upgrade } from "../../Http/WebSocket.ts"
import type { Authentication, Identity } from "../Authentication.ts"
import { ClientSocket, type Clocks } from "../Clients/ClientSocket.ts"
import { acceptBy, connectionSet, Handshakes, makeRunner, parentOf } from "../Clients/Handshakes.ts"
import type { Clients, Settings, Slot } from "../Clients.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import { closeCodes } from "../Protocol/Codes.ts"
import { messagesPerSecond, requestsInFlight } from "../Protocol/Limits.ts"
import type { Caller } from "../Sessions.ts"
import { errorOf } from "../Streams/Errors.ts"
import * as EventStreams from "../Streams/EventStreams.ts"
import { ChatFrame } from "./Api.ts"
import { ChatRequest, frameOf } from "./ChatRequest.ts"
import type { Chats } from "./Chats.ts"
import { endOf } from "./Submission.ts"

/** Bytes of a frame that count as one frame. */
const countedBytes = 256 * 1024

/** Streams take no slot in addition to that of their connection. */
const ownSlot: Slot = { offer: () => {}, release: () => {} }

/** The services that all connections share. */
interface Shared extends Clocks {
  readonly chats: Chats
  readonly streams: EventStreams.EventStreams
  readonly run: (effect: Effect.Effect<void>) => Fiber.RuntimeFiber<void>
}

type Begin = Exclude<ChatFrame, { readonly type: "abort" }>

/** Why a frame is not understood. Without `requestId` no client can refer the answer to its request. */
interface Invalid {
  readonly requestId: string
  readonly error: string
}

const shape = { levels: historyLimits.levels + 2, members: historyLimits.members }

const readFrame = Schema.decodeUnknownEither(ChatFrame, { errors: "all" })

const types: ReadonlyArray<unknown> = ["send", "resume", "abort"]

/** Decodes a frame; undefined if it is not a JSON object. */
const decode = (text: string): ChatFrame | Invalid | undefined => {
  const excessive = excess(text, shape)
  if (excessive !== undefined) return { requestId: "", error: `Invalid request: the frame ${excessive}` }
  const frame = Either.getOrNull(parseChecked(text))
  if (!isObject(frame)) return undefined
  const requestId = typeof frame.requestId === "string" ? frame.requestId : ""
  if (mayBeIllFormed(text) && illFormedAt(frame) !== undefined) {
    return { requestId, error: "Invalid request: it must be Unicode, and has a lone surrogate" }
  }
  // The decoder of a union takes no other values for types than texts.
  if (!types.includes(frame.type)) return { requestId, error: `Invalid request: type: must be ${types.join(", ")}` }
  return Either.getOrElse(readFrame(frame), issue => ({
    requestId,
    error: describe(ParseResult.ArrayFormatter.formatErrorSync(issue))
  }))
}

/** The connection of one client. */
class ChatConnection extends ClientSocket {
  private readonly requests = new Map<string, ChatRequest>()
  private readonly caller: Caller = { tenant: this.identity.tenant, actor: this.identity.actor }

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
      request.stream?.onDrain()
    }
  }

  protected override onExpired(): void {
    // The package takes any end of a connection for a failure of the network, and resumes.
    for (const request of [...this.requests.values()]) request.stream?.end("expired")
  }

  onClosing(): void {
    for (const request of [...this.requests.values()]) request.end()
  }

  protected onText(text: string, isTooMany: boolean): void {
    const frame = decode(text)
    const type = frame !== undefined && "type" in frame ? `chat_${frame.type}` : GatewayMetrics.invalid
    GatewayMetrics.received.increment(type, this.shared.chats.turns.clients.tags)
    if (frame === undefined) return this.close(closeCodes.protocol)
    if ("error" in frame) return this.refuse(frame.requestId, frame.error)
    if (frame.type === "abort") return this.abort(frame.requestId)
    const { size } = this.requests
    if (isTooMany) return this.refuse(frame.requestId, `More than ${messagesPerSecond} frames in a second`)
    if (size >= requestsInFlight) return this.refuse(frame.requestId, `${size} requests are in progress`)
    if (this.requests.has(frame.requestId)) return this.refuse(frame.requestId, "The requestId is in use")
    this.begin(frame)
  }

  private begin(frame: Begin): void {
    const { actor, tenant } = this.caller
    const { chats, run } = this.shared
    const chat = { agentType: this.agentType, id: frame.id }
    const { tags } = chats.turns.clients
    const key = frame.type === "send" ? (frame.messages[endOf(frame)]?.id ?? "") : ""
    const request: ChatRequest = new ChatRequest(frame.requestId, chat, key, this.connection, tags, () => {
      if (this.requests.get(request.id) === request) this.requests.delete(request.id)
      if (request.stream !== undefined) run(request.stream.release)
    })
    this.requests.set(request.id, request)
    if (frame.type === "send") request.answer("start")
    run(
      this.follow(frame, request).pipe(
        Effect.catchAll(failed => {
          const { error } = errorOf(failed)
          request.answer("error", error)
          return Effect.annotateLogs(Effect.logDebug("A request failed"), { reason: error })
        }),
        Effect.catchAllDefect(defect => {
          request.answer("error", "Internal error")
          return Effect.logError("A request of a chat has failed", defect)
        }),
        Effect.annotateLogs({ tenant, actor }),
        // A stack would keep the connection in memory.
        Effect.withSpan(`Chat.${frame.type}`, {
          ...{ kind: "server", captureStackTrace: false, attributes: { tenant } },
          parent: this.parent
        })
      )
    )
  }

  /** Finds or begins the turn of a request, and sends its message. */
  private follow(frame: Begin, request: ChatRequest) {
    return Effect.gen(this, function* () {
      const { caller, identity } = this
      const { chats, streams } = this.shared
      const { chat, form } = request
      const found =
        frame.type === "send" ? Effect.asSome(chats.submit(caller, chat, frame)) : chats.resume(caller, chat)
      const followed = yield* Effect.onExit(found, exit => Deferred.done(request.followed, exit))
      if (Option.isNone(followed)) return request.answer("no-active")
      if (request.hasEnded) return
      // The stream has the slot of the connection.
      const client = { caller, expiresAt: identity.expiresAt, slot: ownSlot }
      const stream = yield* chats.turns.open(client, Effect.succeed(followed.value), chats.writing(form), streams)
      if (frame.type === "resume") request.answer("start")
      request.follow(stream)
    })
  }

  /** Ends a stream, and stops its turn unless a client resumes it soon. */
  private abort(requestId: string): void {
    const request = this.requests.get(requestId)
    if (request === undefined) return
    const { chats, run } = this.shared
    const { chat, followed, key } = request
    request.end()
    const caller = { ...this.caller, unlessResumed: true }
    // Where there is no turn, nothing is to be stopped.
    const stop = (by: Caller) =>
      Effect.flatMap(Effect.flatten(Deferred.await(followed)), ({ target }) => chats.stop(by, chat, target.turnId))
    // A message that has not been sent is withdrawn, unless the chat is resumed. A turn is stopped when it is known.
    const stopped = Effect.flatMap(chats.turns.stop({ ...caller, key }, { id: chat.id }), found =>
      Option.contains(found, true) ? Effect.void : stop(Option.isNone(found) ? caller : this.caller)
    )
    run(Effect.ignore(Effect.tapError(stopped, error => Effect.logDebug("A turn was not stopped", error))))
  }

  private refuse(requestId: string, errorText: string): void {
    this.connection.sendFrame(frameOf(this.shared.chats.turns.clients.tags, requestId, "error", errorText))
  }
}

type Connect = (handshake: Parameters<Handshakes["identify"]>[0], agentType: string) => Effect.Effect<Upgrade, ApiError>

/** Accepts clients until the scope closes. */
export const make = (
  settings: Settings,
  chats: Chats
): Effect.Effect<Connect, never, Authentication | Clients | DrainingSignal | Scope.Scope> =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const run = yield* makeRunner
    const handshakes = yield* Handshakes.make(settings.connections)
    // A frame has the names of its members in addition to what a body has.
    const messageBytes = historyLimits.bytes + 1024
    const connections = yield* connectionSet({ messageBytes, unsentBytes: settings.unsentBytes })
    const shared: Shared = {
      chats,
      run,
      streams: yield* EventStreams.make("ai_sdk_websocket", GatewayMetrics.sent),
      now: () => clock.unsafeCurrentTimeMillis(),
      monotonic: connections.now
    }
    return (handshake, agentType) =>
      Effect.map(handshakes.identify(handshake), identity => ({
        connections,
        accept: acceptBy(chats.turns.clients.takeSlot, identity.tenant, (connection, slot) => {
          return new ChatConnection(connection, identity, parentOf(handshake), agentType, slot, shared)
        })
      }))
  })
