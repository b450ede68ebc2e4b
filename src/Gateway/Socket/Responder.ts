/** Sends events and answers to one client. */

import { Effect, type Fiber, type Tracer } from "effect"
import type { DebugLog } from "../../base/Observability/DebugLog.ts"
import type { LogValue } from "../../base/Observability/LogValue.ts"
import * as FrameSummary from "../../base/Observability/LogValue.ts"
import type { MetricTags } from "../../base/Observability/MetricTags.ts"
import { turnOf } from "../../base/Time/PacedWork.ts"
import { type Connection, textFrames } from "../../Http/WebSocket.ts"
import type { Identity } from "../Authentication.ts"
import { TokenBucket } from "../Clients/ClientSocket.ts"
import type { Outbox } from "../Clients/Feed.ts"
import type { Claim, FairPool } from "../FairPool.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import { type Answer, type AnswerOf, errorAnswer } from "../Protocol/Answer.ts"
import { encode } from "../Protocol.ts"
import { type Failure, Refused } from "../Requests.ts"
import type { Frame } from "../Sessions.ts"

/** Bytes of an event up to which a copy of it after the head of its frame costs less than a second write. */
const copied = 4096

/** The services and settings that the responders of all connections share. */
export interface Shared {
  readonly traceId: Effect.Effect<string>
  /** Monotonic milliseconds, for delays and durations. */
  readonly monotonic: () => number
  readonly run: (effect: Effect.Effect<void>) => Fiber.RuntimeFiber<void>
  /** The memory of all connections' file calls. */
  readonly files: FairPool
  /** Logs frames if `LOG_LEVEL` is debug. */
  readonly debug: DebugLog | undefined
  /** The tags of metrics. */
  readonly tags: MetricTags
}

/** The client of a connection, and the span in its handshake, if any. */
export interface Client {
  readonly identity: Identity
  readonly parent: Tracer.AnySpan | undefined
}

/**
 * Maximum number of error answers of a connection that are logged above level debug, to look up their trace ids. A client
 * that makes mistakes on purpose must not fill the log.
 */
const reported = { atOnce: 20, perSecond: 1 }

/** Milliseconds without a read after which the unsent file answers of a client may be dropped. */
const stall = 1_000

const unsendable = new Refused({
  code: "rate_limited",
  message: "The answer was dropped: this tenant's clients do not read, and others needed the memory"
})

/**
 * Sends events and answers to one client. Answers are recorded in spans and logs. Frames are queued in the connection
 * only: a caller with more to send waits until there is room.
 */
export class Responder implements Outbox {
  private readonly reports: TokenBucket
  private waiting: Array<() => void> = []

  constructor(
    private readonly connection: Connection,
    private readonly client: Client,
    private readonly shared: Shared
  ) {
    this.reports = new TokenBucket(reported.atOnce, reported.perSecond, shared.monotonic())
  }

  /** Whether there is room for more. */
  get hasRoom(): boolean {
    return this.connection.hasRoom
  }

  /** Sends a frame. The caller has checked that there is room, unless the frame is small. */
  send(type: string, data: string | Buffer, onSent?: () => void): void {
    if (!this.connection.isOpen) return
    GatewayMetrics.sent.increment(type, this.shared.tags)
    this.connection.send(data, onSent)
  }

  sendEvents(events: ReadonlyArray<Frame>): void {
    if (events.length === 1 && events[0]!.data.length > copied) return this.send(events[0]!.type, events[0]!.data)
    if (events.length === 0 || !this.connection.isOpen) return
    for (const { type } of events) GatewayMetrics.sent.increment(type, this.shared.tags)
    this.connection.sendFrame(textFrames(events.map(({ data }) => data)))
  }

  /** Calls back once there is room, and never if the connection ends first. Returns a function that stops waiting. */
  whenRoom(callback: () => void): () => void {
    if (this.hasRoom) {
      callback()
      return () => {}
    }
    this.waiting.push(callback)
    return () => {
      this.waiting = this.waiting.filter(other => other !== callback)
    }
  }

  /** Call this when there is room again. */
  onRoom(): void {
    while (this.waiting.length > 0 && this.hasRoom) this.waiting.shift()!()
  }

