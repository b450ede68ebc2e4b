import type { Frame, Subscriber } from "../Sessions.ts"

/** The subscribers of one session. One that throws does not affect the others, or the caller. */
export class Subscribers {
  private readonly all = new Set<Subscriber>()

  /** @param onDefect called with what a subscriber has thrown */
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
        // It may lack these events, and is given no later ones.
        this.all.delete(subscriber)
        this.tell(subscriber, subscriber => subscriber.onLost())
      }
    }
  }

  /** Removes all, and tells each of them; `between` runs before they are told. */
  end(tell: (subscriber: Subscriber) => void, between: () => void = () => {}): void {
    const ended = [...this.all]
    this.all.clear()
    between()
    for (const subscriber of ended) this.tell(subscriber, tell)
  }

  private tell(subscriber: Subscriber, tell: (subscriber: Subscriber) => void): void {
    try {
      tell(subscriber)
    } catch (defect) {
      this.onDefect(defect)
    }
  }
}
