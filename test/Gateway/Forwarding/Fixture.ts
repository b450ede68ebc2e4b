/** A node that takes commands, and the commands. */
import { type Context, Duration, Effect, Redacted } from "effect"
import type { Command } from "../../../src/Gateway/Forwarding/NodeLink.ts"
import * as NodeServer from "../../../src/Gateway/Forwarding/NodeServer.ts"
import { formatAddress } from "../../../src/Gateway/Forwarding/Settings.ts"
import { alone, SessionNodes } from "../../../src/Gateway/SessionNodes.ts"
import { Sessions } from "../../../src/Gateway/Sessions.ts"

export const secret = Redacted.make("a secret that only the nodes have")

const sessionId = "0".repeat(36)

export const unused = () => Effect.dieMessage("not expected")

/** A node whose sessions take messages by `send`. */
export const server = (
  send: Context.Tag.Service<Sessions>["send"],
  limits: NodeServer.Options["limits"] = {},
  adopt: Context.Tag.Service<Sessions>["adopt"] = unused
) =>
  Effect.gen(function* () {
    const sessions: Context.Tag.Service<Sessions> = {
      ...{ create: unused, list: unused, get: unused, start: unused, stop: unused, remove: unused, subscribe: unused },
      ...{ interrupt: unused, answer: unused, listFiles: unused, readFile: unused, fileHistory: unused },
      fileAtIteration: unused,
      send,
      adopt,
      subscriptions: () => 0
    }
    const address = yield* NodeServer.make({
      address: { host: "127.0.0.1", port: 0 },
      secret,
      fileBytes: 1024 ** 3,
      limits
    }).pipe(Effect.provideService(Sessions, sessions), Effect.provideService(SessionNodes, { ...alone, self: "a" }))
    return { port: address.port, address: formatAddress(address) }
  })

export const command = (content: string, node = "a", tenant = "acme"): Command => ({
  ...{ node, tenant, actor: "alice", commandId: "c1" },
  request: { type: "send_message", id: "1", sessionId, content }
})

export const owner = (address: string) => ({ node: "a", address })

/** How it failed. */
export const failureOf = <A, E extends { readonly _tag: string }>(sending: Effect.Effect<A, E>) =>
  Effect.map(Effect.flip(sending), ({ _tag }) => _tag)

/** A handshake takes less on any machine, and heartbeats come each second. */
export const quick = { connect: Duration.seconds(3), silence: Duration.millis(1500) }
