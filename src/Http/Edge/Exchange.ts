/**
 * One request and its answer. The methods of this class replace closures, which each request would have to create.
 *
 * Small responses are written in batches, streams as fast as their clients read them. A write to a socket wakes the
 * client, which costs more than the write itself when the client sleeps on another processor. After the first of several
 * writes that processor is awake: a GET under 64 connections takes a fifth less of the server's time.
 */

import type { IncomingMessage, ServerResponse } from "node:http"
import * as Headers from "@effect/platform/Headers"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import {
  Cause,
  Effect,
  Either,
  Exit,
  type Fiber,
  FiberId,
  FiberRef,
  HashMap,
  Option,
  Stream,
  type Tracer
} from "effect"
import * as Direct from "../../base/Direct.ts"
import { drained } from "../../base/Time/EventLoop.ts"
import { type ApiError, BadRequest, defect, isApiError, ServiceUnavailable, statusOf } from "../ApiError.ts"
import type { Guard, Incoming } from "../Endpoints.ts"
import { requestIdAnnotation, requestIdHeader, requestIdOf } from "../HeaderFields.ts"
import { admit, NodeIncoming } from "../Incoming.ts"
import { type BodyWriter, fromError, isWriter, type Reply } from "../Reply.ts"
import type { Format } from "../RequestBody.ts"
import * as Body from "../RequestBody.ts"
import { type Match, note, parseQuery, pathOf, problemOfTarget, type Router, unrouted } from "../Router.ts"
import { accountOf, noteWritten, takenBy } from "../Server/UnsentBudget.ts"
import { type Handshake, upgrading } from "../WebSocket/Handshake.ts"

/**
 * Maximum number of responses in a batch. More gain little, and if all clients wait for one batch, the server idles.
 */
const maxBatch = 8

/** Above this number of bytes, the cost of waking the client is negligible. */
const smallBody = 32 * 1024

interface Pending {
  readonly response: ServerResponse
  readonly body: string | Uint8Array | undefined
  readonly encoding: BufferEncoding
}

/** Delays small responses until at most the end of the event loop's iteration, and never during long work. */
export class ResponseBatcher {
  #pending: Array<Pending> = []
  #isScheduled = false

  /** Ends a response, whose head is written, with a body of `bytes` bytes; text is UTF-8. */
  end(response: ServerResponse, body: string | Uint8Array | undefined, bytes: number): void {
    // Text with one byte for each character is ASCII: Latin-1 copies it instead of encoding it.
    this.#pending.push({ response, body, encoding: bytes === body?.length ? "latin1" : "utf8" })
    if (this.#pending.length >= maxBatch || bytes > smallBody) this.flush()
    else if (!this.#isScheduled) {
      this.#isScheduled = true
      // Runs after all reads of this iteration.
      setImmediate(this.#onImmediate)
    }
  }

  /** Flushes before a body of `bytes` bytes is parsed, if that takes long. */
  flushBefore(bytes: number): void {
    if (bytes > smallBody) this.flush()
  }

  readonly #onImmediate = (): void => {
    this.#isScheduled = false
    this.flush()
  }

  /** Writes the pending responses. To be called before long work. */
  flush(): void {
    if (this.#pending.length === 0) return
    const batch = this.#pending
    this.#pending = []
    for (const { response, body, encoding } of batch) {
      // A completed response has no socket.
      const { socket } = response
      if (typeof body === "string" || body === undefined) response.end(body, encoding)
      else endShared(response, body)
      noteWritten(socket)
    }
  }
}

/** Ends a response with bytes that may be sent to many clients at once. */
const endShared = (response: ServerResponse, body: Uint8Array): void => {
  const { socket } = response
  response.end(body)
  if (socket === null || socket.writableLength === 0) return
  const account = accountOf(socket)
  if (account === undefined) return
  account.share(body)
  response.once("close", () => account.unshare(body))
}

/**
 * Writes a piece of a body, and says whether more may follow at once. Since version 26 node keeps pieces in the response
 * until the next tick, where the `writableLength` of its socket does not count them.
 */
const writePiece = (response: ServerResponse, piece: Uint8Array): boolean => {
  response.write(piece)
  if (response.writableCorked > 0) response.uncork()
  return !response.writableNeedDrain
}

/**
 * Sends a piece of a body, which is in memory until all of it has been sent: for this client alone, or for all that get
 * the same bytes. The server disconnects a client that reads nothing.
 */
const write = (response: ServerResponse, chunk: Uint8Array): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { socket } = response
    if (writePiece(response, chunk) || response.destroyed) return Effect.void
    const account = accountOf(socket)
    if (account === undefined || socket === null || socket.writableLength === 0) return drained(response)
    account.share(chunk)
    return Effect.ensuring(
      drained(response),
      Effect.sync(() => account.unshare(chunk))
    )
  })

