/**
 * Sends commands to other nodes, by HTTP over TLS with a pre-shared key.
 */
import type { ClientRequest, IncomingMessage } from "node:http"
import { Agent, request as httpsRequest } from "node:https"
import type { Socket } from "node:net"
import { Effect, Option, type Redacted, type Scope } from "effect"
import { onceRead } from "../../EventLoop.ts"
import * as Monotonic from "../../Monotonic.ts"
import { currentTraceHeaders } from "../../Observability/Tracer.ts"
import { type FairPool, sharedPool } from "../FairPool.ts"
import { fileRequests } from "../FileCalls.ts"
import type { ReachablePeer } from "../SessionNodes.ts"
import type { SessionsBusy } from "../Sessions.ts"
import { decodeReply, encodeCommand, encodeHandover, paths, type Reply, tenantHeader, tenantOf } from "./Command.ts"
import { type NodeLinkError, type NodeLinkShape, NodeRefused, NodeSilent, NodeUnreachable } from "./NodeLink.ts"
import * as Security from "./Security.ts"
import { parseAddress } from "./Settings.ts"

export const defaults = {
  /** Milliseconds until a connection must be there, and for which a command waits for its tenant's share. */
  connect: 2000,
  /**
   * Milliseconds of silence after which a node counts as gone; while it works on a command it sends a byte each second.
   */
  silence: 5000,
  /** Connections to one node: each command has one to itself. */
  connections: 1024,
  /** Bytes of commands and of their replies, over all nodes; those of files are counted where the client is answered. */
  bytes: 256 * 1024 * 1024
} as const

export type Options = { readonly [Name in keyof typeof defaults]: number }

/** Bytes of a reply: one with a file, and any other. */
const replyBytes = { file: 64 * 1024 * 1024, other: 1024 * 1024 } as const

/** Bytes that are set aside for a reply. Few are larger. */
const usualReply = 4096

/** Milliseconds for which an unused connection is kept; the other node keeps it longer. */
const unusedTimeout = 30_000

/** Milliseconds between two warnings that a node cannot be reached. */
const warningInterval = 10_000

/** Connections whose handshake is done. */
const connected = new WeakSet<Socket>()

/** What a node is told. */
interface Message {
  readonly path: string
  readonly tenant: string
  /** For spans. */
  readonly name: string
  readonly isFile: boolean
  readonly encode: () => string
}

/** What is sent, and what of the reply may be kept. */
interface Outgoing {
  readonly address: string
  readonly path: string
  readonly tenant: string
  readonly text: string
  /** Of the trace, if there is one. */
  readonly trace: Readonly<Record<string, string>>
  readonly replyBytes: number
  /** Called with how many bytes of the reply there are; false where there is no room for them. */
  readonly onReply: (bytes: number) => boolean
}

/** Reads a reply whole. */
const read = (
  response: IncomingMessage,
  { onReply, replyBytes }: Outgoing,
  onData: () => void,
  onEnd: (reply: Reply | undefined, why: string) => void
) => {
  const chunks: Array<Buffer> = []
  let bytes = 0
  response.on("data", (chunk: Buffer) => {
    onData()
    bytes += chunk.length
    if (bytes > replyBytes) response.destroy(new Error(`the reply has more than ${replyBytes} bytes`))
    else if (!onReply(bytes)) response.destroy(new Error("there is no memory for the reply"))
    else chunks.push(chunk)
  })
  response.on("end", () => onEnd(decodeReply(Buffer.concat(chunks).toString("utf8")), "the reply is malformed"))
  response.on("error", error => onEnd(undefined, error.message))
  response.on("aborted", () => onEnd(undefined, "the connection was lost"))
}

const post = (agent: Agent, { connect, silence }: Options, sent: Outgoing) =>
  Effect.async<Reply, NodeLinkError>(resume => {
    const { address, path, tenant, text, trace } = sent
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
      path,
      headers: {
        "content-type": "application/json",
        "content-length": Buffer.byteLength(text),
        [tenantHeader]: tenant,
        ...trace
      }
    })
    // Where this process stood still, what the other node sent meanwhile is read first.
    const abandonAfter = (millis: number, reason: string): (() => void) => {
      let cancel = (): void => clearTimeout(timer)
      const timer = setTimeout(() => {
        cancel = onceRead(() => {
          fail(reason)
          outgoing.destroy()
        })
      }, millis)
      return () => cancel()
    }
    let stopWaiting = abandonAfter(connect, `no connection within ${connect} ms`)
    const isAlive = (): void => {
      stopWaiting()
      stopWaiting = abandonAfter(silence, `nothing came for ${silence} ms`)
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
      stopWaiting()
      fail("the connection was lost")
    })
    outgoing.on("response", response => {
      const { statusCode } = response
      if (statusCode === 200) {
        return read(response, sent, isAlive, (reply, why) =>
          reply === undefined ? fail(why) : resume(Effect.succeed(reply))
        )
      }
      // A node begins with a command only once it will answer 200.
      resume(new NodeRefused({ reason: `status ${statusCode}` }))
      response.resume()
    })
    outgoing.end(text)
    return Effect.sync(() => {
      stopWaiting()
      outgoing.destroy()
    })
  })

