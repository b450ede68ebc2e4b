/**
 * Middlewares for apis that @effect/platform serves: every error is JSON with the one field `error`, also those of the
 * router, the decoder and the authentication.
 */

import { IncomingMessage } from "node:http"
import type * as HttpApi from "@effect/platform/HttpApi"
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import { HttpApiDecodeError } from "@effect/platform/HttpApiError"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import type * as HttpApp from "@effect/platform/HttpApp"
import * as HttpLayerRouter from "@effect/platform/HttpLayerRouter"
import * as HttpServerError from "@effect/platform/HttpServerError"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import { Cause, Effect, Layer } from "effect"
import { type ApiError, BadRequest, defect, isApiError } from "../ApiError.ts"
import { describe } from "../Contract.ts"
import * as Cors from "../Cors.ts"
import { problemOfFields } from "../HeaderFields.ts"
import { fromError, refusal, toResponse } from "../Reply.ts"
import { problemOfTarget, type Router, routable, routesOf, unrouted } from "../Router.ts"

/** The error for the client, or `undefined` for a defect. */
const recognize = (error: unknown, routes: Router<string>): ApiError | undefined => {
  if (isApiError(error)) return error
  if (error instanceof HttpApiDecodeError) return new BadRequest({ error: describe(error.issues) })
  if (error instanceof HttpServerError.RouteNotFound) return unrouted(error.request.originalUrl, routes)
  if (error instanceof HttpServerError.RequestError) return new BadRequest({ error: "The request cannot be read" })
  return undefined
}

/** Normalizes the target of a request for the router, or refuses it if its target or its headers are malformed. */
const readTarget = <E, R>(app: HttpApp.Default<E, R>): HttpApp.Default<E, R> =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, request => {
    const { source } = request
    const fields = source instanceof IncomingMessage ? problemOfFields(source) : undefined
    if (fields !== undefined) return Effect.succeed(toResponse(refusal(fields.status, fields.error)))
    const problem = problemOfTarget(request.originalUrl)
    if (problem !== undefined) return Effect.succeed(toResponse(fromError(new BadRequest({ error: problem }))))
    const url = routable(request.url)
    return url === request.url
      ? app
      : Effect.provideService(app, HttpServerRequest.HttpServerRequest, request.modify({ url }))
  })

const answering =
  (routes: Router<string>) =>
  <E, R>(app: HttpApp.Default<E, R>): HttpApp.Default<E, R> =>
    Effect.catchAllCause(readTarget(app), cause => {
      if (Cause.isInterruptedOnly(cause)) return Effect.failCause(cause)
      const error = recognize(Cause.squash(cause), routes)
      if (error !== undefined) return Effect.succeed(toResponse(fromError(error)))
      return Cause.isDie(cause)
        ? Effect.as(Effect.logError("Defect while serving a request", cause), toResponse(fromError(defect())))
        : Effect.failCause(cause)
    })

/**
 * Answers every failure of an api as JSON.
 *
 * A host that mounts groups of this service provides it to its own api; failures that the host declared itself keep
 * their own encoding.
 */
export const errorLayer = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
) => HttpApiBuilder.middleware(answering(routesOf(api)))

/**
 * {@link errorLayer} for a host that adds the api to an `HttpLayerRouter`, over all routes of that router.
 *
 * There the platform itself answers a request that does not match its schema: 400 in its own shape.
 */
export const errorLayerRouter = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
) => HttpLayerRouter.middleware(answering(routesOf(api)), { global: true })

/**
 * Lets web pages of these origins send requests and read the answers. Provide it before {@link errorLayer}, so that
 * they can read errors too.
 */
export const corsLayer = (allowed: Cors.AllowedOrigins): Layer.Layer<never> =>
  Cors.isUsed(allowed)
    ? HttpApiBuilder.middleware(
        Effect.succeed(
          (app: HttpApp.Default): HttpApp.Default =>
            Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ headers, method }) => {
              const decision = Cors.decide(allowed, method, headers)
              if (decision === undefined) return app
              return decision.isComplete
                ? HttpServerResponse.empty({ status: 204, headers: decision.headers })
                : Effect.map(app, response =>
                    HttpServerResponse.setHeaders(response, Cors.withVary(decision.headers, response.headers.vary))
                  )
            })
        )
      )
    : Layer.empty
