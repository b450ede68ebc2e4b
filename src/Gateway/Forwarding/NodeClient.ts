/**
 * Sends commands to other nodes, by HTTP over TLS with a pre-shared key.
 */
import type { ClientRequest, IncomingMessage } from "node:http"
import { Agent, request as httpsRequest } from "node:https"
import type { Socket } from "node:net"
import { Effect, Option, type Redacted, type Scope } from "effect"
import * as Monotonic from "../../Monotonic.ts"
import { type Command, decodeReply, encodeCommand, type Reply } from "./Command.ts"
import { type NodeLinkShape, NodeSilent, NodeUnreachable } from "./NodeLink.ts"
import * as Security from "./Security.ts"
import { parseAddress } from "./Settings.ts"

/** In milliseconds. */
export const timing = {
  /** Until a connection must be there. */
  connect: 2000,
  /** Silence after which a node counts as gone; while it works on a command it sends a byte each second. */
  silence: 5000
} as const

export type Timing = { readonly [Name in keyof typeof timing]: number }

/** Bytes of a reply; files are the largest. */
const replyBytes = 64 * 1024 * 1024

/** Connections to one node: each command has one to itself. Further commands wait, as for a connection. */
const mostConnections = 1024

/** Milliseconds for which an unused connection is kept; the other node keeps it longer. */
const unusedTimeout = 30_000

/** Milliseconds between two warnings that a node cannot be reached. */
const warningInterval = 10_000

/** Connections whose handshake is done. */
const connected = new WeakSet<Socket>()

/** Reads a reply whole. */
const read = (
  response: IncomingMessage,
  onData: () => void,
  onEnd: (reply: Reply | undefined, why: string) => void
) => {
  const chunks: Array<Buffer> = []
  let bytes = 0
  response.on("data", (chunk: Buffer) => {
    onData()
    bytes += chunk.length
    if (bytes > replyBytes) response.destroy(new Error(`the reply has more than ${replyBytes} bytes`))
    else chunks.push(chunk)
  })
  response.on("end", () => {
    if (response.statusCode !== 200) return onEnd(undefined, `status ${response.statusCode}`)
    onEnd(decodeReply(Buffer.concat(chunks).toString("utf8")), "the reply is malformed")
  })
  response.on("error", error => onEnd(undefined, error.message))
  response.on("aborted", () => onEnd(undefined, "the connection was lost"))
}

const post = (agent: Agent, { connect, silence }: Timing, address: string, text: string) =>
  Effect.async<Reply, NodeUnreachable | NodeSilent>(resume => {
    const parsed = parseAddress(address)
    if (Option.isNone(parsed)) {
      resume(new NodeUnreachable({ reason: `${address} is no address` }))
      return
    }
    let isConnected = false
    const fail = (reason: string): void =>
      resume(isConnected ? new NodeSilent({ reason }) : new NodeUnreachable({ reason }))
    const outgoing: ClientRequest = httpsRequest({
      ...parsed.value,
      agent,
      method: "POST",
      path: "/commands",
      headers: { "content-type": "application/json", "content-length": Buffer.byteLength(text) }
    })
    const abandon = (reason: string) => (): void => {
      fail(reason)
      outgoing.destroy()
    }
    let timer = setTimeout(abandon(`no connection within ${connect} ms`), connect)
    const isAlive = (): void => {
      clearTimeout(timer)
      timer = setTimeout(abandon(`nothing came for ${silence} ms`), silence)
    }
    const onConnected = (): void => {
      isConnected = true
      isAlive()
    }
    outgoing.on("socket", socket => {
      // Not by `reusedSocket`, which Node leaves false for a request that waited for another one's connection.
      if (connected.has(socket)) return onConnected()
      socket.once("secureConnect", () => {
        connected.add(socket)
        onConnected()
      })
    })
    outgoing.on("error", error => fail(error.message))
    outgoing.on("close", () => {
      clearTimeout(timer)
      fail("the connection was lost")
    })
    outgoing.on("response", response =>
      read(response, isAlive, (reply, why) => (reply === undefined ? fail(why) : resume(Effect.succeed(reply))))
    )
    outgoing.end(text)
    return Effect.sync(() => {
      clearTimeout(timer)
      outgoing.destroy()
    })
  })

/** A link whose connections end with the scope. */
export const make = (
  secret: Redacted.Redacted,
  limits: Timing = timing,
  connections = mostConnections
): Effect.Effect<NodeLinkShape, never, Scope.Scope> =>
  Effect.gen(function* () {
    const agent = yield* Effect.acquireRelease(
      Effect.sync(
        () =>
          // Node keeps no connection of a request that has such options of its own.
          new Agent({
            ...Security.ofClient(secret),
            keepAlive: true,
            maxSockets: connections,
            maxFreeSockets: 16,
            timeout: unusedTimeout
          })
      ),
      agent => Effect.sync(() => agent.destroy())
    )
    let warnedAt = Number.NEGATIVE_INFINITY
    const warn = (node: string, address: string, reason: string) =>
      Effect.flatMap(Monotonic.millis, now => {
        if (now - warnedAt < warningInterval) return Effect.void
        warnedAt = now
        return Effect.annotateLogs(Effect.logWarning("Another node cannot be reached"), { node, address, reason })
      })
    return {
      send: ({ address, node }, command: Command) =>
        Effect.suspend(() => post(agent, limits, address, encodeCommand(command))).pipe(
          Effect.tapError(({ reason }) => warn(node, address, reason))
        )
    }
  })