/** The connections to other nodes, which tenants share; those to one node are kept while there are commands for it. */
class PeerConnections {
  private readonly pools = new Map<string, FairPool>()

  constructor(
    private readonly connections: number,
    private readonly timeLimit: number
  ) {}

  /** Has a connection to a node while an effect runs. */
  use<A, E>(address: string, tenant: string, work: Effect.Effect<A, E>): Effect.Effect<A, E | SessionsBusy> {
    return Effect.suspend(() => {
      const pool = this.pools.get(address) ?? sharedPool("connections to another node", this.connections)
      this.pools.set(address, pool)
      return Effect.ensuring(
        pool.use(tenant, 1, () => work, this.timeLimit),
        Effect.sync(() => {
          if (pool.used === 0 && pool.waiting === 0 && this.pools.get(address) === pool) this.pools.delete(address)
        })
      )
    })
  }
}

/** A link whose connections end with the scope. */
export const make = (
  secret: Redacted.Redacted,
  given: Partial<Options> = {}
): Effect.Effect<NodeLinkShape, never, Scope.Scope> =>
  Effect.gen(function* () {
    const options = { ...defaults, ...given }
    const agent = yield* Effect.acquireRelease(
      Effect.sync(
        () =>
          // Node keeps no connection of a request that has such options of its own.
          new Agent({
            ...Security.ofClient(secret),
            keepAlive: true,
            maxSockets: options.connections,
            maxFreeSockets: 16,
            timeout: unusedTimeout
          })
      ),
      agent => Effect.sync(() => agent.destroy())
    )
    const peers = new PeerConnections(options.connections, options.connect)
    const memory = sharedPool("memory for requests to other nodes", options.bytes)
    let warnedAt = Number.NEGATIVE_INFINITY
    const warn = (node: string, address: string, reason: string) =>
      Effect.flatMap(Monotonic.millis, now => {
        if (now - warnedAt < warningInterval) return Effect.void
        warnedAt = now
        return Effect.annotateLogs(Effect.logWarning("Another node cannot be reached"), { node, address, reason })
      })
    const transmit = ({ address, node }: ReachablePeer, { encode, isFile, name, path, tenant }: Message) =>
      Effect.flatMap(currentTraceHeaders, trace => {
        const text = encode()
        const size = Buffer.byteLength(text)
        const claiming = Effect.suspend(() => {
          const claim = memory.take(tenant, size + usualReply)
          return claim === undefined ? Effect.fail(memory.refusal()) : Effect.succeed(claim)
        })
        return Effect.acquireUseRelease(
          claiming,
          claim => {
            const sent: Outgoing = {
              ...{ address, path, tenant, text, trace },
              replyBytes: isFile ? replyBytes.file : replyBytes.other,
              onReply: bytes => isFile || bytes <= usualReply || claim.resize(size + bytes)
            }
            return peers.use(address, tenant, post(agent, options, sent))
          },
          claim => Effect.sync(() => claim.release())
        )
      }).pipe(
        Effect.tapError(error => (error._tag === "SessionsBusy" ? Effect.void : warn(node, address, error.reason))),
        Effect.withSpan(`NodeClient.${name}`, {
          kind: "client",
          attributes: { tenant, node },
          captureStackTrace: false
        })
      )

    return {
      send: (owner, command) =>
        transmit(owner, {
          path: paths.command,
          tenant: command.tenant,
          name: command.request.type,
          isFile: fileRequests.has(command.request.type),
          encode: () => encodeCommand(command)
        }),
      handOver: (to, handedOver) =>
        Effect.map(
          transmit(to, {
            path: paths.handover,
            tenant: tenantOf(handedOver.session),
            name: "hand_over",
            isFile: false,
            encode: () => encodeHandover({ node: to.node, ...handedOver })
          }),
          ({ is }) => is === "adopted"
        )
    }
  })
