import type { Frame, Subscriber } from "../Sessions.ts"

/** The subscribers of one session. A subscriber that throws does not affect the others or the caller. */
export class Subscribers {
  private readonly all = new Set<Subscriber>()

  /** @param onDefect called with what a subscriber throws */
  constructor(private readonly onDefect: (defect: unknown) => void) {}

  get size(): number {
    return this.all.size
  }

  add(subscriber: Subscriber): void {
    this.all.add(subscriber)
  }

  delete(subscriber: Subscriber): void {
    this.all.delete(subscriber)
  }

  publish(frames: ReadonlyArray<Frame>): void {
    for (const subscriber of this.all) {
      try {
        subscriber.onFrames(frames)
      } catch (defect) {
        this.onDefect(defect)
        // It may lack these events, so it receives no later ones.
        this.all.delete(subscriber)
        this.notify(subscriber, subscriber => subscriber.onLost())
      }
    }
  }

  /** Removes all subscribers, runs `between`, and then notifies each of them. */
  end(notify: (subscriber: Subscriber) => void, between: () => void = () => {}): void {
    const ended = [...this.all]
    this.all.clear()
    between()
    for (const subscriber of ended) this.notify(subscriber, notify)
  }

  private notify(subscriber: Subscriber, notify: (subscriber: Subscriber) => void): void {
    try {
      notify(subscriber)
    } catch (defect) {
      this.onDefect(defect)
    }
  }
}