/** Sends a body in pieces, as fast as the client reads it. A failure during that closes the connection. */
const sendStream = (body: Stream.Stream<Uint8Array>, response: ServerResponse): Effect.Effect<void> =>
  Stream.runForEach(body, chunk => write(response, chunk)).pipe(
    Effect.zipRight(Effect.sync(() => response.end())),
    Effect.catchAllCause(cause =>
      Effect.zipRight(
        Effect.logWarning("An answer was cut off half-way", cause),
        Effect.sync(() => response.destroy())
      )
    )
  )

const writeDirectly = (writer: BodyWriter, response: ServerResponse): void => {
  const { socket } = response
  const account = accountOf(socket)
  const isWritable = (): boolean => !response.writableEnded && !response.destroyed
  if (account !== undefined) account.protocol = { closeSlow: () => writer.onSlow() }
  response.on("drain", () => isWritable() && writer.onDrain())
  response.once("close", () => account?.endProtocol())
  writer.onOpen({
    get unsent() {
      return response.writableLength
    },
    get sent() {
      return socket === null ? 0 : takenBy(socket) + (account?.sentByKernel ?? 0)
    },
    write: bytes => {
      if (!isWritable()) return
      writePiece(response, bytes)
      noteWritten(socket)
    },
    end: () => {
      account?.endProtocol()
      response.end()
    },
    cut: () => response.destroy()
  })
}

/** Whether the budget of unsent bytes has no room for a large answer; small ones are always sent. */
const isTooMuch = (response: ServerResponse, bytes: number): boolean =>
  bytes > alwaysSent && accountOf(response.socket)?.admits(bytes) === false

const alwaysSent = 64 * 1024

const overloaded = (): Reply => fromError(ServiceUnavailable.later("Too many bytes wait for clients to read them"))

/**
 * Writes an answer with the request's `id`. The rest of a stream is released when the client disconnects, or
 * has already disconnected.
 */
export const send = (
  reply: Reply,
  response: ServerResponse,
  isHead: boolean,
  id: string,
  batcher: ResponseBatcher,
  fork: (effect: Effect.Effect<void>) => Fiber.RuntimeFiber<void>
): void => {
  const { body, headers, release, status } = reply
  if (response.destroyed) {
    if (release !== undefined) fork(release)
    return
  }
  if (typeof body === "string" || body instanceof Uint8Array) {
    const bytes = typeof body === "string" ? Buffer.byteLength(body) : body.length
    if (isTooMuch(response, bytes)) return send(overloaded(), response, isHead, id, batcher, fork)
    const fields: Array<string | number> = [requestIdHeader, id, "content-length", bytes]
    for (const name in headers) fields.push(name, headers[name]!)
    response.writeHead(status, fields)
    batcher.end(response, isHead ? undefined : body, bytes)
    return
  }
  response.writeHead(status, { ...headers, [requestIdHeader]: id })
  if (body === undefined || isHead) {
    response.end()
    if (release !== undefined) fork(release)
    return
  }
  if (isWriter(body)) {
    response.once("close", () => release && fork(release))
    try {
      return writeDirectly(body, response)
    } catch (error) {
      response.destroy()
      return void fork(Effect.logError("An answer was cut off at its start", Cause.die(error)))
    }
  }
  const sending = fork(
    release === undefined ? sendStream(body, response) : Effect.ensuring(sendStream(body, response), release)
  )
  response.once("close", () => sending.unsafeInterruptAsFork(FiberId.none))
}

/** A 4xx, such as 404, is not a failure of the service: its span ends with OK. */
const answered = <R>(handler: Effect.Effect<Reply, ApiError, R>): Effect.Effect<Reply, ApiError, R> =>
  Effect.catchIf(
    handler,
    error => statusOf(error) < 500,
    error => Effect.succeed(fromError(error))
  )

/**
 * Runs a request's handler in its own span, a child of the client's if its `traceparent` names one. A request that
 * matches no endpoint has no route. `onSpan` gets the span, for other log lines of the request.
 */
