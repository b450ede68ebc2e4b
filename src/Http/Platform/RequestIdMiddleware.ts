import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import type * as HttpApp from "@effect/platform/HttpApp"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import { Effect, type Layer } from "effect"
import { accepted, annotation, generator, header } from "../RequestId.ts"

/**
 * Names the requests to an api that @effect/platform serves. Provide it before `ErrorMiddleware`, so that what that
 * logs and answers has the name too.
 */
export const layer: Layer.Layer<never> = HttpApiBuilder.middleware(
  Effect.map(
    generator,
    next =>
      (app: HttpApp.Default): HttpApp.Default =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, request => {
          const id = accepted(request.headers[header]) ?? next()
          return Effect.map(Effect.annotateLogs(app, annotation, id), HttpServerResponse.setHeader(header, id))
        })
  )
)
