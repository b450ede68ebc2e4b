/** Waits of the clients that tests use: each ends when it is interrupted, and with the connection. */
import { createServer, type Server, type Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber } from "effect"
import { WebSocketServer } from "ws"
import { connect } from "./Fixture.ts"

const portOf = (server: { readonly address: Server["address"] }): number => {
  const address = server.address()
  return typeof address === "object" && address !== null ? address.port : 0
}

describe("Client of tests", () => {
  it.scopedLive("stops waiting for a connection that a stopped process does not answer", () =>
    Effect.gen(function* () {
      const accepted = yield* Deferred.make<Socket>()
      const server = yield* Effect.acquireRelease(
        Effect.async<Server>(resume => {
          const server = createServer(socket => Deferred.unsafeDone(accepted, Exit.succeed(socket)))
          server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
        }),
        server => Effect.sync(() => server.close())
      )
      const connecting = yield* Effect.fork(connect(`ws://127.0.0.1:${portOf(server)}`))
      const socket = yield* Deferred.await(accepted)
      assert.isTrue(Exit.isInterrupted(yield* Fiber.interrupt(connecting)))
      socket.destroy()
    })
  )

  it.scopedLive("stops waiting for an answer when the connection is closed", () =>
    Effect.gen(function* () {
      const server = yield* Effect.acquireRelease(
        Effect.async<WebSocketServer>(resume => {
          const server: WebSocketServer = new WebSocketServer({ port: 0, host: "127.0.0.1" }, () =>
            resume(Effect.succeed(server))
          )
          server.on("connection", socket => socket.on("message", () => socket.close(4000)))
        }),
        server => Effect.sync(() => server.close())
      )
      const { port } = server.address() as { readonly port: number }
      const client = yield* connect(`ws://127.0.0.1:${port}`)
      for (let times = 0; times < 2; times++) {
        const failed = yield* Effect.sandbox(Effect.flip(Effect.sandbox(client.ask({ type: "list_sessions" }))))
        assert.include(Cause.pretty(failed), "The connection was closed (4000) before the answer to list_sessions came")
      }
    })
  )
})