const inServerSpan = <R>(
  handler: Effect.Effect<Reply, ApiError, R>,
  route: string | undefined,
  request: IncomingMessage,
  id: string,
  onSpan: (span: Tracer.Span) => void
): Effect.Effect<Reply, ApiError, R> =>
  Effect.useSpan(
    `http.server ${request.method}`,
    {
      parent: Option.getOrUndefined(HttpTraceContext.fromHeaders(Headers.fromInput(request.headers))),
      kind: "server",
      captureStackTrace: false,
      attributes: {
        "http.request.method": request.method,
        ...(route === undefined ? {} : { "http.route": route }),
        "http.request.id": id,
        "url.path": request.url?.split("?", 1)[0],
        ...(request.headers["user-agent"] === undefined
          ? {}
          : { "user_agent.original": request.headers["user-agent"] }),
        ...(request.socket.remoteAddress === undefined ? {} : { "client.address": request.socket.remoteAddress })
      }
    },
    span => {
      onSpan(span)
      return answered(Effect.withParentSpan(handler, span)).pipe(
        Effect.tapBoth({
          onSuccess: reply => Effect.sync(() => span.attribute("http.response.status_code", reply.status)),
          onFailure: error => Effect.sync(() => span.attribute("http.response.status_code", statusOf(error)))
        })
      )
    }
  )

/** A request's parts before they are decoded. */
export interface Parts {
  readonly path: Readonly<Record<string, string>>
  readonly query: Readonly<Record<string, string | ReadonlyArray<string>>>
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  /** The parsed body, if the endpoint takes one. */
  readonly payload: unknown
}

export interface Endpoint {
  /** `<group>.<endpoint>`, the name of its span. */
  readonly name: string
  /** The route template as metrics and spans show it. */
  readonly label: string
  /** The checks of its middlewares. */
  readonly guards: ReadonlyArray<Guard>
  /** How its body is parsed, if it takes one. */
  readonly bodyFormat: Format | undefined
  /** The names of its query parameters. */
  readonly parameters: ReadonlySet<string>
  /** Whether its answer is a WebSocket. */
  readonly isSocket: boolean
  readonly decode: (parts: Parts, incoming: Incoming) => Either.Either<never, BadRequest>
  readonly handler: (request: never) => Effect.Effect<Reply, ApiError>
}

/** What the exchanges of a server share. */
export interface Serving {
  readonly router: Router<Endpoint>
  readonly batcher: ResponseBatcher
  readonly runFork: <A, E>(effect: Effect.Effect<A, E>) => Fiber.RuntimeFiber<A, E>
  /** Makes an id for a request that names none. */
  readonly nextId: () => string
  /** Whether each answer is logged. */
  readonly isDetailed: boolean
  /** Whether each request has a span. */
  readonly isTraced: boolean
}

/** Decodes parameters in place. Their encoding has already been checked. */
const decodeParams = (params: Record<string, string>): Record<string, string> => {
  for (const name in params) {
    const text = params[name]!
    if (text.includes("%")) params[name] = decodeURIComponent(text)
  }
  return params
}

/**
 * Annotates every log line of the fiber that runs the effect, which must serve only this request. It costs a fraction
 * of `Effect.annotateLogs`, which restores the annotations at the end.
 */
