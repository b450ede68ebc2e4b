/** The operations of the simulated services, their routes, and what the simulator has received. */
import type { IncomingMessage } from "node:http"
import { Schema } from "effect"
import { Changes } from "./Changes.ts"

/** The simulated services, each with its own address. */
export const Service = Schema.Literal("platform", "inference")
export type Service = typeof Service.Type

/** The operations of both services. */
export const Operation = Schema.Literal(
  "platform_health",
  "create",
  "stop",
  "connect",
  "list_files",
  "read_file",
  "file_history",
  "file_at_iteration",
  "run_agent",
  "inference_health",
  "generate"
)
export type Operation = typeof Operation.Type

/** A request with a route, and the decoded parameters of its path in order. */
export interface Call {
  readonly operation: Operation
  readonly parameters: ReadonlyArray<string>
}

type Route = readonly [service: Service, method: string, path: string, operation: Operation]

const routes: ReadonlyArray<Route> = [
  ["platform", "GET", "/health", "platform_health"],
  ["platform", "POST", "/api/v1/instances", "create"],
  ["platform", "DELETE", "/api/v1/instances/*", "stop"],
  ["platform", "GET", "/api/v1/instances/*/connect", "connect"],
  ["platform", "GET", "/api/v1/instances/*/files", "list_files"],
  ["platform", "GET", "/api/v1/instances/*/files/*", "read_file"],
  ["platform", "GET", "/api/v1/instances/*/files/*/history", "file_history"],
  ["platform", "GET", "/api/v1/instances/*/files/*/at/*", "file_at_iteration"],
  ["platform", "POST", "/ag-ui/*", "run_agent"],
  ["inference", "GET", "/health", "inference_health"],
  ["inference", "POST", "/api/v1/generate/stream", "generate"]
]

/** The parameters of a path that matches a pattern, decoded and not empty. */
const parametersOf = (pattern: string, path: string): ReadonlyArray<string> | undefined => {
  const wanted = pattern.split("/")
  const segments = path.split("/")
  if (segments.length !== wanted.length) return undefined
  const parameters: Array<string> = []
  for (const [i, segment] of segments.entries()) {
    if (wanted[i] !== "*") {
      if (segment !== wanted[i]) return undefined
      continue
    }
    try {
      parameters.push(decodeURIComponent(segment))
    } catch {
      return undefined
    }
    if (segment === "") return undefined
  }
  return parameters
}

/** The operation of a request, or `undefined` if there is no route. */
export const callOf = (service: Service, method: string, path: string): Call | undefined => {
  for (const [owner, wanted, pattern, operation] of routes) {
    if (owner !== service || wanted !== method) continue
    const parameters = parametersOf(pattern, path)
    if (parameters !== undefined) return { operation, parameters }
  }
  return undefined
}

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
