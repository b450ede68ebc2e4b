/**
 * Endpoints apart from transports: a group's handlers as plain functions from a decoded request to an answer,
 * which the platform's server and the compiled edge serve alike.
 */
import type * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import type { Effect } from "effect"
import type { ApiError } from "./ApiError.ts"
import type { Reply } from "./Reply.ts"

/** What a handler may want to know of a request beside what its contract decodes. */
export interface Incoming {
  /** The path as the client wrote it, without its query. */
  readonly target: string
  /** The `Authorization` header. */
  readonly authorization: string | undefined
  /** Why the request cannot become a WebSocket; `undefined` where it can. */
  readonly upgradeProblem: string | undefined
}

/** A request that matched an endpoint's schemas. */
export type Decoded<Endpoint extends HttpApiEndpoint.HttpApiEndpoint.Any> = Omit<
  HttpApiEndpoint.HttpApiEndpoint.Request<Endpoint>,
  "request"
> & { readonly incoming: Incoming }

/**
 * An answer that is on its way, for who waits without a fiber.
 *
 * To be called once, which begins what is to be done. It calls back once, perhaps before it returns: with the answer,
 * or with an effect that comes to it where something is left to do, such as to log a failure. The function returned is
 * for a client that leaves: what can be taken back is, and there is no call back.
 */
export type Pending = (answer: (outcome: Reply | Effect.Effect<Reply, ApiError>) => void) => () => void

/** Answers a request without a fiber, now or later, or not at all: then its handler is to be run. */
export type AtOnce<Request> = (request: Request) => Reply | Pending | undefined

/** A handler that has a quicker way for what can be answered without a fiber; a transport may take it. */
export interface Quick<Request, R> {
  (request: Request): Effect.Effect<Reply, ApiError, R>
  /** Made once, with the services that it needs. */
  readonly atOnce: Effect.Effect<AtOnce<Request>, never, R>
}

/** Gives a handler a quicker way, which must answer what the handler would. */
export const quick = <Request, R, R2>(
  handler: (request: Request) => Effect.Effect<Reply, ApiError, R>,
  atOnce: Effect.Effect<AtOnce<Request>, never, R2>
): Quick<Request, R | R2> => Object.assign((request: Request) => handler(request), { atOnce })

/** What a middleware of the contract checks before a request is decoded. */
export interface Guard {
  /** The key of the middleware's tag. */
  readonly key: string
  /** The keys of middlewares whose checks this one contains. */
  readonly contains: ReadonlyArray<string>
  /** Why a request with this `Authorization` header is refused. */
  readonly refusal: (authorization: string | undefined) => ApiError | undefined
}

/** One handler for each endpoint of a group. */
export type Endpoints<Group extends HttpApiGroup.HttpApiGroup.Any, R> = {
  readonly [Endpoint in HttpApiGroup.HttpApiGroup.Endpoints<Group> as Endpoint["name"]]: (
    request: Decoded<Endpoint>
  ) => Effect.Effect<Reply, ApiError, R>
}

/** A group's handlers, whatever the group. */
export type AnyEndpoints<R> = Readonly<Record<string, (request: never) => Effect.Effect<Reply, ApiError, R>>>

/** What the handlers of a group need. */
export type Requirements<Handlers> = {
  [Name in keyof Handlers]: Handlers[Name] extends (request: never) => Effect.Effect<Reply, ApiError, infer R>
    ? R
    : never
}[keyof Handlers]

/** Checks handlers against the group that they implement. */
export const of = <Group extends HttpApiGroup.HttpApiGroup.Any, Handlers extends Endpoints<Group, unknown>>(
  _group: Group,
  handlers: Handlers & Endpoints<Group, unknown>
): Handlers => handlers
