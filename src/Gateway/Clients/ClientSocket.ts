/** What the WebSockets of all protocols have in common: a slot, a token that expires, and a limit of messages. */
import type { Connection, Handler } from "../../Http/WebSocket.ts"
import type { Identity } from "../Authentication.ts"
import type { Claim } from "../FairPool.ts"
import { type CloseCode, closeCodes } from "../Protocol/Codes.ts"
import { messagesPerSecond } from "../Protocol/Limits.ts"

/** The slot of a connection. */
export type Slot = Pick<Claim, "offer" | "release">

export class TokenBucket {
  private tokens: number
  private refusals = 0

  constructor(
    private readonly capacity: number,
    private readonly perSecond: number,
    private at: number
  ) {
    this.tokens = capacity
  }

  /** Takes a token, or returns how many calls were refused since the bucket was last full. */
  take(now: number): { readonly taken: true } | { readonly taken: false; readonly refusals: number } {
    this.tokens = Math.min(this.capacity, this.tokens + ((now - this.at) * this.perSecond) / 1000)
    this.at = now
    if (this.tokens >= this.capacity - 1) this.refusals = 0
    if (this.tokens >= 1) {
      this.tokens--
      return { taken: true }
    }
    return { taken: false, refusals: ++this.refusals }
  }
}

/** Number of messages above the rate limit that are answered with an error before the connection is closed. */
const warnings = 100

/** The clocks of connections. */
export interface Clocks {
  /** Epoch milliseconds, for timestamps and the expiry of credentials. */
  readonly now: () => number
  /** Monotonic milliseconds, for delays and durations. */
  readonly monotonic: () => number
}

/** The connection of one client. It has no fiber. */
export abstract class ClientSocket implements Handler {
  private readonly messages: TokenBucket

  constructor(
    protected readonly connection: Connection,
    protected readonly identity: Identity,
    private readonly slot: Slot,
    private readonly clocks: Clocks,
    /** Bytes of a message that count as one. To parse a large one takes long. */
    private readonly countedBytes = Number.POSITIVE_INFINITY
  ) {
    this.messages = new TokenBucket(messagesPerSecond, messagesPerSecond, clocks.monotonic())
  }

  /** Handles a text, which has to be refused if there are too many. */
  protected abstract onText(text: string, isTooMany: boolean): void
  abstract onRoom(): void
  abstract onClosing(): void

  get tenant(): string {
    return this.identity.tenant
  }

  onOpen(): void {
    // Another tenant may get the slot.
    this.slot.offer({ onReclaim: () => this.close(closeCodes.rateLimited) })
  }

  onBlocked(): void {
    // Messages are read only while the client reads.
    this.connection.pause()
  }

  onTick(): void {
    const { expiresAt } = this.identity
    if (expiresAt === undefined || this.clocks.now() < expiresAt) return
    this.onExpired()
    this.close(closeCodes.tokenExpired)
  }

  /** Called before the connection is closed because its token has expired. */
  protected onExpired(): void {}

  onClosed(): void {
    this.onClosing()
    this.slot.release()
  }

  /** Pings and pongs count as messages. */
  onControl(): void {
    this.count(1)
  }

  onMessage(data: Buffer, isBinary: boolean): void {
    if (isBinary) return this.close(closeCodes.protocol)
    const isWithin = this.count(Math.ceil(data.length / this.countedBytes))
    if (isWithin !== undefined) this.onText(data.toString("utf8"), !isWithin)
  }

  /** Whether there are not too many messages; undefined if the connection is closed because of them. */
  private count(messages: number): boolean | undefined {
    const now = this.clocks.monotonic()
    for (let counted = 0; counted < Math.max(1, messages); counted++) {
      const taken = this.messages.take(now)
      if (taken.taken) continue
      if (taken.refusals <= warnings) return false
      return void this.close(closeCodes.rateLimited)
    }
    return true
  }

  protected close({ code, name }: CloseCode): void {
    this.connection.close({ code, reason: name })
  }
}
