/**
 * Receives commands of other nodes for the sessions of this one. It carries them out or refuses them, and forwards none.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import { createServer, type Server } from "node:https"
import { isIP } from "node:net"
import * as Headers from "@effect/platform/Headers"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import { type Context, Duration, Effect, Either, Exit, Fiber, FiberSet, Option, Scope, type Tracer } from "effect"
import * as Supervision from "../../base/Supervision.ts"
import { type ListenFailed, listenFailed } from "../../Http/ListenFailed.ts"
import { Recorder } from "../../Operations/Activity/Recorder.ts"
import { type Claim, type FairPool, sharedPool } from "../FairPool.ts"
import {
  defect,
  execute,
  failureOf,
  fileRequests,
  largestAnswer,
  makeFileMemory,
  type RequestError
} from "../Requests.ts"
import { SessionNodes } from "../SessionNodes.ts"
import { Sessions, type SessionsBusy } from "../Sessions.ts"
import {
  commandBytes,
  decodeActivityRequest,
  decodeCommand,
  decodeTransfer,
  encodeReply,
  ofServer,
  paths,
  type Reply,
  tenantHeader,
  tenantOf
} from "./NodeLink.ts"
import { formatAddress, type NodeAddress, type Settings } from "./Settings.ts"

/** Limits of the commands in progress, for all nodes together. */
interface Limits {
  /** Maximum number of commands that are received or carried out. */
  readonly commands: number
  /** Maximum bytes of these commands. */
  readonly bytes: number
  /** How long a node may read nothing of an answer. After that its connection is closed. */
  readonly unread: Duration.DurationInput
}

const limits: Limits = { commands: 8192, bytes: 256 * 1024 * 1024, unread: Duration.seconds(30) }

/** The interval of heartbeats while a command is carried out. */
const heartbeatInterval = Duration.seconds(1)

/** Options of `node:http`, in milliseconds. */
const timeouts = {
  headersTimeout: Duration.toMillis("5 seconds"),
  requestTimeout: Duration.toMillis("10 seconds"),
  keepAliveTimeout: Duration.toMillis("1 minute")
} as const

/** How long commands may take to end after their interruption. */
const interruptionTimeout = Duration.seconds(1)

/** How long it may take to store that the node no longer takes commands. */
const withdrawalTimeout = Duration.millis(500)

/** The `Content-Length` of a request, if it has one. */
const lengthOf = ({ headers }: IncomingMessage): number | undefined =>
  headers["content-length"] === undefined ? undefined : Number(headers["content-length"])

/** The tenant in the header of a request. */
const tenantIn = ({ headers }: IncomingMessage): string | undefined => {
  const value = headers[tenantHeader]
  return typeof value === "string" ? value : undefined
}

/** The span in which the other node has sent a request, if it is traced. */
const spanOf = ({ headers }: IncomingMessage): Tracer.AnySpan | undefined =>
  Option.getOrUndefined(HttpTraceContext.fromHeaders(Headers.fromInput(headers)))

/** Reads a body. It does not call back if the connection ends before the body. */
const readBody = (request: IncomingMessage, onEnd: (text: string) => void): void => {
  const chunks: Array<Buffer> = []
  request.on("data", (chunk: Buffer) => chunks.push(chunk))
  request.on("end", () => onEnd(Buffer.concat(chunks).toString("utf8")))
}

/** The commands of other nodes and their memory, which tenants share. */
class Intake {
  private readonly commands: FairPool
  private readonly memory: FairPool

  constructor({ bytes, commands }: Limits) {
    this.commands = sharedPool("capacity for requests of other nodes", commands)
    this.memory = sharedPool("memory for requests of other nodes", bytes)
  }

  /** Admits a command of a tenant. Returns what it holds, or why it is refused. */
  admit(tenant: string, bytes: number): ReadonlyArray<Claim> | SessionsBusy {
    const command = this.commands.take(tenant, 1)
    if (command === undefined) return this.commands.refusal()
    const memory = this.memory.take(tenant, bytes)
    if (memory !== undefined) return [command, memory]
    command.release()
    return this.memory.refusal()
  }
}

/** Where a node takes commands, and their limits. Limits that are absent have defaults. */
export interface Options extends Settings {
  /** Maximum bytes of files that are being sent to other nodes. */
  readonly fileBytes: number
  readonly limits?: Partial<Limits>
}

