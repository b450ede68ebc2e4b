/** The sessions of this node. */
import { Effect } from "effect"

/** The sessions that the node owns to its knowledge, each with its fencing token. */
export class OwnedSessions {
  private readonly tokens = new Map<string, number>()
  private readonly lost = new Set<string>()
  private readonly hasLost = Effect.unsafeMakeLatch(false)

  /** @param onLost called with each session that another node has taken */
  constructor(private readonly onLost: () => void = () => {}) {}

  get size(): number {
    return this.tokens.size
  }

  readonly tokenOf = (session: string): number | undefined => this.tokens.get(session)

  sessions(): ReadonlyArray<string> {
    return [...this.tokens.keys()]
  }

  add(session: string, token: number): void {
    this.lost.delete(session)
    this.tokens.set(session, token)
  }

  /** The node has given the session up itself. */
  remove(session: string): void {
    this.lost.delete(session)
    this.tokens.delete(session)
  }

  /** Another node has taken the session. */
  lose(session: string, token = this.tokens.get(session)): void {
    if (token === undefined || this.tokens.get(session) !== token) return
    this.tokens.delete(session)
    this.lost.add(session)
    this.hasLost.unsafeOpen()
    this.onLost()
  }

  /** Waits until others have taken sessions, and returns those that it has not returned before. */
  readonly takeLost: Effect.Effect<ReadonlyArray<string>> = Effect.repeat(
    Effect.zipRight(
      this.hasLost.await,
      Effect.sync(() => {
        this.hasLost.unsafeClose()
        const all = [...this.lost]
        this.lost.clear()
        return all
      })
    ),
    // This node may own them again.
    { until: all => all.length > 0 }
  )
}
