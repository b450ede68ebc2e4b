/**
 * Our server for an application that @effect/platform serves: that of a host or of a test. What the platform
 * adds (a client, multipart forms, file types) takes 4 to 9 MiB and 0.1 s of start, which the service avoids.
 */
import * as Headers from "@effect/platform/Headers"
import * as HttpServer from "@effect/platform/HttpServer"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer } from "effect"
import { listenFailed } from "../ListenFailed.ts"
import * as NodeServer from "../Server/NodeServer.ts"
import { remember } from "../WebSocket/Handshake.ts"

const make = (options: NodeServer.Options) =>
  Effect.gen(function* () {
    const { host, port } = options
    const { bound, open, server } = yield* NodeServer.make(options, gate =>
      Effect.mapError(
        NodeHttpServer.make(() => gate.on("upgrade", remember), { host, port }),
        ({ cause }) => listenFailed(options, cause)
      )
    )
    const platform = HttpServer.make({
      address: bound.address,
      serve: (app, middleware) =>
        Effect.zipRight(middleware === undefined ? bound.serve(app) : bound.serve(app, middleware), open()).pipe(
          // The platform adds the headers of a request to its span; this one contains the credential of a browser.
          Effect.locallyWith(Headers.currentRedactedNames, names => [...names, "sec-websocket-protocol"])
        )
    })
    return Context.make(HttpServer.HttpServer, platform).pipe(Context.add(NodeServer.NodeServer, server))
  })

/**
 * Listens as `NodeServer.layer` does, for both kinds of applications, and provides what the platform's applications
 * also need.
 */
export const layer = (options: NodeServer.Options) =>
  Layer.merge(Layer.scopedContext(make(options)), NodeHttpServer.layerContext)
