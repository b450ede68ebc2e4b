import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect, Layer } from "effect"
import { Api } from "../../src/Api.ts"
import * as Edge from "../../src/Edge/Edge.ts"
import { endpoints } from "../../src/Endpoints.ts"
import { services, type Transport } from "../Harness.ts"

/** Serves by the compiled edge, on a bare server. */
export const edge: Transport = {
  name: "edge",
  serve: store =>
    Effect.gen(function* () {
      const context = yield* Layer.build(services(store))
      const listeners = yield* Effect.provide(Edge.make(Api, endpoints), context)
      const server = createServer()
      server.on("request", listeners.request)
      server.on("upgrade", listeners.upgrade)
      yield* Effect.async<void>(resume => {
        server.listen(0, "127.0.0.1", () => resume(Effect.void))
      })
      yield* Effect.addFinalizer(() =>
        Effect.async<void>(resume => {
          server.close(() => resume(Effect.void))
          server.closeAllConnections()
        })
      )
      const { port } = server.address() as AddressInfo
      return { url: `http://127.0.0.1:${port}`, port }
    })
}
