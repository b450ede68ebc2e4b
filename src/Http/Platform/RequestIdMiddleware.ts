import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import type * as HttpApp from "@effect/platform/HttpApp"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import { Effect, type Layer } from "effect"
import { requestIdAnnotation, requestIdHeader, requestIdOf, requestIds } from "../HeaderFields.ts"

/**
 * Names the requests to an api that @effect/platform serves. Provide it before `ErrorMiddleware`, so that what that
 * logs and answers has the name too.
 */
export const layer: Layer.Layer<never> = HttpApiBuilder.middleware(
  Effect.map(
    requestIds,
    next =>
      (app: HttpApp.Default): HttpApp.Default =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, request => {
          const id = requestIdOf(request.headers[requestIdHeader]) ?? next()
          return Effect.map(
            Effect.annotateLogs(app, requestIdAnnotation, id),
            HttpServerResponse.setHeader(requestIdHeader, id)
          )
        })
  )
)
