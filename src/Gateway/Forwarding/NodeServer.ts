/**
 * Takes commands of other nodes for the sessions of this one. It carries them out or refuses them, and forwards none.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import { createServer, type Server } from "node:https"
import { isIP } from "node:net"
import { type Context, Effect, Either, Exit, Fiber, FiberSet, Scope } from "effect"
import { type ListenFailed, listenFailed } from "../../Http/ListenFailed.ts"
import * as Supervision from "../../Supervision.ts"
import { FileCalls } from "../FileCalls.ts"
import { frameBytes } from "../Protocol/Limits.ts"
import { carryOut, defect, failureOf } from "../Requests.ts"
import { SessionNodes } from "../SessionNodes.ts"
import { Sessions } from "../Sessions.ts"
import { type Command, decodeCommand, encodeReply, type Reply } from "./Command.ts"
import * as Security from "./Security.ts"
import { formatAddress, type NodeAddress, type Settings } from "./Settings.ts"

/** Bytes of a command: numbers may be longer than a client wrote them. */
const commandBytes = 4 * frameBytes

/** Bytes of the commands that arrive or are carried out, over all nodes. */
const heldBytes = 256 * 1024 * 1024

/** Commands at a time, over all nodes. */
const mostCommands = 8192

/** Milliseconds between two signs of life while a command is carried out. */
const signInterval = 1000

/** Milliseconds. */
const timeouts = { headersTimeout: 5000, requestTimeout: 10_000, keepAliveTimeout: 60_000 } as const

/** How long commands may take to end once they are interrupted. */
const interruption = "1 second"

/** How long it may take to tell the others that the node takes no commands any more. */
const farewellLimit = "500 millis"

const fileTypes: ReadonlySet<string> = new Set(["list_files", "read_file", "file_history", "file_at_iteration"])

/** Reads a body of limited size. It does not call back if the connection ends before the body. */
const readBody = (
  request: IncomingMessage,
  onBytes: (bytes: number) => boolean,
  onEnd: (text: string) => void
): void => {
  const chunks: Array<Buffer> = []
  request.on("data", (chunk: Buffer) => {
    if (onBytes(chunk.length)) chunks.push(chunk)
  })
  request.on("end", () => onEnd(Buffer.concat(chunks).toString("utf8")))
}

export interface Options extends Settings {
  /** Bytes of files on their way to other nodes. */
  readonly fileBytes: number
}

/** Carries a command out; files hold their memory until they are sent. */
const execute = (
  sessions: Context.Tag.Service<Sessions>,
  files: FileCalls,
  node: string,
  command: Command,
  send: (reply: Reply) => Effect.Effect<void>
): Effect.Effect<void> => {
  const { actor, commandId, request, tenant } = command
  if (command.node !== node) return send({ is: "not_owner" })
  const work = Effect.flatMap(carryOut(sessions, { tenant, actor, commandId }, request), answer =>
    send({ is: "answer", answer })
  )
  return (fileTypes.has(request.type) ? files.use(tenant, request.type, () => work) : work).pipe(
    Effect.catchTag("SessionElsewhere", () => send({ is: "not_owner" })),
    Effect.catchAll(error => send({ is: "failure", failure: failureOf(error) })),
    Effect.catchAllDefect(error =>
      Effect.zipRight(
        Effect.logError("A command of another node failed", error),
        send({ is: "failure", failure: defect })
      )
    ),
    Effect.annotateLogs({ request: request.type, tenant, actor })
  )
}

/** Listens until the scope closes, and returns where. */
const listen = (server: Server, { address }: Settings): Effect.Effect<NodeAddress, ListenFailed, Scope.Scope> => {
  // A name may lead to a proxy, or to one of several interfaces.
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

/** Takes commands until the scope closes, and returns where. */
export const make = (options: Options): Effect.Effect<NodeAddress, ListenFailed, Sessions | Scope.Scope> =>
  Effect.gen(function* () {
    const sessions = yield* Sessions
    const { advertise, self: node } = yield* SessionNodes
    const files = new FileCalls(options.fileBytes)
    const work = yield* Effect.acquireRelease(Scope.make(), scope =>
      Supervision.within(interruption, Scope.close(scope, Exit.void))
    )
    const run = yield* Scope.extend(FiberSet.makeRuntime<never>(), work)
    let held = 0
    let commands = 0

    const reject = (response: ServerResponse, status: number): void => {
      response.writeHead(status, { connection: "close" }).end()
    }

    const onCommand = (response: ServerResponse, command: Command): void => {
      const signs = setInterval(() => {
        if (!response.headersSent) response.writeHead(200, { "content-type": "application/json" })
        // White space before a JSON text means nothing.
        response.write(" ")
      }, signInterval)
      const send = (reply: Reply): Effect.Effect<void> =>
        Effect.async<void>(resume => {
          clearInterval(signs)
          const text = encodeReply(reply)
          if (!response.headersSent) {
            response.writeHead(200, {
              "content-type": "application/json",
              "content-length": Buffer.byteLength(text)
            })
          }
          response.end(text, () => resume(Effect.void))
        })
      const fiber = run(execute(sessions, files, node, command, send))
      response.on("close", () => {
        clearInterval(signs)
        run(Fiber.interrupt(fiber))
      })
    }

    const server = createServer({ ...Security.ofServer(options.secret), ...timeouts, maxHeaderSize: 8192 })
    server.on("request", (request: IncomingMessage, response: ServerResponse) => {
      request.on("error", () => undefined)
      response.on("error", () => undefined)
      if (request.method !== "POST" || request.url !== "/commands") return reject(response, 404)
      if (commands >= mostCommands) return reject(response, 503)
      commands++
      let bytes = 0
      response.on("close", () => {
        commands--
        held -= bytes
      })
      const onBytes = (length: number): boolean => {
        bytes += length
        held += length
        const isTooMuch = bytes > commandBytes || held > heldBytes
        if (isTooMuch && !response.headersSent) reject(response, bytes > commandBytes ? 413 : 503)
        return !isTooMuch
      }
      readBody(request, onBytes, text => {
        if (response.headersSent) return
        const decoded = decodeCommand(text)
        if (Either.isLeft(decoded)) return reject(response, 400)
        onCommand(response, decoded.right)
      })
    })
    const address = yield* listen(server, options)
    yield* Effect.acquireRelease(advertise(formatAddress(address)), () =>
      Supervision.within(farewellLimit, advertise(null))
    )
    yield* Effect.annotateLogs(Effect.logInfo("Listening for other nodes"), { ...address })
    return address
  })
