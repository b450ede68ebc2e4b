/** The WebSocket of `WebSocketChatTransport`: the streams of several chats on one connection. */
import { Deferred, Effect, Either, Exit, type Fiber, FiberId, Option, ParseResult, Schema, Scope } from "effect"
import { excess, illFormedAt, isObject, mayBeIllFormed, parseChecked } from "../../base/Json/Parsing.ts"
import type { ApiError } from "../../Http/ApiError.ts"
import { describe, historyLimits } from "../../Http/Contract.ts"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import { type Connection, type Handler, textFrames, type Upgrade } from "../../Http/WebSocket.ts"
import type { Authentication, Identity } from "../Authentication.ts"
import { acceptBy, connectionSet, Handshakes, makeRunner } from "../Clients/Handshakes.ts"
import type { Settings, Slot } from "../Clients.ts"
import { type CloseCode, closeCodes } from "../Protocol/Codes.ts"
import { messagesPerSecond, requestsInFlight } from "../Protocol/Limits.ts"
import { TokenBucket } from "../Socket/Responder.ts"
import { errorOf } from "../Streams/Errors.ts"
import { ChatFrame } from "./Api.ts"
import { type Chat, Chats, type ChatsShape, type Followed } from "./Chats.ts"
import { hasExpired } from "./EventStream.ts"
import { Follower, type Sink } from "./Follower.ts"

/** How long after `abort` a client may resume before the turn is stopped. */
const stopDelay = "1 second"

/** Bytes of a frame that count as one frame. */
const countedBytes = 256 * 1024

/** Number of frames above the rate limit that are answered with an error before the connection is closed. */
const warnings = 100

/** The services that all connections share. */
interface Shared {
  readonly chats: ChatsShape
  readonly run: (effect: Effect.Effect<void>) => Fiber.RuntimeFiber<void>
  /** Monotonic milliseconds. */
  readonly now: () => number
  /** Epoch milliseconds. */
  readonly wallClock: () => number
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

/** One request of a connection: the stream of a turn. */
class Request implements Sink {
  private sequence = 0
  private isOver = false
  readonly follower: Follower
  /** The turn that it follows. */
  readonly turn = Deferred.unsafeMake<string, ApiError>(FiberId.none)

  constructor(
    readonly id: string,
    readonly chatId: string,
    tenant: string,
    clients: ChatsShape["clients"],
    private readonly connection: Connection,
    private readonly onEnd: (request: Request) => void
  ) {
    this.follower = new Follower(this, tenant, clients)
  }

  get hasRoom(): boolean {
    return this.connection.hasRoom && !this.isOver
  }

  get hasEnded(): boolean {
    return this.isOver
  }

  send(chunks: ReadonlyArray<string>): void {
    const id = JSON.stringify(this.id)
    const frames = chunks.map(chunk =>
      Buffer.from(`{"type":"chunk","requestId":${id},"sequence":${this.sequence++},"chunk":${chunk}}`)
    )
    this.connection.sendFrame(textFrames(frames))
  }

  answer(type: "start" | "end" | "no-active"): void {
    this.connection.send(JSON.stringify({ type, requestId: this.id }))
    if (type !== "start") this.end()
  }

  done(): void {
    this.answer("end")
  }

  fail(errorText: string): void {
    if (this.isOver) return
    this.connection.send(JSON.stringify({ type: "error", requestId: this.id, errorText }))
    this.end()
  }

  /** Ends it without an answer. What the client has sent is carried out. */
  end(): void {
    if (this.isOver) return
    this.isOver = true
    this.follower.end()
    this.onEnd(this)
  }
}

/** The connection of one client. It has no fiber. */
class ChatConnection implements Handler {
  private readonly requests = new Map<string, Request>()
  /** The turns that are about to be stopped, by chat. */
  private readonly stopping = new Map<string, Fiber.RuntimeFiber<void>>()
  private readonly frames: TokenBucket

  constructor(
    private readonly connection: Connection,
    private readonly identity: Identity,
    private readonly agentType: string,
    private readonly slot: Slot,
    private readonly shared: Shared
  ) {
    this.frames = new TokenBucket(messagesPerSecond, messagesPerSecond, shared.now())
  }

  get tenant(): string {
    return this.identity.tenant
  }

  onOpen(): void {
    this.slot.offer({ onReclaim: () => this.close(closeCodes.rateLimited) })
  }

  onBlocked(): void {
    this.connection.pause()
  }

  onRoom(): void {
    this.connection.resume()
    for (const request of [...this.requests.values()]) {
      if (!this.connection.hasRoom) return
      // The next time it is the last one.
      if (this.requests.delete(request.id)) this.requests.set(request.id, request)
      request.follower.onRoom()
    }
  }

