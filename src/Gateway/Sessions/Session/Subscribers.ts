/**
 * The subscribers of one session, and what they read of its stored events.
 */
import { type Context, Effect, Option } from "effect"
import type { History, SessionEvents, StoredEvent } from "../../SessionEvents.ts"
import type { Frame, Subscriber, Subscription } from "../../Sessions.ts"

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

const typeOf = /^\{"type":"([a-z_]+)"/

/** Stored events as frames. */
export const toFrames = (stored: ReadonlyArray<StoredEvent>): ReadonlyArray<Frame> =>
  stored.map(({ seq, text }) => ({ seq, type: typeOf.exec(text)?.[1] ?? "", data: Buffer.from(text) }))

/**
 * Reads pages of one history of a session. If the history was replaced, or ends before the position, `onLost` is called
 * and no events are returned.
 */
export const pagesOf =
  (
    events: Pick<Context.Tag.Service<SessionEvents>, "read">,
    session: string,
    { epoch, headSeq }: Pick<History, "epoch" | "headSeq">,
    onLost: () => void
  ): Subscription["read"] =>
  (after, limit) =>
    Effect.map(events.read(session, after, limit), page => {
      if (Option.isSome(page)) {
        const { events, history } = page.value
        if (history.epoch === epoch && history.headSeq >= after) {
          return { frames: toFrames(events), trimmedSeq: history.trimmedSeq }
        }
        onLost()
      }
      return { frames: [], trimmedSeq: headSeq }
    })
