/**
 * Compiles an `HttpApi` into a router: for each endpoint its decoders, the checks of its middlewares and its handler.
 */
import * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { type Effect, Either, Option, ParseResult, type Schema, SchemaAST } from "effect"
import { type ApiError, BadRequest } from "../ApiError.ts"
import { fastDecoderOf, JsonBody } from "../Contract.ts"
import type { AnyHandlers, Guard, Incoming } from "../Endpoints.ts"
import { describe } from "../Issues.ts"
import type { Reply } from "../Reply.ts"
import { label, Router } from "../Router.ts"

/** A request's parts before they are decoded. */
export interface Parts {
  readonly path: Readonly<Record<string, string>>
  readonly query: Readonly<Record<string, string | ReadonlyArray<string>>>
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  /** The parsed body, if the endpoint takes one. */
  readonly payload: unknown
}

/** A compiled endpoint. */
export interface Endpoint {
  /** `<group>.<endpoint>`, the name of its span. */
  readonly name: string
  /** The route template as metrics and spans show it. */
  readonly label: string
  /** The checks of its middlewares. */
  readonly guards: ReadonlyArray<Guard>
  readonly takesBody: boolean
  /** The names of its query parameters. */
  readonly parameters: ReadonlySet<string>
  /** Whether its answer is a WebSocket. */
  readonly isSocket: boolean
  readonly decode: (parts: Parts, incoming: Incoming) => Either.Either<never, BadRequest>
  readonly handler: (request: never) => Effect.Effect<Reply, ApiError>
}

type Decoder = (parts: Parts, into: Record<string, unknown>) => ParseResult.ParseError | undefined

const decoder = (
  name: string,
  schema: Option.Option<Schema.Schema.All>,
  select: (parts: Parts) => unknown
): ReadonlyArray<Decoder> => {
  if (Option.isNone(schema)) return []
  const decode = ParseResult.decodeUnknownEither(schema.value as Schema.Schema<unknown>)
  const fastDecoder = fastDecoderOf(schema.value)
  return [
    (parts, into) => {
      const plain = fastDecoder?.(select(parts))
      if (plain !== undefined) {
        into[name] = plain
        return undefined
      }
      const decoded = decode(select(parts))
      if (Either.isLeft(decoded)) return ParseResult.parseError(decoded.left)
      into[name] = decoded.right
      return undefined
    }
  ]
}

interface Schemas {
  readonly pathSchema: Option.Option<Schema.Schema.All>
  readonly payloadSchema: Option.Option<Schema.Schema.All>
  readonly headersSchema: Option.Option<Schema.Schema.All>
  readonly urlParamsSchema: Option.Option<Schema.Schema.All>
}

/** The decoders of an endpoint, in the order in which the platform's server decodes. */
const decodersOf = (endpoint: Schemas): ReadonlyArray<Decoder> => [
  ...decoder("path", endpoint.pathSchema, parts => parts.path),
  ...decoder("payload", endpoint.payloadSchema, parts => parts.payload),
  ...decoder("headers", endpoint.headersSchema, parts => parts.headers),
  ...decoder("urlParams", endpoint.urlParamsSchema, parts => parts.query)
]

const parametersOf = ({ urlParamsSchema }: Schemas): ReadonlySet<string> =>
  new Set(
    Option.match(urlParamsSchema, {
      onNone: () => [],
      onSome: ({ ast }) => SchemaAST.getPropertySignatures(SchemaAST.encodedAST(ast)).map(({ name }) => String(name))
    })
  )

const decodeWith =
  (decoders: ReadonlyArray<Decoder>) =>
  (parts: Parts, incoming: Incoming): Either.Either<never, BadRequest> => {
    const request: Record<string, unknown> = { incoming }
    for (const decode of decoders) {
      const error = decode(parts, request)
      if (error !== undefined) {
        return Either.left(new BadRequest({ error: describe(ParseResult.ArrayFormatter.formatErrorSync(error)) }))
      }
    }
    return Either.right(request as never)
  }

/** The guards of an endpoint's middlewares. Throws if a middleware has none. */
const guardsOf = (endpoint: string, keys: ReadonlySet<string>, guards: ReadonlyArray<Guard>): ReadonlyArray<Guard> => {
  const known = new Set([JsonBody.key, ...guards.map(({ middleware }) => middleware.key)])
  const unknown = [...keys].find(key => !known.has(key))
  if (unknown !== undefined)
    throw new Error(`The endpoint ${endpoint} wants a middleware unknown to the edge: ${unknown}`)
  return guards.filter(({ middleware }) => keys.has(middleware.key))
}

/**
 * Makes a router from an api's endpoints. `groups` has the handlers of each group, by its name.
 *
 * Throws if an endpoint has no handler or a middleware has no guard: both are mistakes in the composition of the
 * service.
 */
export const compile = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>,
  groups: Readonly<Record<string, AnyHandlers>>,
  guards: ReadonlyArray<Guard>
): Router<Endpoint> => {
  const router = new Router<Endpoint>()
  HttpApi.reflect(api, {
    onGroup: () => undefined,
    onEndpoint: ({ endpoint, group, middleware, successes }) => {
      const name = `${group.identifier}.${endpoint.name}`
      const handler = groups[group.identifier]?.[endpoint.name]
      if (handler === undefined) throw new Error(`The endpoint ${name} has no handler`)
      const before = new Set(Array.from(middleware, tag => tag.key))
      router.add(endpoint.method, endpoint.path, {
        name,
        label: label(endpoint.path),
        guards: guardsOf(name, before, guards),
        isSocket: successes.has(101),
        parameters: parametersOf(endpoint),
        takesBody: before.has(JsonBody.key),
        decode: decodeWith(decodersOf(endpoint)),
        handler
      })
    }
  })
  return router
}
