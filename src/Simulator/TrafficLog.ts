/** The operations of the simulated services, their routes, and what the simulator has received. */
import type { IncomingMessage } from "node:http"
import { Schema } from "effect"
import { problemOfTarget, Router } from "../Http/Router.ts"
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

const routesOf = (...routes: ReadonlyArray<readonly [method: string, path: string, operation: Operation]>) => {
  const router = new Router<Operation>()
  for (const route of routes) router.add(...route)
  return router
}

const routers: Readonly<Record<Service, Router<Operation>>> = {
  platform: routesOf(
    ["GET", "/health", "platform_health"],
    ["POST", "/api/v1/instances", "create"],
    ["DELETE", "/api/v1/instances/:id", "stop"],
    ["GET", "/api/v1/instances/:id/connect", "connect"],
    ["GET", "/api/v1/instances/:id/files", "list_files"],
    ["GET", "/api/v1/instances/:id/files/:path", "read_file"],
    ["GET", "/api/v1/instances/:id/files/:path/history", "file_history"],
    ["GET", "/api/v1/instances/:id/files/:path/at/:iteration", "file_at_iteration"],
    ["POST", "/ag-ui/:agentType", "run_agent"]
  ),
  inference: routesOf(["GET", "/health", "inference_health"], ["POST", "/api/v1/generate/stream", "generate"])
}

/** The operation of a request, or `undefined` if there is no route. */
export const callOf = (service: Service, method: string, path: string): Call | undefined => {
  const match = routers[service].find(method, path)
  const parameters = Object.values(match?.params ?? {})
  if (match === undefined || parameters.includes("") || problemOfTarget(path) !== undefined) return undefined
  return { operation: match.value, parameters: parameters.map(decodeURIComponent) }
}

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
