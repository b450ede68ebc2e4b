import { Context, Effect, Layer } from "effect"
import { Api } from "../../src/Api.ts"
import * as Edge from "../../src/Edge/Edge.ts"
import { endpoints } from "../../src/Endpoints.ts"
import * as NodeServer from "../../src/Http/NodeServer.ts"
import { services, type Transport } from "../Harness.ts"

/** Serves by the compiled edge, on the server that the service runs on. */
export const edge: Transport = {
  name: "edge",
  serve: store =>
    Effect.gen(function* () {
      const server = NodeServer.layer({ host: "127.0.0.1", port: 0, gracePeriod: 0 })
      const app = NodeServer.serve(Edge.make(Api, endpoints)).pipe(Layer.provideMerge(server))
      const context = yield* Layer.build(Layer.provide(app, services(store)))
      const { address } = Context.get(context, NodeServer.NodeServer)
      const port = address._tag === "TcpAddress" ? address.port : 0
      return { url: `http://127.0.0.1:${port}`, port }
    })
}
