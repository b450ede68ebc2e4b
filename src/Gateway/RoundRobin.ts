/** A queue that is first in, first out for each tenant, and round robin over tenants. */
export class RoundRobin<A> {
  private readonly queues = new Map<string, Set<A>>()

  get isEmpty(): boolean {
    return this.queues.size === 0
  }

  /** Adds an element to the queue of its tenant. An element that is queued already keeps its position. */
  add(tenant: string, item: A): void {
    const queue = this.queues.get(tenant)
    if (queue === undefined) this.queues.set(tenant, new Set([item]))
    else queue.add(item)
  }

  /** Takes the next element of the tenants that pass a test. */
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
