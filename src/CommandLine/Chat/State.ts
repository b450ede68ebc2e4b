import { Effect, Option } from "effect"
import type { EventBody } from "../../Gateway/Protocol.ts"
import { Changes } from "../../Simulator/Changes.ts"
import * as Requests from "./Requests.ts"

/** The state of a conversation. */
export class State {
  requests = Requests.nothing
  /** The number of failures, for the exit code. */
  failures = 0
  /** Whether the next line may be typed. */
  isReading = false
  /** Ids of messages of this client, which are on the screen already. */
  readonly #sent = new Set<string>()
  readonly #changes = new Changes()

  /** The prompt; `undefined` while a line is executed, or during a turn that does not wait for an answer. */
  get prompt(): string | undefined {
    const { open, running } = this.requests
    if (!this.isReading || (running.size > 0 && open.length === 0)) return undefined
    return open.length > 0 ? "answer> " : "> "
  }

  sent(clientMessageId: string): void {
    this.#sent.add(clientMessageId)
  }

  /** Applies an event. Returns whether it must be shown. */
  apply(event: EventBody): boolean {
    this.requests = Requests.advance(this.requests, event)
    return !(event.type === "turn_started" && this.#sent.delete(event.clientMessageId ?? ""))
  }

  /** Wakes {@link settled}, after the event was shown. */
  notify(): void {
    this.#changes.notify()
  }

  /** Waits until a turn has ended, or the agent waits for an answer. A failed turn is counted. */
  settled(turnId: string): Effect.Effect<void> {
    const end = () => {
      const { ended, open } = this.requests
      return ended.has(turnId) || open.length > 0 ? Option.some(ended.get(turnId)) : Option.none()
    }
    return Effect.map(this.#changes.until(end), end => {
      if (end === "turn_errored") this.failures++
    })
  }
}
