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
import type { EventStream } from "../Streams/EventStream.ts"
import * as EventStreams from "../Streams/EventStreams.ts"
import type { Thread } from "../Streams/Turns.ts"
import { ChatFrame } from "./Api.ts"
import { ChatRequest, frameOf } from "./ChatRequest.ts"
import type { Chats, Followed } from "./Chats.ts"
import { encodingOf } from "./EventStream.ts"

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

type Read = (frame: object) => Either.Either<ChatFrame, ParseResult.ParseError>

const reader = <A extends ChatFrame, I>(schema: Schema.Schema<A, I>): Read =>
  Schema.decodeUnknownEither(schema, { errors: "all" })

const [send, resume, abort] = ChatFrame.members

/** The frames by their types, which may be any value. */
const readers = new Map<unknown, Read>([
  ["send", reader(send)],
  ["resume", reader(resume)],
  ["abort", reader(abort)]
])

/** A frame that is not understood. Without `requestId` no client can refer the answer to its request. */
interface Invalid {
  readonly requestId: string
  readonly error: string
}

const shape = { levels: historyLimits.levels + 2, members: historyLimits.members }

/** Decodes a frame. Fails without a reason if it is not a JSON object. */
const decode = (text: string): Either.Either<ChatFrame, Invalid | undefined> => {
  const problem = excess(text, shape)
  if (problem !== undefined) return Either.left({ requestId: "", error: `Invalid request: the frame ${problem}` })
  const parsed = parseChecked(text)
  if (Either.isLeft(parsed) || !isObject(parsed.right)) return Either.left(undefined)
  const { requestId: id, type } = parsed.right
  const requestId = typeof id === "string" ? id : ""
  const refuse = (error: string) => Either.left({ requestId, error })
  if (mayBeIllFormed(text) && illFormedAt(parsed.right) !== undefined) {
    return refuse("Invalid request: it must be Unicode, and has a lone surrogate")
  }
  const read = readers.get(type)
  if (read === undefined) return refuse(`Invalid request: type: must be ${[...readers.keys()].join(", ")}`)
  return Either.mapLeft(read(parsed.right), issue => ({
    requestId,
    error: describe(ParseResult.ArrayFormatter.formatErrorSync(issue))
  }))
}

/** The connection of one client. */
class ChatConnection extends ClientSocket {
  private readonly requests = new Map<string, ChatRequest>()

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
    for (const request of [...this.requests.values()]) request.expire()
  }

  onClosing(): void {
    for (const request of [...this.requests.values()]) request.end()
  }

  protected onText(text: string, isTooMany: boolean): void {
    const decoded = decode(text)
    const type = Either.isRight(decoded) ? `chat_${decoded.right.type}` : GatewayMetrics.invalid
    GatewayMetrics.received.increment(type, this.shared.chats.turns.clients.tags)
    if (Either.isLeft(decoded)) {
      const { left } = decoded
      return left === undefined ? this.close(closeCodes.protocol) : this.refuse(left.requestId, left.error)
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
    const { caller } = this
    const { actor, tenant } = caller
    const { chats, run } = this.shared
    const chat = this.chatOf(frame.id)
    const { clients } = chats.turns
    const request = new ChatRequest(frame.requestId, frame.id, this.connection, clients, (ended, stream) => {
      if (this.requests.get(ended.id) === ended) this.requests.delete(ended.id)
      if (stream !== undefined) run(stream.release)
    })
    this.requests.set(frame.requestId, request)
    if (frame.type === "send") request.answer("start")
    const found = frame.type === "send" ? Effect.asSome(chats.submit(caller, chat, frame)) : chats.resume(caller, chat)
    const follow = (followed: Followed) =>
      Effect.map(this.open(followed, request), stream => {
        if (frame.type === "resume") request.answer("start")
        request.follow(stream)
      })
    const noTurn = Effect.sync(() => request.answer("no-active"))
    run(
      found.pipe(
        Effect.onExit(exit => Deferred.done(request.followed, exit)),
        Effect.flatMap(
          Option.match({
            onNone: () => noTurn,
            onSome: followed => (request.hasEnded ? Effect.void : follow(followed))
          })
        ),
        Effect.catchAll(({ error }) => {
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

  /** Opens the stream of a turn, which has the slot of the connection. */
  private open(followed: Followed, { form }: ChatRequest): Effect.Effect<EventStream, ApiError> {
    const { chats, streams } = this.shared
    const { caller, identity } = this
    const client = { caller, expiresAt: identity.expiresAt, slot: ownSlot }
    return streams.open(client, Effect.succeed(followed), (subscription, _, { target }) =>
      chats.turns.histories.begin(subscription, chats.beginning(subscription, target)).pipe(
        Effect.map(begun => ({ ...begun, encoding: encodingOf(begun, form), maySkip: false })),
        Effect.mapError(errorOf)
      )
    )
  }

  private get caller(): Caller {
    const { actor, tenant } = this.identity
    return { tenant, actor }
  }

  private chatOf(id: string): Thread {
    return { agentType: this.agentType, id }
  }

  /** Ends a stream, and stops its turn unless a client resumes it soon. */
  private abort(requestId: string): void {
    const request = this.requests.get(requestId)
    if (request === undefined) return
    const { chats, run } = this.shared
    const { chatId, followed } = request
    request.end()
    const stop = ({ target }: Followed) =>
      chats.stop({ ...this.caller, unlessResumed: true }, this.chatOf(chatId), target.turnId)
    const stopped = Effect.flatMap(Effect.flatten(Deferred.await(followed)), stop)
    // Where there is no turn, nothing is to be stopped.
    run(Effect.ignore(Effect.tapError(stopped, error => Effect.logDebug("A turn was not stopped", error))))
  }

  private refuse(requestId: string, errorText: string): void {
    this.connection.sendFrame(frameOf(this.shared.chats.turns.clients, requestId, "error", errorText))
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
    const { unsentBytes } = settings
    // A frame has the names of its members in addition to what a body has.
    const connections = yield* connectionSet({ messageBytes: historyLimits.bytes + 1024, unsentBytes })
    const streams = yield* EventStreams.make("ai_sdk_websocket", GatewayMetrics.sent)
    const shared: Shared = {
      chats,
      run,
      streams,
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
