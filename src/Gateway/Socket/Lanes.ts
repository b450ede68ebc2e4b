/** Work that must be done in order, with what happens to it when work before it fails. */
export interface Item<E> {
  /** Begins the work, and calls back at its end. */
  readonly begin: (onEnd: (failure: E | undefined) => void) => void
  /** Whether it makes no sense once work before it has failed in a way that spoils what follows. */
  readonly isBound: boolean
  /** Called in place of the work when it is not to be done any more. */
  readonly abandon: (failure: E) => void
}

/**
 * What one client asks of each session in order, one thing at a time: a message must not pass the one before it. What
 * is bound to a failure before it fails with it, as a message makes little sense after one that was lost.
 */
export class Lanes<E> {
  private readonly lanes = new Map<string, Array<Item<E>>>()

  /** Puts work behind what is there. */
  add(lane: string, item: Item<E>): void {
    const waiting = this.lanes.get(lane)
    if (waiting !== undefined) {
      waiting.push(item)
      return
    }
    this.lanes.set(lane, [])
    this.run(lane, item)
  }

  /** Gives up what waits in a lane; what has begun goes on. */
  abandon(lane: string, failure: E): void {
    for (const item of this.lanes.get(lane)?.splice(0) ?? []) item.abandon(failure)
  }

  private run(lane: string, item: Item<E>): void {
    item.begin(failure => {
      const waiting = this.lanes.get(lane)
      if (failure !== undefined && waiting !== undefined) {
        const spoilt = waiting.filter(({ isBound }) => isBound)
        waiting.splice(0, waiting.length, ...waiting.filter(({ isBound }) => !isBound))
        for (const item of spoilt) item.abandon(failure)
      }
      const next = waiting?.shift()
      if (next === undefined) this.lanes.delete(lane)
      else this.run(lane, next)
    })
  }
}