  onTick(): void {
    const { expiresAt } = this.identity
    if (expiresAt === undefined || this.shared.wallClock() < expiresAt) return
    // The package takes any end of a connection for a failure of the network, and resumes.
    for (const request of [...this.requests.values()]) request.fail(hasExpired)
    this.close(closeCodes.tokenExpired)
  }

  onControl(): void {
    const taken = this.take(0)
    if (!taken.taken && taken.refusals > warnings) this.close(closeCodes.rateLimited)
  }

  onClosing(): void {
    for (const request of [...this.requests.values()]) request.end()
  }

  onClosed(): void {
    this.onClosing()
    this.slot.release()
  }

  onMessage(data: Buffer, isBinary: boolean): void {
    if (isBinary) return this.close(closeCodes.protocol)
    const taken = this.take(data.length)
    if (!taken.taken && taken.refusals > warnings) return this.close(closeCodes.rateLimited)
    const decoded = decode(data.toString("utf8"))
    if (Either.isLeft(decoded)) {
      const { error, requestId } = decoded.left
      return requestId === undefined ? this.close(closeCodes.protocol) : this.refuse(requestId, error)
    }
    const frame = decoded.right
    if (frame.type === "abort") return this.abort(frame.requestId)
    const { size } = this.requests
    if (!taken.taken) return this.refuse(frame.requestId, `More than ${messagesPerSecond} frames in a second`)
    if (size >= requestsInFlight) return this.refuse(frame.requestId, `${size} requests are in progress`)
    if (this.requests.has(frame.requestId)) return this.refuse(frame.requestId, "The requestId is in use")
    this.begin(frame)
  }

  /** Counts a frame. To parse a large one takes long, so that it counts as several. */
  private take(bytes: number): ReturnType<TokenBucket["take"]> {
    const now = this.shared.now()
    let taken = this.frames.take(now)
    for (let left = bytes - countedBytes; left > 0 && taken.taken; left -= countedBytes) taken = this.frames.take(now)
    return taken
  }

  private begin(frame: Exclude<ChatFrame, { readonly type: "abort" }>): void {
    const { chats, run } = this.shared
    const { actor, tenant } = this.identity
    const caller = { tenant, actor }
    const chat = this.chatOf(frame.id)
    const scope = Effect.runSync(Scope.make())
    const request = new Request(frame.requestId, frame.id, tenant, chats.clients, this.connection, ended => {
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
        const subscribed = chats.clients.sessions.subscribe(caller, sessionId, request.follower.feed)
        const subscription = yield* Effect.mapError(subscribed, errorOf)
        const beginning = yield* chats.begin(subscription, target)
        if (frame.type === "resume") request.answer("start")
        request.follower.begin(subscription, beginning)
      })
    const noTurn = Effect.sync(() => request.answer("no-active"))
    run(
      found.pipe(
        Effect.tapError(error => Deferred.fail(request.turn, error)),
        Effect.flatMap(Option.match({ onNone: () => noTurn, onSome: follow })),
        Effect.catchAll(({ error }) => Effect.sync(() => request.fail(error))),
        Effect.catchAllDefect(defect => {
          request.fail("Internal error")
          return Effect.logError("A request of a chat has failed", defect)
        }),
        Scope.extend(scope),
        Effect.annotateLogs({ tenant, actor })
      )
    )
  }

  private chatOf(id: string): Chat {
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
    this.connection.send(JSON.stringify({ type: "error", requestId, errorText }))
  }

  private close({ code, name }: CloseCode): void {
    this.connection.close({ code, reason: name })
  }
}

type Connect = (handshake: Parameters<Handshakes["identify"]>[0], agentType: string) => Effect.Effect<Upgrade, ApiError>

/** Accepts clients until the scope closes. */
export const make = (
  settings: Settings
): Effect.Effect<Connect, never, Chats | Authentication | DrainingSignal | Scope.Scope> =>
  Effect.gen(function* () {
    const chats = yield* Chats
    const clock = yield* Effect.clock
    const run = yield* makeRunner
    const handshakes = yield* Handshakes.make(settings.connections)
    const { unsentBytes } = settings
    // A frame has the names of its members in addition to what a body has.
    const connections = yield* connectionSet({ messageBytes: historyLimits.bytes + 1024, unsentBytes })
    const wallClock = () => clock.unsafeCurrentTimeMillis()
    const shared: Shared = { chats, run, now: connections.now, wallClock }
    return (handshake, agentType) =>
      Effect.map(handshakes.identify(handshake), identity => ({
        connections,
        accept: acceptBy(chats.clients.takeSlot, identity.tenant, (connection, slot) => {
          return new ChatConnection(connection, identity, agentType, slot, shared)
        })
      }))
  })
