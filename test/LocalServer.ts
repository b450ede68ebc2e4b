import { createServer, type RequestListener } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect } from "effect"

/** A plain HTTP server on a free port, until the scope closes. */
export const localServer = (listener: RequestListener) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.async<ReturnType<typeof createServer>>(resume => {
        const server = createServer(listener)
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      server =>
        Effect.sync(() => {
          server.close()
          server.closeAllConnections()
        })
    ),
    server => ({ server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
  )
