/**
 * The WebSocket of the gateway's clients.
 */
import { Effect, Layer } from "effect"
import { Tracer } from "../base/Observability/Tracer.ts"
import * as Supervision from "../base/Supervision.ts"
import type { DrainingSignal } from "../Http/DrainingSignal.ts"
import type { Authentication } from "./Authentication.ts"
import { acceptBy, connectionSet, Handshakes, makeRunner, parentOf } from "./Clients/Handshakes.ts"
import { Clients, type Settings } from "./Clients.ts"
import { Conversations } from "./Conversations.ts"
import { frameBytes } from "./Protocol/Limits.ts"
import { ClientConnection, type Shared } from "./Socket/ClientConnection.ts"
import { Socket } from "./Socket/Endpoints.ts"

const make = (settings: Settings) =>
  Effect.gen(function* () {
    const { takeSlot, ...clients } = yield* Clients
    const tracer = yield* Tracer
    const clock = yield* Effect.clock
    const run = yield* makeRunner
    const handshakes = yield* Handshakes.make(settings.connections)
    const connections = yield* connectionSet({ messageBytes: frameBytes, unsentBytes: settings.unsentBytes })
    const shared: Shared = {
      ...clients,
      conversations: yield* Conversations,
      traceId: tracer.currentTraceId,
      now: () => clock.unsafeCurrentTimeMillis(),
      monotonic: connections.now,
      run
    }
    yield* Supervision.tickScoped(
      "memory of file calls",
      "1 second",
      connections,
      // Clients become stalled as time passes.
      Effect.sync(() => shared.files.serve())
    )
    return Socket.of({
      connect: handshake =>
        Effect.map(handshakes.identify(handshake), identity => {
          const client = { identity, parent: parentOf(handshake) }
          return {
            connections,
            accept: acceptBy(takeSlot, identity.tenant, (connection, slot) => {
              return new ClientConnection(connection, client, slot, shared)
            })
          }
        }),
      connections: () => connections.size
    })
  })

/** Accepts clients until the scope closes. When draining begins, their connections are closed over two seconds. */
export const layer = (
  settings: Settings
): Layer.Layer<Socket, never, Clients | Conversations | Authentication | Tracer | DrainingSignal> =>
  Layer.scoped(Socket, make(settings))
