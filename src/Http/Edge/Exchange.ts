/**
 * One request and its answer. The methods of this class replace closures, which each request would have to create.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import * as Headers from "@effect/platform/Headers"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import { Cause, type Context, Effect, Either, Exit, type Fiber, FiberRef, HashMap, Option, type Tracer } from "effect"
import * as Direct from "../../base/Direct.ts"
import { type ApiError, BadRequest, defect, isApiError, statusOf } from "../ApiError.ts"
import { requestIdAnnotation, requestIdHeader, requestIdOf } from "../HeaderFields.ts"
import { admit, NodeIncoming } from "../Incoming.ts"
import { fromError, type Reply } from "../Reply.ts"
import * as Body from "../RequestBody.ts"
import { type Match, note, parseQuery, pathOf, problemOfTarget, type Router, unrouted } from "../Router.ts"
import { type Handshake, upgrading } from "../WebSocket/Handshake.ts"
import type { Endpoint } from "./Compile.ts"
import { type ResponseBatcher, send } from "./ResponseWriter.ts"

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

/** What the exchanges of a server share. */
export interface Serving {
  readonly router: Router<Endpoint>
  readonly bodyFormat: Context.Tag.Service<Body.BodyFormat>
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
    /** Makes the response, or returns the one that exists. */
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
    const { batcher, bodyFormat, router } = this.serving
    const url = request.url!
    const problem = problemOfTarget(url)
    if (problem !== undefined) return this.begin(Exit.fail(new BadRequest({ error: problem })))
    const target = pathOf(url)
    const match = router.find(request.method!, target)
    if (match === undefined) return this.begin(Exit.fail(unrouted(url, router)))
    const { guards, label, parameters, takesBody } = match.value
    this.parameters = parameters
    note(request, label)
    const incoming = new NodeIncoming(request, target, this.handshake)
    const admitted = admit(guards, incoming)
    if (admitted !== undefined) {
      const answered = Direct.flatMap(admitted, () =>
        takesBody
          ? Direct.flatMap(Body.json(request, bodyFormat), payload => this.handle(match, incoming, payload))
          : this.handle(match, incoming, undefined)
      )
      return this.begin(answered, label)
    }
    if (!takesBody) return this.begin(this.handle(match, incoming, undefined), label)
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