/** The work for a command of another node. `send` replies to that node, and ends when the reply is sent. */
interface Work {
  readonly tenant: string
  readonly actor: string
  /** The name in spans and logs. */
  readonly name: string
  readonly run: (send: Send) => Effect.Effect<void, RequestError>
}

type Send = (reply: Reply) => Effect.Effect<void>

interface Node {
  readonly self: string
  readonly sessions: Context.Tag.Service<Sessions>
  readonly files: FairPool
  readonly recorder: Context.Tag.Service<Recorder>
}

/** The work for a command. Files hold their memory until they are sent. */
const ofCommand = ({ files, self, sessions }: Node, text: string): Work | undefined => {
  const decoded = decodeCommand(text)
  if (Either.isLeft(decoded)) return undefined
  const { node, request, ...caller } = decoded.right
  const { actor, tenant } = caller
  return {
    ...{ tenant, actor, name: request.type },
    run: send => {
      if (node !== self) return send({ is: "not_owner" })
      const work = Effect.flatMap(execute(sessions, caller, request), answer => send({ is: "answer", answer }))
      return fileRequests.has(request.type) ? files.use(tenant, largestAnswer(request.type), () => work) : work
    }
  }
}

/** The work for a session that is transferred to this node. */
const ofTransfer = ({ self, sessions }: Node, text: string): Work | undefined => {
  const decoded = Option.getOrUndefined(decodeTransfer(text))
  if (decoded === undefined) return undefined
  const { node, ...transferred } = decoded
  return {
    ...{ tenant: tenantOf(transferred.session), actor: transferred.from.node, name: "transfer" },
    run: send => {
      const adopted = node === self ? sessions.adopt(transferred) : Effect.succeed(false)
      return Effect.flatMap(adopted, isAdopted => send({ is: isAdopted ? "adopted" : "not_owner" }))
    }
  }
}

/** The work for a node that asks what this one has recorded. */
const ofActivity = ({ recorder, self }: Node, text: string): Work | undefined => {
  const decoded = Option.getOrUndefined(decodeActivityRequest(text))
  if (decoded === undefined) return undefined
  const { node, ...wanted } = decoded
  return {
    ...{ tenant: "", actor: "", name: "activity" },
    run: send =>
      Effect.flatMap(node === self ? recorder.read(wanted) : Effect.succeedNone, recorded =>
        send(Option.isNone(recorded) ? { is: "not_owner" } : { is: "recorded", recorded: recorded.value })
      )
  }
}

/** The work by path; `undefined` for a malformed text. */
const works: ReadonlyMap<string | undefined, (node: Node, text: string) => Work | undefined> = new Map([
  [paths.command, ofCommand],
  [paths.transfer, ofTransfer],
  [paths.activity, ofActivity]
])

const executeWork = (
  { actor, name, run, tenant }: Work,
  parent: Tracer.AnySpan | undefined,
  send: Send
): Effect.Effect<void> =>
  run(send).pipe(
    Effect.catchTag("SessionElsewhere", () => send({ is: "not_owner" })),
    Effect.catchAll(error => send({ is: "failure", failure: failureOf(error) })),
    Effect.catchAllDefect(error =>
      Effect.zipRight(
        Effect.logError("A command of another node failed", error),
        send({ is: "failure", failure: defect })
      )
    ),
    Effect.annotateLogs({ request: name, tenant, actor }),
    Effect.withSpan(`NodeServer.${name}`, { kind: "server", parent, attributes: { tenant }, captureStackTrace: false })
  )

/** Listens until the scope closes. Returns the bound address. */
const listen = (server: Server, { address }: Settings): Effect.Effect<NodeAddress, ListenFailed, Scope.Scope> => {
  // A host name may resolve to a proxy, or to one of several interfaces. In this case it listens on all of them.
  const at = isIP(address.host) === 0 ? { port: address.port } : address
  return Effect.acquireRelease(
    Effect.async<NodeAddress, ListenFailed>(resume => {
      const fail = (cause: Error): void => resume(listenFailed(address, cause))
      server.once("error", fail)
      server.listen(at, () => {
        server.off("error", fail).on("error", () => undefined)
        const bound = server.address()
        const port = typeof bound === "object" && bound !== null ? bound.port : address.port
        resume(Effect.succeed({ host: address.host, port }))
      })
    }),
    () =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  )
}