  /** Sends an answer once there is room, and waits until the operating system has taken it. */
  answer(answer: Answer, onSent: () => void = () => {}): Effect.Effect<void> {
    const sent = Effect.async<void>(resume => {
      const leave = this.whenRoom(() => {
        this.send(answer.type, encode(answer), () => resume(Effect.void))
        onSent()
      })
      return Effect.sync(leave)
    })
    return this.logged(answer, sent)
  }

  /** Sends the answer of a file call. Its memory is counted until it is sent, even if the caller is interrupted. */
  answerFile(answer: Answer, claim: Claim): Effect.Effect<void, Refused> {
    const sent = Effect.async<void, Refused>(resume => {
      const text = encode(answer)
      if (!claim.resize(Buffer.byteLength(text))) return resume(Effect.fail(unsendable))
      let leave = (): void => {}
      claim.offer({
        onReclaim: () => {
          leave()
          resume(Effect.fail(unsendable))
        }
      })
      leave = this.whenRoom(() => {
        const kept = claim.detach()
        kept.offer({ isReclaimable: () => this.isStalled(), onReclaim: () => this.connection.terminate() })
        this.send(answer.type, text, () => {
          kept.release()
          resume(Effect.void)
        })
      })
      return Effect.sync(() => leave())
    })
    return this.logged(answer, sent)
  }

  /**
   * Sends the frames of a conversation, each once there is room for it. The conversation counts as memory of the claim
   * until the last frame is queued. It may be reclaimed while the client reads nothing.
   *
   * @param bytes of the conversation
   */
  sendConversation(
    frames: Iterable<AnswerOf<"conversation">>,
    bytes: number,
    claim: Claim
  ): Effect.Effect<void, Refused> {
    return Effect.gen(this, function* () {
      if (!claim.resize(bytes)) return yield* Effect.fail(unsendable)
      claim.offer({ isReclaimable: () => this.isStalled(), onReclaim: () => this.connection.terminate() })
      for (const frame of frames) {
        yield* turnOf(frame.text.length)
        yield* Effect.async<void>(resume => {
          const leave = this.whenRoom(() => {
            this.send(frame.type, encode(frame))
            resume(Effect.void)
          })
          return Effect.sync(() => leave())
        })
      }
    })
  }

  answerFailure(id: string, failure: Failure): Effect.Effect<void> {
    return Effect.flatMap(this.report(failure), traceId =>
      this.answer(errorAnswer({ id, traceId, ...failure, retryable: failure.retryable }))
    )
  }

  /** Answers a request that is not carried out. It does not wait for room. */
  refuse(id: string | undefined, failure: Failure, frame: LogValue | undefined): void {
    const { code, message, retryable } = failure
    const answered = Effect.flatMap(this.report(failure), traceId => {
      const answer = errorAnswer({ id, code, message, traceId, retryable })
      return this.logged(
        answer,
        Effect.sync(() => this.send("error", encode(answer)))
      )
    })
    this.shared.run(this.inSpan(GatewayMetrics.invalid, answered, frame))
  }

  /** Wraps the work for a request in a span, in the trace of the handshake, if any. */
  inSpan(type: string, work: Effect.Effect<void>, frame: LogValue | undefined): Effect.Effect<void> {
    const { actor, tenant } = this.client.identity
    const logged =
      frame === undefined
        ? work
        : Effect.zipRight(Effect.annotateLogs(Effect.logDebug("Received a frame of a client"), { frame }), work)
    return logged.pipe(
      Effect.annotateLogs({ request: type, tenant, actor }),
      Effect.withSpan(`Gateway.${type}`, {
        kind: "server",
        parent: this.client.parent,
        attributes: { tenant },
        // The fibers of a session have the span that started it, and a stack keeps the connection in memory.
        captureStackTrace: false
      })
    )
  }

  private logged<E>(answer: Answer, sent: Effect.Effect<void, E>): Effect.Effect<void, E> {
    if (this.shared.debug === undefined) return sent
    const frame = FrameSummary.ofValue(answer)
    return Effect.zipRight(Effect.annotateLogs(Effect.logDebug("Sending a frame to a client"), { frame }), sent)
  }

  /** Whether the client has read nothing for so long that its unsent answers may be dropped. */
  private isStalled(): boolean {
    const { blockedSince } = this.connection
    return blockedSince !== undefined && this.shared.monotonic() - blockedSince >= stall
  }

  /** Logs that a request failed, with the trace id in the client's answer. */
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
