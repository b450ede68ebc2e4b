import type { Duplex } from "node:stream"
import { type Context, Effect, Either, type Fiber, FiberId, type Tracer } from "effect"
import type { RawData, WebSocket } from "ws"
import { type Account, accountOf } from "../../Http/Server/Unsent.ts"
import type { DebugLog } from "../../Observability/DebugLog.ts"
import * as FrameSummary from "../../Observability/FrameSummary.ts"
import type { LogValue } from "../../Observability/LogValue.ts"
import type { Identity } from "../Authentication.ts"
import type { Claim } from "../FairPool.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import { type Answer, errorAnswer } from "../Protocol/Answer.ts"
import { type CloseCode, closeCodes } from "../Protocol/CloseCode.ts"
import { decodeRequest, encode, ProtocolError } from "../Protocol/Codec.ts"
import { messagesPerSecond, requestsInFlight } from "../Protocol/Limits.ts"
import type { Request } from "../Protocol/Request.ts"
import type { Sessions } from "../Sessions.ts"
import { Bucket } from "./Bucket.ts"
import { defect, type Failure, failureOf, Refused, type RequestError } from "./Failures.ts"
import type { FileCalls } from "./FileCalls.ts"
import { Lanes } from "./Lanes.ts"
import { fileCalls, stall, timing, warnings } from "./Limits.ts"
import { Outbox } from "./Outbox.ts"
import type { Replays } from "./Replays.ts"
import { type Call, carryOut } from "./Requests.ts"
import { Subscriptions } from "./Subscriptions.ts"

/** What all connections share. */
export interface Shared {
  readonly sessions: Context.Tag.Service<Sessions>
  readonly traceId: Effect.Effect<string>
  readonly replays: Replays
  readonly unsentBytes: number
  /** Epoch milliseconds, for timestamps and the expiry of credentials. */
  readonly now: () => number
  /** Monotonic milliseconds, for all that waits or is measured. */
  readonly monotonic: () => number
  readonly run: (effect: Effect.Effect<void>) => Fiber.RuntimeFiber<void>
  /** The memory of all connections' file calls. */
  readonly files: FileCalls
  /** Where frames are shown, if they are. */
  readonly debug: DebugLog | undefined
}

/** Whose connection it is, and the trace that it belongs to, where its handshake named one. */
export interface Client {
  readonly identity: Identity
  readonly parent: Tracer.AnySpan | undefined
}

/**
 * Error answers of a connection that are logged above level debug, so that the trace id in each can be looked up: so
 * many at once, and so many a second. A client that makes mistakes on purpose must not fill the log.
 */
const reported = { atOnce: 20, perSecond: 1 }

/** Whether a request is carried out behind what the client has said to the session before. */
const isInOrder = (request: Call): boolean => {
  switch (request.type) {
    case "send_message":
    case "answer":
      return true
    // Whoever names the turn has been told of it, and need not wait for messages behind it.
    case "interrupt_turn":
      return request.turnId === undefined
    default:
      return false
  }
}
const stopping: ReadonlySet<Request["type"]> = new Set(["stop_session", "delete_session"])
const filing: ReadonlySet<Request["type"]> = new Set(["list_files", "read_file", "file_history", "file_at_iteration"])

/** Characters of a frame that is read for its id alone. */
const smallFrame = 16_384

const unsendable = new Refused({
  code: "rate_limited",
  message: "The answer was given up, as others needed the memory of what this tenant's clients do not read"
})

const stopped: Failure = { code: "session_not_active", message: "The session was stopped meanwhile", retryable: true }

/** The client's text of a message, whichever way `ws` hands it over. */
const textOf = (data: RawData): string =>
  (Array.isArray(data) ? Buffer.concat(data) : Buffer.isBuffer(data) ? data : Buffer.from(data)).toString("utf8")

/** One client's connection, without a fiber of its own: work has one while it lasts. */
export class Connection {
  private readonly identity: Identity
  private readonly parent: Tracer.AnySpan | undefined
  private readonly reports: Bucket
  private readonly outbox: Outbox
  private readonly bucket: Bucket
  private readonly inFlight = new Map<string, Fiber.RuntimeFiber<void> | undefined>()
  private readonly subscriptions: Subscriptions
  private readonly lanes = new Lanes<Failure>()
  private readonly files = Effect.unsafeMakeSemaphore(fileCalls)
  private nextPing: number
  private awaitedSince: number | undefined
  private closingSince: number | undefined
  /** Messages that came while it closed. */
  private ignored = 0
  /** It closes because it is slow: it may take its time to read what is on its way, the close frame at the end. */
  private isSlow = false
  private readonly account: Account | undefined

