/** Things that wait for their turn: first come, first served for each tenant, and the tenants one after the other. */
export class RoundRobin<A> {
  private readonly queues = new Map<string, Set<A>>()

  get isEmpty(): boolean {
    return this.queues.size === 0
  }

  /** Puts something behind what its tenant has; what waits already keeps its place. */
  add(tenant: string, item: A): void {
    const queue = this.queues.get(tenant)
    if (queue === undefined) this.queues.set(tenant, new Set([item]))
    else queue.add(item)
  }

  /** Takes what has its turn, of the tenants that may have one. */
  next(mayHaveTurn: (tenant: string) => boolean = () => true): A | undefined {
    for (const [tenant, queue] of this.queues) {
      if (!mayHaveTurn(tenant)) continue
      this.queues.delete(tenant)
      for (const item of queue) {
        queue.delete(item)
        if (queue.size > 0) this.queues.set(tenant, queue)
        return item
      }
    }
    return undefined
  }
}
