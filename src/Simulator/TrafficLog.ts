/** What the simulator has received. */
import type { IncomingMessage } from "node:http"
import { Changes } from "./Changes.ts"
import { Operation } from "./Operation.ts"

/** A request that was received. */
export interface Received {
  readonly operation: Operation
  readonly method: string
  /** Path and query as sent. */
  readonly url: string
  /** The headers that tests use. */
  readonly traceparent: string | undefined
  readonly idempotencyKey: string | undefined
  readonly accept: string | undefined
}

/** Requests that are kept in detail. */
const recentLimit = 200

/** Records requests and frames for tests. */
export class TrafficLog {
  /** Notified of each change of the simulator's state. */
  readonly changes = new Changes()
  /** Requests by operation. */
  readonly requests = Object.fromEntries(Operation.literals.map(name => [name, 0])) as Record<Operation, number>
  /** Requests without a route. */
  unknownRequests = 0
  /** The newest requests, oldest first. */
  readonly recent: Array<Received> = []
  /** Frames received over WebSockets, by type; `other` ones could not be decoded. */
  readonly frames = { message: 0, interrupt: 0, answer: 0, other: 0 }

  request(operation: Operation, { headers, method = "", url = "" }: IncomingMessage): void {
    const header = (name: string) => headers[name]?.toString()
    this.requests[operation]++
    this.recent.push({
      operation,
      method,
      url,
      traceparent: header("traceparent"),
      idempotencyKey: header("idempotency-key"),
      accept: header("accept")
    })
    if (this.recent.length > recentLimit) this.recent.shift()
    this.changes.notify()
  }

  unknownRequest(): void {
    this.unknownRequests++
    this.changes.notify()
  }

  frame(type: keyof TrafficLog["frames"]): void {
    this.frames[type]++
    this.changes.notify()
  }
}