/** Refuses a command with a status other than 200: it was not carried out. The rest of it is not read. */
const reject = (response: ServerResponse, status: number): void => {
  response.writeHead(status, { "content-length": 0 }).end()
}

const replyTo = (response: ServerResponse, reply: Reply, onSent?: () => void): void => {
  const text = encodeReply(reply)
  if (!response.headersSent) {
    response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(text) })
  }
  response.end(text, onSent)
}

type Run = (work: Effect.Effect<void>) => Fiber.RuntimeFiber<void>

/** Carries out a command, with heartbeats until the reply. The end of the connection interrupts it. */
const begin = (run: Run, response: ServerResponse, work: Work, parent: Tracer.AnySpan | undefined): void => {
  const heartbeats = setInterval(() => {
    if (response.writableEnded) return
    if (!response.headersSent) response.writeHead(200, { "content-type": "application/json" })
    // White space before a JSON text is ignored.
    response.write(" ")
  }, Duration.toMillis(heartbeatInterval))
  const send: Send = reply =>
    Effect.async<void>(resume => {
      clearInterval(heartbeats)
      replyTo(response, reply, () => resume(Effect.void))
    })
  const fiber = run(executeWork(work, parent, send))
  response.on("close", () => {
    clearInterval(heartbeats)
    run(Effect.asVoid(Fiber.interrupt(fiber)))
  })
}

/** Admits requests of other nodes, and begins what they ask for. */
const onRequest =
  (self: Node, intake: Intake, run: Run) =>
  (request: IncomingMessage, response: ServerResponse): void => {
    request.on("error", () => undefined)
    response.on("error", () => undefined)
    const workOf = works.get(request.url)
    if (request.method !== "POST" || workOf === undefined) return reject(response, 404)
    const length = lengthOf(request)
    if (length === undefined) return reject(response, 411)
    if (length > commandBytes) return reject(response, 413)
    const tenant = tenantIn(request)
    if (tenant === undefined) return reject(response, 400)
    const admitted = intake.admit(tenant, length)
    if ("_tag" in admitted) return replyTo(response, { is: "failure", failure: failureOf(admitted) })
    for (const claim of admitted) {
      response.on("close", () => claim.release())
      if (request.url === paths.transfer) continue
      // The close of the response interrupts the command.
      const onReclaim = (): void => replyTo(response, { is: "displaced" })
      claim.offer({ isReclaimable: () => !response.writableEnded, onReclaim })
    }
    readBody(request, text => {
      if (response.writableEnded) return
      const work = workOf(self, text)
      if (work?.tenant !== tenant) return reject(response, 400)
      begin(run, response, work, spanOf(request))
    })
  }

/** Receives commands until the scope closes. Returns the bound address. */
export const make = (options: Options): Effect.Effect<NodeAddress, ListenFailed, Sessions | Scope.Scope> =>
  Effect.gen(function* () {
    const sessions = yield* Sessions
    const { advertise, self: node } = yield* SessionNodes
    const recorder = yield* Recorder
    const self: Node = { self: node, sessions, files: makeFileMemory(options.fileBytes), recorder }
    const work = yield* Effect.acquireRelease(Scope.make(), scope =>
      Supervision.within(interruptionTimeout, Scope.close(scope, Exit.void))
    )
    const run = yield* Scope.extend(FiberSet.makeRuntime<never>(), work)
    const limited: Limits = { ...limits, ...options.limits }
    const server = createServer({ ...ofServer(options.secret), ...timeouts, maxHeaderSize: 8192 })
    server.on("request", onRequest(self, new Intake(limited), run))
    // While a command is carried out, the heartbeats keep the connection.
    server.setTimeout(Duration.toMillis(limited.unread))
    // A reply to data that is not HTTP could be mistaken for the reply to a command in progress.
    server.on("clientError", (_error, socket) => socket.destroy())
    const address = yield* listen(server, options)
    yield* Effect.acquireRelease(advertise(formatAddress(address)), () =>
      Supervision.within(withdrawalTimeout, advertise(null))
    )
    yield* Effect.annotateLogs(Effect.logInfo("Listening for other nodes"), { ...address })
    return address
  })
