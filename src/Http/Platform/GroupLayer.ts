/** Runs the handlers of a group on the HTTP server of `@effect/platform`. */
import type * as HttpApi from "@effect/platform/HttpApi"
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import type * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import type * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import type * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Context, Effect, type Layer, Option, type Scope, Tracer } from "effect"
import type { ApiError } from "../ApiError.ts"
import type { AnyHandlers, Handlers } from "../Endpoints.ts"
import { Identity, type IdentityShape } from "../Identity.ts"
import { ofPlatform } from "../Incoming.ts"
import { type Reply, respond } from "../Reply.ts"
import { label } from "../Router.ts"
import { closed, type Handshake, handshakeOf, upgrading } from "../WebSocket/Handshake.ts"

type AnyGroup = HttpApiGroup.HttpApiGroup.Any

/**
 * An api, of this service or of a host, that contains a group.
 *
 * The group may have a prefix and middlewares of the host; an api without it does not compile.
 */
export type ApiWith<Group, Id extends string, Groups extends AnyGroup, E, R> = HttpApi.HttpApi<Id, Groups, E, R> &
  ([Group] extends [Groups] ? unknown : { readonly "the api does not contain this group": Group })

/**
 * Performs the upgrade of a handler's reply. The platform's server would write a response on the connection as
 * soon as it exists, so the response is delayed until the connection is closed.
 */
const upgraded = <R>(handled: Effect.Effect<Reply, ApiError, R>, handshake: Handshake) =>
  Effect.tap(Effect.flatMap(handled, upgrading(handshake)), reply => reply.upgrade && closed(handshake))

const cutOff = (request: HttpServerRequest.HttpServerRequest): Effect.Effect<void> =>
  Effect.sync(() => {
    NodeHttpServerRequest.toServerResponse(request).destroy()
  })

/** Sets the route of the span with parameters as in `{key}`, as in metrics; the platform writes `:key`. */
const labelRoute: Effect.Effect<void> = Effect.map(Effect.context<never>(), context => {
  const span = Option.getOrUndefined(Context.getOption(context, Tracer.ParentSpan))
  if (span?._tag !== "Span") return
  const route = span.attributes.get("http.route")
  if (typeof route === "string") span.attribute("http.route", label(route))
})

/** The sender of the request, if a middleware has identified it. */
const identity: Effect.Effect<IdentityShape | undefined> = Effect.map(Effect.context<never>(), context =>
  Option.getOrUndefined(Context.getOption(context, Identity))
)

/** The builder of an untyped group: the handlers were checked against its type when they were made. */
interface Builder {
  handle(
    name: string,
    handler: (request: {
      readonly request: HttpServerRequest.HttpServerRequest
    }) => Effect.Effect<HttpServerResponse.HttpServerResponse, never, Scope.Scope>
  ): Builder
}

type MiddlewareBefore<Group> =
  Group extends HttpApiGroup.HttpApiGroup<infer _Id, infer Endpoints, infer _E, infer R, infer _T>
    ? HttpApiMiddleware.HttpApiMiddleware.Only<R | HttpApiEndpoint.HttpApiEndpoint.Context<Endpoints>>
    : never

/**
 * Implements a group in any api that contains it, with the paths of that api.
 *
 * The middlewares before the group, ours and those of the host, are requirements of the layer. Each handler runs in a
 * span `<group>.<endpoint>`.
 */
export const layer = <Id extends string, Groups extends AnyGroup, E, R, Group extends AnyGroup, Needs>(
  api: ApiWith<Group, Id, Groups, E, R>,
  group: Group,
  endpoints: Effect.Effect<Handlers<Group>, never, Needs>
): Layer.Layer<
  HttpApiGroup.ApiGroup<Id, HttpApiGroup.HttpApiGroup.Name<Group>>,
  never,
  Needs | MiddlewareBefore<HttpApiGroup.HttpApiGroup.WithName<Group | Groups, HttpApiGroup.HttpApiGroup.Name<Group>>>
> => {
  const build = (builder: Builder): Effect.Effect<Builder, never, Needs> =>
    Effect.map(endpoints, handlers =>
      Object.entries<AnyHandlers[string]>(handlers).reduce(
        (built, [endpoint, handler]) =>
          built.handle(endpoint, ({ request, ...decoded }) => {
            const handshake = handshakeOf(request)
            const handled = Effect.flatMap(identity, found =>
              handler({ ...decoded, incoming: ofPlatform(request, found) } as never)
            )
            return Effect.zipRight(
              labelRoute,
              respond(handshake === undefined ? handled : upgraded(handled, handshake), cutOff(request)).pipe(
                Effect.withSpan(`${group.identifier}.${endpoint}`, { captureStackTrace: false })
              )
            )
          }),
        builder
      )
    )
  // The builder's own types need the name of the group; this group is typed only by its handlers.
  const implement: (
    api: HttpApi.HttpApi<Id, Groups, E, R>,
    name: string,
    build: (builder: Builder) => Effect.Effect<Builder, never, Needs>
  ) => ReturnType<typeof layer<Id, Groups, E, R, Group, Needs>> = HttpApiBuilder.group as never
  return implement(api, group.identifier, build)
}