  constructor(
    private readonly socket: WebSocket,
    wire: Duplex,
    client: Client,
    private readonly shared: Shared,
    onClosed: (connection: Connection) => void
  ) {
    const { identity, parent } = client
    this.identity = identity
    this.parent = parent
    const now = shared.monotonic()
    this.reports = new Bucket(reported.atOnce, reported.perSecond, now)
    this.nextPing = now + timing.heartbeat
    this.bucket = new Bucket(messagesPerSecond, messagesPerSecond, now)
    // While a client takes nothing, nothing is taken of it.
    this.outbox = new Outbox(socket, wire, shared.unsentBytes, shared.monotonic, isBlocked => {
      if (isBlocked) socket.pause()
      else socket.resume()
      this.awaitedSince = undefined
    })
    this.subscriptions = new Subscriptions(
      this.outbox,
      identity,
      shared,
      (answer, onSent) => this.answer(answer, onSent),
      () => this.close(closeCodes.slowConsumer)
    )
    this.account = accountOf(wire)
    if (this.account !== undefined) this.account.end = () => this.close(closeCodes.slowConsumer)
    const alive = (): void => {
      this.awaitedSince = undefined
    }
    socket.on("message", (data, isBinary) => {
      alive()
      this.onMessage(data, isBinary)
    })
    socket.on("ping", () => {
      alive()
      this.onPing()
    })
    socket.on("pong", alive)
    // What went wrong shows in the close code.
    socket.on("error", () => {})
    socket.on("close", () => {
      this.dispose()
      onClosed(this)
    })
  }

  /**
   * Pings, deadlines and the credential's end; to be called about once a second.
   *
   * @param now monotonic milliseconds
   * @param date epoch milliseconds
   */
  tick(now: number, date: number): void {
    const hasRead = this.outbox.look(now)
    if (this.closingSince !== undefined) {
      if (hasRead && this.isSlow) this.closingSince = now
      if (now - this.closingSince >= (this.isSlow ? timing.drain : timing.close)) this.socket.terminate()
      return
    }
    if (this.awaitedSince !== undefined) {
      // Its answer to a ping stands behind all that it has yet to read: as long as it reads, it is alive.
      if (hasRead) this.awaitedSince = now
      this.account?.watch()
    }
    const { expiresAt } = this.identity
    const { blockedSince } = this.outbox
    if (expiresAt !== undefined && date >= expiresAt) this.close(closeCodes.tokenExpired)
    else if (blockedSince !== undefined) {
      if (now - blockedSince >= timing.drain) this.close(closeCodes.slowConsumer)
    } else if (this.awaitedSince !== undefined && now - this.awaitedSince >= timing.answer) this.close(closeCodes.idle)
    else if (now >= this.nextPing) {
      this.nextPing = now + timing.heartbeat
      this.awaitedSince ??= now
      this.socket.ping()
    }
  }

  /** Says why, and ends the connection. */
  close({ code, name }: CloseCode): void {
    if (this.closingSince !== undefined) return
    this.closingSince = this.shared.monotonic()
    this.isSlow = code === closeCodes.slowConsumer.code || this.outbox.blockedSince !== undefined
    this.dispose()
    this.socket.close(code, name)
    // A paused socket would never read the other side's answer.
    this.socket.resume()
  }

  /** Ends the connection at once. */
  terminate(): void {
    this.socket.terminate()
  }

  private dispose(): void {
    this.subscriptions.endAll()
    for (const fiber of this.inFlight.values()) fiber?.unsafeInterruptAsFork(FiberId.none)
    this.inFlight.clear()
  }

  /** A client that is told to go and sends on and on is not read any more. */
  private ignore(): void {
    if (++this.ignored > messagesPerSecond) this.socket.pause()
  }

  /** Pings of the protocol itself are answered by `ws`, and cost as much as small messages. */
  private onPing(): void {
    if (this.closingSince !== undefined) return this.ignore()
    const taken = this.bucket.take(this.shared.monotonic())
    if (!taken.taken && taken.refusals > warnings) this.close(closeCodes.rateLimited)
  }

