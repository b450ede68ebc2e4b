/**
 * Serves an `HttpApi` on `node:http`: its endpoints are compiled once into a router, in place of the platform's
 * machinery. A direct answer needs no fiber, unless tracing is on.
 */
import { type IncomingMessage, ServerResponse } from "node:http"
import type * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import type * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import { Cause, Effect, Either, Exit, FiberRef, HashMap, LogLevel, Option, Runtime, type Tracer } from "effect"
import * as Direct from "../../Direct.ts"
import { type ApiError, BadRequest, defect, isApiError } from "../ApiError.ts"
import type { JsonBody } from "../Contract.ts"
import type { AnyHandlers, Guard, Handlers } from "../Endpoints.ts"
import { requestIdAnnotation, requestIdHeader, requestIdOf, requestIds } from "../HeaderFields.ts"
import { admit, NodeIncoming } from "../Incoming.ts"
import { fromError, type Reply } from "../Reply.ts"
import * as Body from "../RequestBody.ts"
import { type Match, note, parseQuery, pathOf, problemOfTarget, unrouted } from "../Router.ts"
import type { Listeners } from "../Server/Gate.ts"
import { type Handshake, upgrading } from "../WebSocket/Handshake.ts"
import { compile, type Endpoint } from "./Compile.ts"
import { ResponseBatcher, send } from "./ResponseWriter.ts"
import { inServerSpan } from "./Span.ts"

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

/** Runs an effect of the request other than its handler with the request's id, and in its span if it has one. */
type ForRequest = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

/** The handlers of each group of an api, by its name. */
export type HandlersOf<Groups extends HttpApiGroup.HttpApiGroup.Any> = {
  readonly [Group in Groups as Group["identifier"]]: Effect.Effect<Handlers<Group>, never, unknown>
}

type MiddlewareOfGroup<Group> =
  Group extends HttpApiGroup.HttpApiGroup<infer _Id, infer Endpoints, infer _E, infer R, infer _T>
    ? R | HttpApiEndpoint.HttpApiEndpoint.Context<Endpoints>
    : never

type ContextOf<Handled> = Handled extends Effect.Effect<infer _A, infer _E, infer R> ? R : never

/** What the handlers of all groups require. */
export type HandlersContext<All> = ContextOf<All[keyof All]>

/** The middlewares of an api's endpoints. */
export type MiddlewareOf<Groups, R> = Exclude<
  HttpApiMiddleware.HttpApiMiddleware.Only<R | MiddlewareOfGroup<Groups>>,
  JsonBody
>

/** The middlewares that guards implement. */
export type GuardedBy<Known> = Known extends Guard<infer Middleware> ? Middleware : never

/** Guards that implement all these middlewares; others do not compile. */
export type GuardsFor<Middleware, Guarded> = [Exclude<Middleware, Guarded>] extends [never]
  ? unknown
  : { readonly "there is no guard for this middleware": Exclude<Middleware, Guarded> }

/**
 * Compiles the listeners for an api. `groups` has the handlers of each of its groups, by name, and `guards` implements
 * its middlewares. A group without handlers, and a middleware without a guard, do not compile.
 */
export const make = <
  Id extends string,
  Groups extends HttpApiGroup.HttpApiGroup.Any,
  E,
  R,
  const All extends HandlersOf<Groups>,
  R2,
  Known extends Guard
