import * as http from "node:http"
import type { AddressInfo, Socket } from "node:net"
import type { Duplex } from "node:stream"
import { Effect, Schema, type Scope } from "effect"

/** A port that could not be listened on. */
export class ListenFailed extends Schema.TaggedError<ListenFailed>()("ListenFailed", {
  port: Schema.Int,
  reason: Schema.String
}) {
  override get message(): string {
    return `Cannot listen on 127.0.0.1:${this.port}: ${this.reason}`
  }
}

/** Maximum number of connections. Others are closed as they arrive. */
const maxConnections = 2000

/** The handlers of a listener's requests. */
export interface Handlers {
  readonly request: (request: http.IncomingMessage, response: http.ServerResponse) => void
  readonly upgrade: (request: http.IncomingMessage, socket: Duplex, head: Buffer) => void
}

/** A server on a port of 127.0.0.1 that can be made to refuse connections and to accept them again. */
export interface Listener {
  /** The address, without a slash at its end; it stays the same while connections are refused. */
  readonly url: string
  /**
   * Refuses new connections as if no process listened, or accepts them again. A refusal also closes idle connections;
   * those in use continue.
   */
  readonly refuse: (refused: boolean) => Effect.Effect<void, ListenFailed>
  readonly isRefusing: () => boolean
}

const listen = (server: http.Server, port: number): Effect.Effect<number, ListenFailed> =>
  Effect.async(resume => {
    const failed = (error: Error) => resume(Effect.fail(new ListenFailed({ port, reason: error.message })))
    server.once("error", failed)
    server.listen(port, "127.0.0.1", () => {
      server.off("error", failed)
      resume(Effect.succeed((server.address() as AddressInfo).port))
    })
  })

/** Listens until the scope closes, which cuts every connection. */
export const make = (port: number, handlers: Handlers): Effect.Effect<Listener, ListenFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const server = http.createServer(handlers.request)
    server.maxConnections = maxConnections
    server.on("upgrade", handlers.upgrade)
    const sockets = new Set<Socket>()
    server.on("connection", socket => {
      sockets.add(socket)
      socket.once("close", () => sockets.delete(socket))
    })
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        if (server.listening) server.close()
        for (const socket of sockets) socket.destroy()
      })
    )
    const taken = yield* listen(server, port)
    const refuse = (refused: boolean) =>
      Effect.suspend(() => {
        if (refused === !server.listening) return Effect.void
        if (!refused) return Effect.asVoid(listen(server, taken))
        server.close()
        return Effect.void
      })
    return { url: `http://127.0.0.1:${taken}`, refuse, isRefusing: () => !server.listening }
  })
