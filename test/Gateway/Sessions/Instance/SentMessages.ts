/** Platforms to which messages are sent in another way. */
import { type Context, Effect } from "effect"
import { type AgentPlatform, AgentPlatformConnectionError } from "../../../../src/Upstream/AgentPlatform.ts"

type Platform = Context.Tag.Service<AgentPlatform>

type Connection = Effect.Effect.Success<ReturnType<Platform["connect"]>>

/** The simulated platform with another way to send to its instances. */
export const withSend =
  (change: (connection: Connection) => Partial<Connection>) =>
  (platform: Platform): Platform => ({
    ...platform,
    connect: (id, options) =>
      Effect.map(platform.connect(id, options), connection => ({ ...connection, ...change(connection) }))
  })

/** What sending fails with while there is no connection. */
export const timeout = new AgentPlatformConnectionError({
  operation: "connect",
  reason: "timeout",
  message: "no connection"
})