  private onMessage(data: RawData, isBinary: boolean): void {
    if (this.closingSince !== undefined) return this.ignore()
    if (isBinary) return this.close(closeCodes.protocol)
    const taken = this.bucket.take(this.shared.monotonic())
    if (!taken.taken && taken.refusals > warnings) return this.close(closeCodes.rateLimited)
    const text = textOf(data)
    // One frame too many is not worth reading a large one for its id.
    const decoded =
      taken.taken || text.length <= smallFrame
        ? decodeRequest(text)
        : Either.left(new ProtocolError({ code: "rate_limited", message: "" }))
    GatewayMetrics.received.increment(Either.isRight(decoded) ? decoded.right.type : GatewayMetrics.invalid)
    const frame = this.shared.debug === undefined ? undefined : FrameSummary.ofText(text)
    if (!taken.taken) {
      const message = `More than ${messagesPerSecond} messages in a second`
      return this.fail(Either.merge(decoded).id, { code: "rate_limited", message }, frame)
    }
    if (Either.isRight(decoded)) this.onRequest(decoded.right, frame)
    else this.fail(decoded.left.id, decoded.left, frame)
  }

  private onRequest(request: Request, frame: LogValue | undefined): void {
    const { id } = request
    if (this.inFlight.has(id)) {
      return this.fail(id, { code: "conflict", message: "A request of this id has not been answered yet" }, frame)
    }
    if (this.inFlight.size >= requestsInFlight) {
      const message = `${this.inFlight.size} requests have not been answered yet; the limit is ${requestsInFlight}`
      return this.fail(id, { code: "rate_limited", message }, frame)
    }
    switch (request.type) {
      case "ping":
        if (frame !== undefined) return this.start(request, this.pong(id), frame)
        return this.outbox.send("pong", encode({ type: "pong", id, timestamp: this.shared.now() }))
      case "subscribe":
        return this.inLane(`feed ${request.sessionId}`, request, () => this.subscriptions.subscribe(request), frame)
      case "unsubscribe":
        return this.inLane(`feed ${request.sessionId}`, request, () => this.subscriptions.unsubscribe(request), frame)
      default:
        return this.call(request, frame)
    }
  }

  private pong(id: string): Effect.Effect<void> {
    return Effect.suspend(() => this.answer({ type: "pong", id, timestamp: this.shared.now() }))
  }

  private call(request: Call, frame: LogValue | undefined): void {
    const { type } = request
    if (filing.has(type)) return this.start(request, this.file(request), frame)
    const work = Effect.flatMap(carryOut(this.shared.sessions, this.identity, request), answer => this.answer(answer))
    if ("sessionId" in request) {
      const lane = `talk ${request.sessionId}`
      if (isInOrder(request)) return this.inLane(lane, request, () => work, frame, type === "send_message")
      // Whoever stops a session means what waits to be said to it, too.
      if (stopping.has(type)) this.lanes.abandon(lane, stopped)
    }
    this.start(request, work, frame)
  }

  private file(request: Call): Effect.Effect<void, RequestError | Refused> {
    const { files, sessions } = this.shared
    const { tenant } = this.identity
    const work = files.use(tenant, request.type, claim =>
      Effect.flatMap(carryOut(sessions, this.identity, request), answer =>
        this.shared.debug === undefined
          ? this.answerFile(answer, claim)
          : Effect.zipRight(this.sending(answer), this.answerFile(answer, claim))
      )
    )
    return this.files.withPermits(1)(work)
  }

  /** Sends a file call's answer. Its memory counts until it has left, also where nobody waits for that any more. */
  private answerFile(answer: Answer, claim: Claim): Effect.Effect<void, Refused> {
    return Effect.async<void, Refused>(resume => {
      const { files } = this.shared
      const text = encode(answer)
      if (!claim.resize(Buffer.byteLength(text))) return resume(Effect.fail(unsendable))
      let leave = (): void => {}
      const forget = files.hold(claim, {
        isStalled: () => true,
        giveUp: () => {
          abandon()
          resume(Effect.fail(unsendable))
        }
      })
      const abandon = (): void => {
        forget()
        leave()
      }
      leave = this.outbox.whenRoom(() => {
        forget()
        const kept = claim.detach()
        const sent = files.hold(kept, {
          isStalled: () => this.isStalled(),
          giveUp: () => this.socket.terminate()
        })
        this.outbox.send(answer.type, text, () => {
          sent()
          kept.release()
          resume(Effect.void)
        })
      })
      return Effect.sync(abandon)
    })
  }

