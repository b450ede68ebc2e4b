/** The requests and WebSockets of a host's server that belong to an instance. */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Duplex } from "node:stream"
import { Effect } from "effect"
import { problemOfFields } from "../../Http/HeaderFields.ts"
import { pathOf } from "../../Http/Router.ts"
import { timing } from "../../Http/Server/ConnectionLimits.ts"
import type { Listeners, Observe } from "../../Http/Server/Gate.ts"
import { closeUpgraded, refuse } from "../../Http/Server/GracefulClose.ts"
import type { Causeway } from "./Interface.ts"

const shuttingDown = "The service is shutting down"

const send = (response: ServerResponse, status: number, error: string): void => {
  const headers = { "content-type": "application/json", connection: "close" }
  response.writeHead(status, status === 503 ? { ...headers, "retry-after": "1" } : headers)
  response.end(JSON.stringify({ error }))
}

/** The target of a request, also if a framework has stripped its mount point. */
const targetOf = (request: IncomingMessage): string => {
  const original: unknown = Reflect.get(request, "originalUrl")
  return typeof original === "string" ? original : (request.url ?? "/")
}

/** Requests and WebSockets of the host's server whose paths are under the prefix. */
export class Requests implements Pick<Causeway, "handler" | "upgrade"> {
  readonly #inFlight = new Set<Duplex | ServerResponse>()
  #isDraining = false
  #onChange = (): void => {}

  constructor(
    private readonly prefix: string,
    private readonly listeners: Listeners,
    private readonly observe: Observe
  ) {}

  readonly handler: Causeway["handler"] = (request, response, next) => {
    const target = targetOf(request)
    if (!this.#isOurs(target)) {
      if (next === undefined) send(response, 404, "Not found: the service has no such route")
      else next()
      return
    }
    request.url = target
    const ended = this.observe(request, response)
    response.once("close", ended)
    if (this.#isDraining) return send(response, 503, shuttingDown)
    const problem = problemOfFields(request)
    if (problem !== undefined) return send(response, problem.status, problem.error)
    this.#add(response)
    this.listeners.request(request, response)
  }

  readonly upgrade: Causeway["upgrade"] = (request, socket, head) => {
    const target = targetOf(request)
    if (!this.#isOurs(target)) return false
    request.url = target
    // Node removes its own listener, and an error without a listener would end the process.
    socket.on("error", () => socket.destroy())
    closeUpgraded(socket, timing)
    const problem = this.#isDraining ? { status: 503, error: shuttingDown } : problemOfFields(request)
    if (problem !== undefined) {
      refuse(socket, problem.status, problem.error)
      return true
    }
    this.#add(socket)
    this.listeners.upgrade(request, socket, head)
    return true
  }

  /** Answers later requests with 503. */
  drain(): void {
    this.#isDraining = true
    for (const held of this.#inFlight) if ("shouldKeepAlive" in held) held.shouldKeepAlive = false
  }

  /** Closes all connections with requests in flight. */
  cut(): void {
    for (const held of [...this.#inFlight]) held.destroy()
  }

  /** Waits until nothing is in flight. */
  readonly ended: Effect.Effect<void> = Effect.async(resume => {
    this.#onChange = () => {
      if (this.#inFlight.size === 0) resume(Effect.void)
    }
    this.#onChange()
    return Effect.sync(() => {
      this.#onChange = () => {}
    })
  })

  #isOurs(target: string): boolean {
    const path = pathOf(target)
    return path === this.prefix || path.startsWith(`${this.prefix}/`)
  }

  #add(held: Duplex | ServerResponse): void {
    if (held.closed) return
    this.#inFlight.add(held)
    held.once("close", () => {
      this.#inFlight.delete(held)
      this.#onChange()
    })
  }
}
