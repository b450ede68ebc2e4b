/** Servers of tests, at ports that the system chooses. */
import type { AddressInfo, Server } from "node:net"
import { Effect } from "effect"

/** Listens until the scope closes, and returns the port. */
export const listening = (server: Server & { readonly closeAllConnections?: () => void }) =>
  Effect.acquireRelease(
    Effect.async<number>(resume => {
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed((server.address() as AddressInfo).port)))
    }),
    () =>
      Effect.async<void>(resume => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections?.()
      })
  )
