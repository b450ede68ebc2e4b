import type { IncomingMessage } from "node:http"
import { Changes } from "./Changes.ts"
import { Operation } from "./Operation.ts"

/** A request that was received. */
export interface Received {
  readonly operation: Operation
  readonly method: string
  /** Path and query as sent. */
  readonly url: string
  /** Headers that tests look at. */
  readonly traceparent: string | undefined
  readonly idempotencyKey: string | undefined
  readonly accept: string | undefined
}

/** Frames received over WebSockets, by type. */
export interface Frames {
  readonly message: number
  readonly interrupt: number
  readonly answer: number
  /** Frames that could not be decoded. */
  readonly other: number
}

/** Requests that are kept in detail. */
const recentLimit = 200

const header = (request: IncomingMessage, name: string): string | undefined => {
  const value = request.headers[name]
  return Array.isArray(value) ? value.join(", ") : value
}

/** Records requests and frames for tests. */
export class TrafficLog {
  /** Notified of each change of the simulator's state. */
  readonly changes = new Changes()
  private readonly counts = new Map<Operation, number>()
  private readonly frameCounts = { message: 0, interrupt: 0, answer: 0, other: 0 }
  private readonly newest: Array<Received> = []
  private unknownCount = 0

  /** Requests by operation. */
  get requests(): Readonly<Record<Operation, number>> {
    const counts = Object.fromEntries(Operation.literals.map(name => [name, this.counts.get(name) ?? 0]))
    return counts as Record<Operation, number>
  }

  get frames(): Frames {
    return { ...this.frameCounts }
  }

  /** The newest requests, oldest first. */
  get recent(): ReadonlyArray<Received> {
    return this.newest.slice()
  }

  /** Requests without a route. */
  get unknown(): number {
    return this.unknownCount
  }

  request(operation: Operation, request: IncomingMessage): void {
    this.counts.set(operation, (this.counts.get(operation) ?? 0) + 1)
    this.newest.push({
      operation,
      method: request.method ?? "",
      url: request.url ?? "",
      traceparent: header(request, "traceparent"),
      idempotencyKey: header(request, "idempotency-key"),
      accept: header(request, "accept")
    })
    if (this.newest.length > recentLimit) this.newest.shift()
    this.changes.notify()
  }

  unknownRequest(): void {
    this.unknownCount++
    this.changes.notify()
  }

  frame(type: keyof Frames): void {
    this.frameCounts[type]++
    this.changes.notify()
  }
}