>(
  api: HttpApi.HttpApi<Id, Groups, E, R>,
  groups: All,
  guards: Effect.Effect<ReadonlyArray<Known>, never, R2> & GuardsFor<MiddlewareOf<Groups, R>, GuardedBy<Known>>
): Effect.Effect<Listeners, never, HandlersContext<All> | R2 | Body.BodyFormat> =>
  Effect.gen(function* () {
    type Needs = HandlersContext<All>
    // The types of the handlers have been checked; requests are decoded by the schemas of their groups.
    const handlers = Effect.all(groups as Readonly<Record<string, Effect.Effect<AnyHandlers, never, Needs>>>)
    const router = compile(api, yield* handlers, yield* guards as Effect.Effect<ReadonlyArray<Known>, never, R2>)
    const bodyFormat = yield* Body.BodyFormat
    // A failure of a handler is an ordinary answer; defects are logged separately.
    const runtime = yield* Effect.locally(Effect.runtime<never>(), FiberRef.unhandledErrorLogLevel, Option.none())
    const runFork = Runtime.runFork(runtime)
    const batcher = new ResponseBatcher()
    const nextId = yield* requestIds
    // Read once, so that in production a request pays nothing for lines that are not logged.
    const detailed = LogLevel.lessThanEqual(yield* FiberRef.get(FiberRef.currentMinimumLogLevel), LogLevel.Debug)
    const traced = yield* FiberRef.get(FiberRef.currentTracerEnabled)

    const logDetail = (request: IncomingMessage, reply: Reply | undefined, forRequest: ForRequest): void => {
      const detail = { method: request.method, target: request.url, status: reply?.status ?? "aborted" }
      runFork(forRequest(Effect.annotateLogs(Effect.logDebug("Answered a request"), detail)))
    }

    const replyOfDefect = (cause: Cause.Cause<unknown>, forRequest: ForRequest): Reply => {
      runFork(forRequest(Effect.logError("Defect while serving a request", cause)))
      return fromError(defect())
    }

    /** The answer for an exit, or none if the client disconnected before. */
    const replyOf = (exit: Exit.Exit<Reply, ApiError>, forRequest: ForRequest): Reply | undefined => {
      if (exit._tag === "Success") return exit.value
      if (Cause.isInterruptedOnly(exit.cause)) return undefined
      const error = Cause.squash(exit.cause)
      if (isApiError(error)) return fromError(error)
      return replyOfDefect(exit.cause, forRequest)
    }

    const handle = (
      request: IncomingMessage,
      response: () => ServerResponse,
      handshake: Handshake | undefined,
      onLeave: (leave: () => void) => () => void
    ): void => {
      const isHead = request.method === "HEAD"
      const id = requestIdOf(request.headers[requestIdHeader]) ?? nextId()
      let span: Tracer.Span | undefined
      const forRequest: ForRequest = effect =>
        withRequestId(id, span === undefined ? effect : Effect.withParentSpan(effect, span))
      const answer = (reply: Reply | undefined): void => {
        if (detailed) logDetail(request, reply, forRequest)
        if (reply === undefined) return void response().destroy()
        if (reply.upgrade !== undefined) return
        const written = response()
        const forkHere = (effect: Effect.Effect<void>) => runFork(forRequest(effect))
        try {
          send(reply, written, isHead, id, batcher, forkHere)
        } catch (error) {
          // The headers cannot be written; node has already set the status message.
          written.statusMessage = ""
          send(replyOfDefect(Cause.die(error), forRequest), written, isHead, id, batcher, forkHere)
        }
      }
      /** Runs an effect in a fiber, which may take long, as for pages and lists. */
      const fork = (effect: Effect.Effect<Reply, ApiError>) => {
        batcher.flush()
        return runFork(withRequestId(id, effect))
      }
      const perform = (effect: Effect.Effect<Reply, ApiError>): void => {
        let isOver = false
        let forget = noop
        const interrupt = Direct.run(effect, fork, exit => {
          isOver = true
          forget()
          answer(replyOf(exit, forRequest))
        })
        if (!isOver) forget = onLeave(interrupt)
      }
      const inSpan = (effect: Effect.Effect<Reply, ApiError>, route?: string) =>
        inServerSpan(effect, route, request, id, made => {
          span = made
        })
      const url = request.url!
      const mark = url.indexOf("?")
      const target = pathOf(url)
      /** A refused request also has a span, so that its log lines name one. */
      const begin = (effect: Effect.Effect<Reply, ApiError>, route?: string): void =>
        perform(traced ? inSpan(effect, route) : effect)
      const problem = problemOfTarget(url)
      if (problem !== undefined) return begin(Exit.fail(new BadRequest({ error: problem })))
      const match: Match<Endpoint> | undefined = router.find(request.method!, target)
      if (match === undefined) return begin(Exit.fail(unrouted(url, router)))
      const { decode, guards, handler, isSocket, label, name, takesBody } = match.value
      note(request, label)
      const incoming = new NodeIncoming(request, target, handshake)
      /** The answer to an admitted request with this body. */
      const handled = (payload: unknown): Effect.Effect<Reply, ApiError> => {
        const path = decodeParams(match.params)
        const query = mark === -1 ? {} : parseQuery(url.slice(mark + 1))
        const decoded = decode({ path, query, headers: request.headers, payload }, incoming)
        if (Either.isLeft(decoded)) return Exit.fail(decoded.left)
        const reply = Direct.suspend(() => handler(decoded.right))
        const effect = isSocket ? Effect.flatMap(reply, upgrading(handshake)) : reply
        return traced ? Effect.withSpan(effect, name, { captureStackTrace: false }) : effect
      }
      const admitted = admit(guards, incoming)
      if (admitted !== undefined) {
        const answered = Direct.flatMap(admitted, () =>
          takesBody ? Direct.flatMap(Body.json(request, bodyFormat), handled) : handled(undefined)
        )
        return begin(answered, label)
      }
      if (!takesBody) return begin(handled(undefined), label)
      Body.read(
        request,
        bodyFormat,
        json => begin(Either.isLeft(json) ? Exit.fail(json.left) : handled(json.right), label),
        bytes => batcher.flushBefore(bytes)
      )
    }

    return {
      request: (request, response) =>
        handle(
          request,
          () => response,
          undefined,
          leave => {
            response.once("close", () => response.writableEnded || leave())
            return noop
          }
        ),
      upgrade: (request, socket, head) => {
        // An answer other than the handshake is written as an ordinary response on the connection.
        const response = () => {
          const response = new ServerResponse(request)
          response.assignSocket(socket as never)
          response.shouldKeepAlive = false
          response.once("finish", () => socket.end())
          return response
        }
        handle(request, response, { request, socket, head }, leave => {
          socket.once("close", leave)
          // A long-lived WebSocket must not keep the request of its handshake in memory.
          return () => socket.off("close", leave)
        })
      },
      upgradable: target =>
        problemOfTarget(target) === undefined && router.find("GET", pathOf(target))?.value.isSocket === true
    }
  })