  /** Whether the client has not read for so long that others may have the memory of what it was sent. */
  private isStalled(): boolean {
    const { blockedSince } = this.outbox
    return blockedSince !== undefined && this.shared.monotonic() - blockedSince >= stall
  }

  /** Does something behind what was asked for before. The failure of a message takes along the messages behind it. */
  private inLane(
    lane: string,
    request: Request,
    work: () => Effect.Effect<void, RequestError | Refused>,
    frame: LogValue | undefined,
    isMessage = false
  ): void {
    const { id } = request
    this.inFlight.set(id, undefined)
    this.lanes.add(lane, {
      begin: onEnd => {
        if (!this.inFlight.has(id)) return onEnd(undefined)
        this.start(request, work(), frame, failure => onEnd(isMessage ? failure : undefined))
      },
      isBound: isMessage,
      abandon: failure => {
        this.inFlight.delete(id)
        this.fail(id, failure, frame)
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
    const told = (frame === undefined ? work : Effect.zipRight(this.received(frame), work)).pipe(
      Effect.catchAll(error => {
        failed = error instanceof Refused ? error.failure : failureOf(error)
        return this.answerFailure(id, failed)
      }),
      Effect.catchAllDefect(error => {
        failed = defect
        return Effect.zipRight(Effect.logError("A request of a client failed", error), this.answerFailure(id, defect))
      })
    )
    this.inFlight.set(id, undefined)
    const fiber = this.shared.run(this.inSpan(type, told))
    if (this.inFlight.has(id)) this.inFlight.set(id, fiber)
    fiber.addObserver(() => {
      if (this.inFlight.get(id) === fiber) this.inFlight.delete(id)
      onEnd(failed)
    })
  }

  /** Puts the work for a request into a span, in the trace of the handshake where that named one. */
  private inSpan(type: string, work: Effect.Effect<void>): Effect.Effect<void> {
    const { actor, tenant } = this.identity
    return work.pipe(
      Effect.annotateLogs({ request: type, tenant, actor }),
      Effect.withSpan(`Gateway.${type}`, { kind: "server", parent: this.parent, attributes: { tenant } })
    )
  }

  private received(frame: LogValue): Effect.Effect<void> {
    return Effect.annotateLogs(Effect.logDebug("Received a frame of a client"), { frame })
  }

  /** Sends an answer once there is room, and waits until it is on its way. */
  private answer(answer: Answer, onSent: () => void = () => {}): Effect.Effect<void> {
    const sent = Effect.async<void>(resume => {
      const leave = this.outbox.whenRoom(() => {
        this.outbox.send(answer.type, encode(answer), () => resume(Effect.void))
        onSent()
      })
      return Effect.sync(leave)
    })
    return this.shared.debug === undefined ? sent : Effect.zipRight(this.sending(answer), sent)
  }

  private sending(answer: Answer): Effect.Effect<void> {
    return Effect.annotateLogs(Effect.logDebug("Sending a frame to a client"), { frame: FrameSummary.ofValue(answer) })
  }

  private answerFailure(id: string, failure: Failure): Effect.Effect<void> {
    return Effect.flatMap(this.report(failure), traceId =>
      this.answer(errorAnswer({ id, traceId, ...failure, retryable: failure.retryable }))
    )
  }

  /** Answers with an error that costs no more than the answer itself. */
  private fail(id: string | undefined, failure: Failure, frame: LogValue | undefined): void {
    const { code, message, retryable } = failure
    const answered = Effect.flatMap(this.report(failure), traceId => {
      const answer = errorAnswer({ id, code, message, traceId, retryable })
      const sent = Effect.sync(() => this.outbox.send("error", encode(answer)))
      return this.shared.debug === undefined ? sent : Effect.zipRight(this.sending(answer), sent)
    })
    const told = frame === undefined ? answered : Effect.zipRight(this.received(frame), answered)
    this.shared.run(this.inSpan(GatewayMetrics.invalid, told))
  }

  /** Logs that a request failed, under the trace id that the client is told. */
  private report({ code, message }: Failure): Effect.Effect<string> {
    return Effect.flatMap(this.shared.traceId, traceId => {
      const { taken } = this.reports.take(this.shared.monotonic())
      const line = "A client was answered with an error"
      return (taken ? Effect.logInfo(line) : Effect.logDebug(line)).pipe(
        Effect.annotateLogs({ traceId, code, reason: message }),
        Effect.as(traceId)
      )
    })
  }
}
