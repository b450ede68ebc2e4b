/** The events of an instance that wait for the session, with back-pressure. */
import { Effect, Exit } from "effect"
import * as Direct from "../../base/Direct.ts"
import { Inbox } from "../../base/Inbox.ts"
import { type Received, type Taken, Undelivered } from "../AgentPlatform.ts"
import type { UpstreamFailure } from "../Resilience/UpstreamFailure.ts"

/**
 * Maximum number of events that wait to be consumed, in addition to frames that wait in the socket. As all of them are
 * consumed at once, an event counts once for each of its {@link eventUnit} characters.
 */
const waitingEvents = 64
const eventUnit = 4096

const weigh = (received: Received): number =>
  received instanceof Undelivered ? 1 : Math.max(1, (received.size ?? 0) / eventUnit)

/** What waits to be consumed, from a single producer. */
export class EventQueue {
  private weight = 0
  private readonly room = Effect.unsafeMakeLatch(true)
  private readonly waiting = new Inbox<Received, UpstreamFailure>()

  /** Waits until there is room, or the queue has ended. This holds until the next offer. The effect is direct. */
  readonly awaitRoom: Effect.Effect<void> = Direct.suspend(() =>
    this.weight < waitingEvents ? Exit.void : this.room.await
  )

  /** Adds a value, even without room. Does nothing after the end. */
  offer(received: Received): void {
    if (!this.waiting.offer(received)) return
    this.weight += weigh(received)
    if (this.weight >= waitingEvents) this.room.unsafeClose()
  }

  /** Ends the queue, once. A failure follows what waits. */
  end(exit: Exit.Exit<void, UpstreamFailure>): void {
    this.waiting.end(exit)
    this.room.unsafeOpen()
  }

  /** Takes all that waits, or waits for the next value. The effect is direct. */
  readonly take: Effect.Effect<Taken, UpstreamFailure> = Direct.map(this.waiting.takeAll, taken => {
    if (this.weight >= waitingEvents) this.room.unsafeOpen()
    this.weight = 0
    return taken
  })
}