const withRequestId = <A, E, R>(id: string, effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.zipRight(
    FiberRef.update(FiberRef.currentLogAnnotations, HashMap.set<string, unknown>(requestIdAnnotation, id)),
    effect
  )

const noop = (): void => {}

const noParameters: ReadonlySet<string> = new Set()

/** A target for the log, without the values of unknown parameters, which may be secrets. */
const withoutUnknown = (url: string, known: ReadonlySet<string>): string => {
  const mark = url.indexOf("?")
  if (mark === -1) return url
  const parameters = url.slice(mark + 1).split("&")
  const shown = parameters.map(parameter => {
    const [name = ""] = parameter.split("=", 1)
    return known.has(name) || name === parameter ? parameter : `${name}=…`
  })
  return `${url.slice(0, mark)}?${shown.join("&")}`
}

/** A request that is being served. */
export class Exchange {
  private readonly id: string
  private span: Tracer.Span | undefined = undefined
  /** The query parameters of its endpoint. */
  private parameters = noParameters

  constructor(
    private readonly serving: Serving,
    private readonly request: IncomingMessage,
    private readonly response: () => ServerResponse,
    private readonly handshake: Handshake | undefined,
    /** Calls back when the client disconnects. Returns a function that stops this. */
    private readonly onLeave: (leave: () => void) => () => void
  ) {
    this.id = requestIdOf(request.headers[requestIdHeader]) ?? serving.nextId()
  }

  /** Finds the endpoint, admits the request, and reads its body. */
  serve(): void {
    const { request } = this
    const { batcher, router } = this.serving
    const url = request.url!
    const problem = problemOfTarget(url)
    if (problem !== undefined) return this.begin(Exit.fail(new BadRequest({ error: problem })))
    const target = pathOf(url)
    const match = router.find(request.method!, target)
    if (match === undefined) return this.begin(Exit.fail(unrouted(url, router)))
    const { bodyFormat, guards, label, parameters } = match.value
    this.parameters = parameters
    note(request, label)
    const incoming = new NodeIncoming(request, target, this.handshake)
    const admitted = admit(guards, incoming)
    if (admitted !== undefined) {
      const answered = Direct.flatMap(admitted, () =>
        bodyFormat === undefined
          ? this.handle(match, incoming, undefined)
          : Direct.flatMap(Body.json(request, bodyFormat), payload => this.handle(match, incoming, payload))
      )
      return this.begin(answered, label)
    }
    if (bodyFormat === undefined) return this.begin(this.handle(match, incoming, undefined), label)
    Body.read(
      request,
      bodyFormat,
      json => this.begin(Either.isLeft(json) ? Exit.fail(json.left) : this.handle(match, incoming, json.right), label),
      bytes => batcher.flushBefore(bytes)
    )
  }

  /** The answer of the handler to the admitted request with this body. */
  private handle(
    { params, value }: Match<Endpoint>,
    incoming: NodeIncoming,
    payload: unknown
  ): Effect.Effect<Reply, ApiError> {
    const { decode, handler, isSocket, name } = value
    const { headers, url = "" } = this.request
    const mark = url.indexOf("?")
    const path = decodeParams(params)
    const query = mark === -1 ? {} : parseQuery(url.slice(mark + 1))
    const decoded = decode({ path, query, headers, payload }, incoming)
    if (Either.isLeft(decoded)) return Exit.fail(decoded.left)
    const reply = Direct.suspend(() => handler(decoded.right))
    const effect = isSocket ? Effect.flatMap(reply, upgrading(this.handshake)) : reply
    return this.serving.isTraced ? Effect.withSpan(effect, name, { captureStackTrace: false }) : effect
  }

  /** Runs the effect and sends its answer. A refused request also has a span, so that its log lines name one. */
  private begin(effect: Effect.Effect<Reply, ApiError>, route?: string): void {
    this.perform(this.serving.isTraced ? this.inSpan(effect, route) : effect)
  }

  private inSpan(effect: Effect.Effect<Reply, ApiError>, route: string | undefined): Effect.Effect<Reply, ApiError> {
    return inServerSpan(effect, route, this.request, this.id, span => {
      this.span = span
    })
  }

  private perform(effect: Effect.Effect<Reply, ApiError>): void {
    const { batcher, runFork } = this.serving
    let isOver = false
    let forget = noop
    const interrupt = Direct.run(
      effect,
      // A fiber may take long, as for pages and lists.
      work => {
        batcher.flush()
        return runFork(withRequestId(this.id, work))
      },
      exit => {
        isOver = true
        forget()
        this.answer(this.replyOf(exit))
      }
    )
    if (!isOver) forget = this.onLeave(interrupt)
  }

  /** The answer for an exit, or none if the client disconnected before. */
  private replyOf(exit: Exit.Exit<Reply, ApiError>): Reply | undefined {
    if (exit._tag === "Success") return exit.value
    if (Cause.isInterruptedOnly(exit.cause)) return undefined
    const error = Cause.squash(exit.cause)
    return isApiError(error) ? fromError(error) : this.replyOfDefect(exit.cause)
  }

  private replyOfDefect(cause: Cause.Cause<unknown>): Reply {
    this.fork(Effect.logError("Defect while serving a request", cause))
    return fromError(defect())
  }

  private answer(reply: Reply | undefined): void {
    const { batcher, isDetailed } = this.serving
    if (isDetailed) this.logDetail(reply)
    if (reply === undefined) return void this.response().destroy()
    if (reply.upgrade !== undefined) return
    const isHead = this.request.method === "HEAD"
    const written = this.response()
    const fork = (effect: Effect.Effect<void>) => this.fork(effect)
    try {
      send(reply, written, isHead, this.id, batcher, fork)
    } catch (error) {
      // The headers cannot be written; node has already set the status message.
      written.statusMessage = ""
      send(this.replyOfDefect(Cause.die(error)), written, isHead, this.id, batcher, fork)
    }
  }

  private logDetail(reply: Reply | undefined): void {
    const { method, url = "" } = this.request
    const detail = { method, target: withoutUnknown(url, this.parameters), status: reply?.status ?? "aborted" }
    this.fork(Effect.annotateLogs(Effect.logDebug("Answered a request"), detail))
  }

  /** Runs an effect other than the handler with the request's id, and in its span if it has one. */
  private fork(effect: Effect.Effect<void>): Fiber.RuntimeFiber<void> {
    const { id, serving, span } = this
    return serving.runFork(withRequestId(id, span === undefined ? effect : Effect.withParentSpan(effect, span)))
  }
}
