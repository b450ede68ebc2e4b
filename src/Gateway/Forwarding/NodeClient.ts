/**
 * Sends commands to other nodes, using HTTP over TLS with a pre-shared key.
 */
import type { ClientRequest, IncomingMessage } from "node:http"
import { Agent, request as httpsRequest } from "node:https"
import type { Socket } from "node:net"
import { Duration, Effect, Option, type Redacted, type Scope } from "effect"
import { currentTraceHeaders } from "../../base/Observability/Tracer.ts"
import { onceRead } from "../../base/Time/EventLoop.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import { type Claim, type FairPool, sharedPool } from "../FairPool.ts"
import { fileRequests } from "../Requests.ts"
import type { ReachablePeer } from "../SessionNodes.ts"
import type { SessionsBusy } from "../Sessions.ts"
import {
  decodeReply,
  encodeActivityRequest,
  encodeCommand,
  encodeTransfer,
  type NodeLinkError,
  type NodeLinkShape,
  NodeRefused,
  NodeSilent,
  NodeUnreachable,
  ofClient,
  paths,
  type Reply,
  tenantHeader,
  tenantOf
} from "./NodeLink.ts"
import { parseAddress } from "./Settings.ts"

/** The limits of requests to other nodes. */
export interface Options {
  /** How long a connection may take to be established, and how long a command waits for its tenant's share. */
  readonly connect: Duration.DurationInput
  /** A node counts as stopped after this time without data. While it executes a command it sends a byte each second. */
  readonly silence: Duration.DurationInput
  /** Maximum number of connections to one node. Each command has its own. */
  readonly connections: number
  /** Maximum bytes of commands and replies for all nodes. Files are counted in the answers to clients instead. */
  readonly bytes: number
}

const defaults: Options = {
  connect: Duration.seconds(2),
  silence: Duration.seconds(5),
  connections: 1024,
  bytes: 256 * 1024 * 1024
}

/** Maximum bytes of a reply: with a file, and of any other. */
const replyBytes = { file: 64 * 1024 * 1024, other: 1024 * 1024 } as const

/** Bytes that are reserved for a reply. Few are larger. */
const usualReply = 4096

/** How long an idle connection is kept. The other node keeps it longer. */
const unusedTimeout = Duration.seconds(30)

/** The minimum time between two warnings that a node cannot be reached. */
const warningInterval = Duration.seconds(10)

/** Connections whose handshake is complete. */
const connected = new WeakSet<Socket>()

/** A message to a node. */
interface Message {
  readonly path: string
  readonly tenant: string
  /** The name of its span. */
  readonly name: string
  readonly isFile: boolean
  readonly encode: () => string
}

/** A request to a node, and the limits of its reply. */
interface Outgoing {
  readonly address: string
  readonly path: string
  readonly tenant: string
  readonly text: string
  /** The headers of the trace; empty without one. */
  readonly trace: Readonly<Record<string, string>>
  readonly replyBytes: number
  /** Called with the bytes of the reply so far. Returns false if there is no memory for them. */
  readonly onReply: (bytes: number) => boolean
  /** What the request holds that can be reclaimed for another tenant's. */
  readonly claims: ReadonlyArray<Claim>
}

/** Reads a whole reply. */
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

/** Calls back when no data has arrived in time. */
const abandonAfter = (timeout: Duration.DurationInput, onTimeout: () => void): (() => void) => {
  // If this process was paused, the data that has arrived since is read before the timeout takes effect.
  let cancel = (): void => clearTimeout(timer)
  const timer = setTimeout(() => {
    cancel = onceRead(onTimeout)
  }, Duration.toMillis(timeout))
  return () => cancel()
}

/** Calls back once the connection of a request is established. */
const whenConnected = (outgoing: ClientRequest, onConnected: () => void): void => {
  outgoing.on("socket", socket => {
    // `reusedSocket` is not used: Node leaves it false for a request that waited for another request's connection.
    if (connected.has(socket)) return onConnected()
    socket.once("secureConnect", () => {
      connected.add(socket)
      onConnected()
    })
  })
}

const post = (agent: Agent, { connect, silence }: Options, sent: Outgoing) =>
  Effect.async<Reply, NodeLinkError>(resume => {
    const { address, path, tenant, text, trace } = sent
    const parsed = parseAddress(address)
    if (Option.isNone(parsed)) {
      resume(new NodeUnreachable({ reason: `${address} is not an address` }))
      return
    }
    let isConnected = false
    const fail = (reason: string): void =>
      resume(isConnected ? new NodeSilent({ reason }) : new NodeUnreachable({ reason }))
    const outgoing: ClientRequest = httpsRequest({
      ...parsed.value,
      ...{ agent, method: "POST", path },
      headers: {
        "content-type": "application/json",
        "content-length": Buffer.byteLength(text),
        [tenantHeader]: tenant,
        ...trace
      }
    })
    const abandon = (timeout: Duration.DurationInput, problem: string) =>
      abandonAfter(timeout, () => {
        fail(`${problem} ${Monotonic.words(timeout)}`)
        outgoing.destroy()
      })
    let stopWaiting = abandon(connect, "no connection within")
    const isAlive = (): void => {
      stopWaiting()
      stopWaiting = abandon(silence, "no data for")
    }
    whenConnected(outgoing, () => {
      isConnected = true
      isAlive()
    })
    const displace = (): void => {
      resume(Effect.succeed({ is: "displaced" }))
      outgoing.destroy()
    }
    for (const claim of sent.claims) claim.offer({ onReclaim: displace })
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
      // A node starts a command only if it will answer 200.
      resume(new NodeRefused({ reason: `status ${statusCode}` }))
      response.resume()
    })
    outgoing.end(text)
    return Effect.sync(() => {
      stopWaiting()
      outgoing.destroy()
    })
  })

