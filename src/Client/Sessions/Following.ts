/** The events of one session over HTTP, by consecutive event streams. */
import { ConnectionFailed, Gone, RequestRefused, textOf } from "../Errors.ts"
import { parse, type Requests } from "../Requests.ts"
import type { Position } from "../SessionModel.ts"
import type { Retries } from "../Time.ts"
import { type EventPage, firstOffset, offsetOf, readPages } from "./EventPages.ts"
import type { LinkListener } from "./Link.ts"
import type { AnswerOf, RequestFrame } from "./Requests.ts"
import { pathOf } from "./Routes.ts"

/** The gateway, as a subscription uses it. */
export interface Gateway {
  readonly requests: Requests
  readonly path: string
  readonly session: (sessionId: string, signal: AbortSignal) => Promise<AnswerOf<"session">["session"]>
  readonly listener: LinkListener["subscriptions"]
  /** Called when a stream brings something. */
  readonly onReached: () => void
}

/** A stream that is empty and ends before this time, in milliseconds, has failed. */
const shortestStreamMs = 1000

const isPosition = ({ epoch, seq }: Position): boolean => typeof epoch === "string" && Number.isSafeInteger(seq)

/** A subscription. */
export class Following {
  /** Where the next stream begins; absent before the conversation is read. */
  #offset: string | undefined
  #conversation: AnswerOf<"conversation"> | undefined
  /** The epoch of the answer; absent before it. */
  #epoch: string | undefined

  constructor(
    private readonly gateway: Gateway,
    private readonly request: Extract<RequestFrame, { type: "subscribe" }>,
    private readonly signal: AbortSignal,
    private readonly answer: (answer: AnswerOf<"subscribed">) => void
  ) {
    this.#offset = this.#beginning
  }

  get isAnswered(): boolean {
    return this.#epoch !== undefined
  }

  /** Reads consecutive streams. Fails if one cannot be read, or the session is deleted. It can be called again. */
  async run(retries: Retries): Promise<never> {
    const { onReached, path, requests } = this.gateway
    for (;;) {
      const startedAt = requests.clock.now()
      this.#offset ??= await this.#readConversation()
      const offset = this.#offset
      try {
        for await (const page of readPages(requests, path + pathOf(this.request.sessionId), offset, this.signal)) {
          retries.accepted()
          onReached()
          await this.#onPage(page)
        }
      } catch (error) {
        if (!(error instanceof Gone) || offset === firstOffset) throw error
        // Events after the offset are no longer kept, or the history was replaced. The readers say what they need.
        if (this.isAnswered) throw new RequestRefused(error.message, "conflict", true, error.requestId ?? "")
        this.#offset = this.request.fold === true ? undefined : firstOffset
        continue
      }
      if (this.#offset === offset && requests.clock.now() - startedAt < shortestStreamMs) {
        throw new ConnectionFailed("The event stream has ended at once", false)
      }
    }
  }

  get #beginning(): string | undefined {
    const { afterSeq: seq = 0, epoch, fold } = this.request
    if (fold === true) return undefined
    return epoch === undefined ? firstOffset : offsetOf({ epoch, seq })
  }

  /** Reads the conversation. Returns the offset after it. */
  async #readConversation(): Promise<string> {
    const { path, requests } = this.gateway
    const { sessionId } = this.request
    const text = await requests.ask({ path: `${path}${pathOf(sessionId)}/conversation` }, this.signal, textOf)
    const position = parse<Position>(text, isPosition, JSON)
    if (position === undefined) throw new ConnectionFailed("The conversation is not what the gateway sends", false)
    const { epoch, seq } = position
    this.#conversation = { type: "conversation", sessionId, epoch, seq, index: 0, last: true, text }
    return offsetOf(position)
  }

  async #onPage({ epoch, eventBytes, events, isClosed, offset }: EventPage): Promise<void> {
    const { listener } = this.gateway
    if (!this.isAnswered) await this.#begin(epoch)
    if (epoch !== this.#epoch) throw new RequestRefused("The history has been replaced", "conflict", true, "")
    for (const event of events) {
      // A reader may have ended the subscription.
      this.signal.throwIfAborted()
      listener.onEvent(event, eventBytes)
    }
    this.signal.throwIfAborted()
    this.#offset = offset
    if (isClosed) throw new RequestRefused("The session was deleted", "not_found", false, "")
  }

  /** Answers the subscription. */
  async #begin(epoch: string): Promise<void> {
    const { listener, session: get } = this.gateway
    const session = await get(this.request.sessionId, this.signal)
    if (session.epoch !== epoch) throw new ConnectionFailed("The history has been replaced", false)
    this.#epoch = epoch
    const recovered = this.#offset !== firstOffset
    this.answer({ type: "subscribed", id: "", session, epoch, headSeq: session.headSeq, recovered })
    if (this.#conversation !== undefined && !this.signal.aborted) listener.onConversation(this.#conversation)
    this.#conversation = undefined
  }
}
