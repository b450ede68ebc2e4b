import { Context, Effect, Layer } from "effect"
import { StoreApi as Api } from "../../../src/app/Api.ts"
import * as Causeway from "../../../src/app/Causeway.ts"
import * as Tracer from "../../../src/base/Observability/Tracer.ts"
import type { AllowedOrigins } from "../../../src/Http/Cors.ts"
import * as DrainingSignal from "../../../src/Http/DrainingSignal.ts"
import * as NodeServer from "../../../src/Http/Server/NodeServer.ts"
import { identity, portOf, type Transport } from "../../Harness.ts"

const serving = (name: string, tracing: Layer.Layer<never>, origins: AllowedOrigins = []): Transport => ({
  name,
  serve: store =>
    Effect.gen(function* () {
      const server = { host: "127.0.0.1", port: 0, gracePeriod: 0, origins }
      const application = Causeway.layerEdge({ api: Api, store, identity, server })
      const context = yield* Layer.build(Layer.provide(application, [DrainingSignal.layer, tracing]))
      const port = portOf(Context.get(context, NodeServer.NodeServer))
      return { url: `http://127.0.0.1:${port}`, port }
    })
})

/** Serves by the compiled edge, on the server that the service runs on: each request in a fiber, and in its span. */
export const edge: Transport = serving("edge", Layer.empty)

/** The same without spans, so that what can be answered without a fiber is. */
export const quickEdge: Transport = serving("edge without fibers", Tracer.layerOff)

/** The same for web pages of other origins. */
export const edgeFor = (origins: AllowedOrigins): Transport => serving("edge", Tracer.layerOff, origins)