/** The connections to other nodes, which tenants share. The pool of a node is kept while there are commands for it. */
class PeerConnections {
  private readonly pools = new Map<string, FairPool>()

  constructor(
    private readonly connections: number,
    private readonly timeout: Duration.DurationInput
  ) {}

  /** Holds a connection to a node while an effect runs. */
  use<A, E>(
    address: string,
    tenant: string,
    work: (connection: Claim) => Effect.Effect<A, E>
  ): Effect.Effect<A, E | SessionsBusy> {
    return Effect.suspend(() => {
      const pool = this.pools.get(address) ?? sharedPool("connections to another node", this.connections)
      this.pools.set(address, pool)
      return Effect.ensuring(
        pool.use(tenant, 1, work, this.timeout),
        Effect.sync(() => {
          if (pool.used === 0 && pool.waiting === 0 && this.pools.get(address) === pool) this.pools.delete(address)
        })
      )
    })
  }
}

/** The link to the nodes that have the secret. */
class SecretLink implements NodeLinkShape {
  private readonly peers: PeerConnections
  private readonly memory: FairPool
  private warnedAt = Number.NEGATIVE_INFINITY

  constructor(
    private readonly agent: Agent,
    private readonly options: Options
  ) {
    this.peers = new PeerConnections(options.connections, options.connect)
    this.memory = sharedPool("memory for requests to other nodes", options.bytes)
  }

  readonly send: NodeLinkShape["send"] = (owner, command) =>
    this.transmit(owner, {
      path: paths.command,
      tenant: command.tenant,
      name: command.request.type,
      isFile: fileRequests.has(command.request.type),
      encode: () => encodeCommand(command)
    })

  readonly transfer: NodeLinkShape["transfer"] = (to, transferred) => {
    const message = {
      path: paths.transfer,
      tenant: tenantOf(transferred.session),
      name: "transfer",
      isFile: false,
      encode: () => encodeTransfer({ node: to.node, ...transferred })
    }
    return Effect.map(this.transmit(to, message), ({ is }) => is === "adopted")
  }

  readonly activity: NodeLinkShape["activity"] = (of, wanted) => {
    const message = {
      ...{ path: paths.activity, tenant: "", name: "activity", isFile: false },
      encode: () => encodeActivityRequest({ node: of.node, ...wanted })
    }
    return Effect.map(this.transmit(of, message), reply =>
      reply.is === "recorded" ? Option.some(reply.recorded) : Option.none()
    )
  }

  private transmit({ address, node }: ReachablePeer, { encode, isFile, name, path, tenant }: Message) {
    const { memory } = this
    return Effect.flatMap(currentTraceHeaders, trace =>
      this.peers.use(address, tenant, connection => {
        const text = encode()
        const size = Buffer.byteLength(text)
        const claiming = Effect.suspend(() => {
          const claim = memory.take(tenant, size + usualReply)
          return claim === undefined ? Effect.fail(memory.refusal()) : Effect.succeed(claim)
        })
        return Effect.acquireUseRelease(
          claiming,
          claim =>
            post(this.agent, this.options, {
              ...{ address, path, tenant, text, trace },
              replyBytes: isFile ? replyBytes.file : replyBytes.other,
              onReply: bytes => isFile || bytes <= usualReply || claim.resize(size + bytes),
              claims: path === paths.command ? [connection, claim] : []
            }),
          claim => Effect.sync(() => claim.release())
        )
      })
    ).pipe(
      Effect.tapError(error => (error._tag === "SessionsBusy" ? Effect.void : this.warn(node, address, error.reason))),
      Effect.withSpan(`NodeClient.${name}`, { kind: "client", attributes: { tenant, node }, captureStackTrace: false })
    )
  }

  private warn(node: string, address: string, reason: string): Effect.Effect<void> {
    return Effect.flatMap(Monotonic.millis, now => {
      if (now - this.warnedAt < Duration.toMillis(warningInterval)) return Effect.void
      this.warnedAt = now
      return Effect.annotateLogs(Effect.logWarning("Another node cannot be reached"), { node, address, reason })
    })
  }
}

/** A link whose connections end with the scope. */
export const make = (
  secret: Redacted.Redacted,
  given: Partial<Options> = {}
): Effect.Effect<NodeLinkShape, never, Scope.Scope> => {
  const options: Options = { ...defaults, ...given }
  return Effect.acquireRelease(
    // Node does not keep the connection of a request that has these options itself.
    Effect.sync(
      () =>
        new Agent({
          ...ofClient(secret),
          keepAlive: true,
          maxSockets: options.connections,
          maxFreeSockets: 16,
          timeout: Duration.toMillis(unusedTimeout)
        })
    ),
    agent => Effect.sync(() => agent.destroy())
  ).pipe(Effect.map(agent => new SecretLink(agent, options)))
}
