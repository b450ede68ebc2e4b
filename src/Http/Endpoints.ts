/**
 * Endpoints, independent of the transport: a group's handlers are functions from a decoded request to a reply. The
 * platform's server and `Http/Edge` both serve them.
 */
import type * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import type { Effect } from "effect"
import type { ApiError } from "./ApiError.ts"
import type { Credentials, IdentityShape } from "./Identity.ts"
import type { Reply } from "./Reply.ts"

/** The parts of a request that a handler can read in addition to the decoded ones. */
export interface Incoming extends Credentials {
  /** The sender, if the endpoint requires access. */
  readonly identity: IdentityShape | undefined
  /** The path as the client wrote it, without its query. */
  readonly target: string
  /** The `Authorization` header. */
  readonly authorization: string | undefined
  /** Why the request cannot become a WebSocket; `undefined` if it can. */
  readonly upgradeProblem: string | undefined
  /** The origin of the page that requests a WebSocket, and the requested host; see `Http/Origin`. */
  readonly origin: string | undefined
  readonly host: string | undefined
}

export type Decoded<Endpoint extends HttpApiEndpoint.HttpApiEndpoint.Any> = Omit<
  HttpApiEndpoint.HttpApiEndpoint.Request<Endpoint>,
  "request"
> & { readonly incoming: Incoming }

/** What a middleware of the contract does on `Http/Edge`, which runs it before the request is decoded. */
export interface Guard<Middleware = unknown> {
  readonly middleware: { readonly key: string; readonly Identifier: Middleware }
  /** Succeeds if the request is admitted, perhaps with its sender. Fails with the answer to a refused request. */
  readonly admit: (request: Incoming) => Effect.Effect<IdentityShape | undefined, ApiError>
}

/** One handler for each endpoint of a group. The edge runs a direct answer without a fiber. */
export type Handlers<Group extends HttpApiGroup.HttpApiGroup.Any> = {
  readonly [Endpoint in HttpApiGroup.HttpApiGroup.Endpoints<Group> as Endpoint["name"]]: (
    request: Decoded<Endpoint>
  ) => Effect.Effect<Reply, ApiError>
}

export type AnyHandlers = Readonly<Record<string, (request: never) => Effect.Effect<Reply, ApiError>>>

/** Makes the handlers of a group, once for each transport, with the services that they need. */
export const of = <Group extends HttpApiGroup.HttpApiGroup.Any, R = never>(
  _group: Group,
  handlers: Effect.Effect<Handlers<Group>, never, R>
): Effect.Effect<Handlers<Group>, never, R> => handlers
