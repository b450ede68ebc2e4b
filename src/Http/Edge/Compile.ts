/**
 * Compiles an `HttpApi` into a router: for each endpoint its decoders, the checks of its middlewares and its handler.
 */
import * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { type Effect, Either, Option, ParseResult, type Schema, SchemaAST } from "effect"
import { type ApiError, BadRequest } from "../ApiError.ts"
import { describe, isDecodedAsGiven, JsonBody } from "../Contract.ts"
import type { AnyHandlers, Guard, Incoming } from "../Endpoints.ts"
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

/** Whether an input is decoded as itself. `false` if the schema has to decide, which also formats the errors. */
type IsPlain = (input: unknown) => boolean

const typeOf: Partial<Record<SchemaAST.AST["_tag"], "string" | "number" | "boolean">> = {
  StringKeyword: "string",
  NumberKeyword: "number",
  BooleanKeyword: "boolean"
}

/** Whether unknown members are refused. Otherwise they would be removed. */
const isStrict = ({ annotations }: SchemaAST.AST): boolean =>
  (annotations[SchemaAST.ParseOptionsAnnotationId] as SchemaAST.ParseOptions | undefined)?.onExcessProperty === "error"

const isPlainStruct = ({ propertySignatures }: SchemaAST.TypeLiteral): IsPlain | undefined => {
  const members = new Map<string, { readonly isPlain: IsPlain; readonly weight: 0 | 1 }>()
  let required = 0
  for (const { isOptional, name, type } of propertySignatures) {
    const isPlain = isPlainOf(type)
    if (isPlain === undefined && !isOptional) return undefined
    if (isPlain !== undefined) members.set(String(name), { isPlain, weight: isOptional ? 0 : 1 })
    if (!isOptional) required++
  }
  return input => {
    if (typeof input !== "object" || input === null || Object.getPrototypeOf(input) !== Object.prototype) return false
    let missing = required
    for (const name in input) {
      const member = members.get(name)
      if (member === undefined || !member.isPlain((input as Record<string, unknown>)[name])) return false
      missing -= member.weight
    }
    return missing === 0
  }
}

/**
 * The check of the most common inputs of a schema, in a tenth of its time; `undefined` if it has none. It exists for
 * structs of texts, numbers, flags, literals and unknown values, and for arrays and strict unions of them. Other
 * optional members must be absent.
 */
export const isPlainOf = (ast: SchemaAST.AST): IsPlain | undefined => {
  const type = typeOf[ast._tag]
  if (type !== undefined) return input => typeof input === type
  if (isDecodedAsGiven(ast)) return input => typeof input === "string"
  switch (ast._tag) {
    case "UnknownKeyword":
      return () => true
    case "Literal":
      return input => input === ast.literal
    case "TypeLiteral":
      return ast.indexSignatures.length > 0 || ast.propertySignatures.length === 0 ? undefined : isPlainStruct(ast)
    case "TupleType": {
      const element = ast.elements.length === 0 && ast.rest.length === 1 ? isPlainOf(ast.rest[0]!.type) : undefined
      return element && (input => Array.isArray(input) && input.every(element))
    }
    case "Union": {
      const members = ast.types.map(type =>
        type._tag !== "TypeLiteral" || isStrict(type) ? isPlainOf(type) : undefined
      )
      return members.every(member => member !== undefined)
        ? input => members.some(isPlain => isPlain(input))
        : undefined
    }
    default:
      return undefined
  }
}

/** The names of a struct whose members are all optional. An input without them is decoded as the empty struct. */
const optionalNames = (ast: SchemaAST.AST): ReadonlyArray<string> | undefined =>
  ast._tag === "TypeLiteral" &&
  ast.indexSignatures.length === 0 &&
  ast.propertySignatures.every(({ isOptional }) => isOptional)
    ? ast.propertySignatures.map(({ name }) => String(name))
    : undefined

const empty = {}

/** Decodes the most common inputs of a schema without it. Returns what it would, or `undefined`. */
export const plainDecoder = (schema: Schema.Schema.All): ((input: unknown) => unknown) => {
  const { ast } = schema
  const names = isStrict(ast) ? undefined : optionalNames(ast)
  const isPlain = isPlainOf(ast)
  return input => {
    if (isPlain?.(input) === true) return input
    if (names === undefined || typeof input !== "object" || input === null || Array.isArray(input)) return undefined
    for (const name of names) if (name in input) return undefined
    return empty
  }
}

const decoder = (
  name: string,
  schema: Option.Option<Schema.Schema.All>,
  select: (parts: Parts) => unknown
): ReadonlyArray<Decoder> => {
  if (Option.isNone(schema)) return []
  const decode = ParseResult.decodeUnknownEither(schema.value as Schema.Schema<unknown>)
  const decodePlain = plainDecoder(schema.value)
  return [
    (parts, into) => {
      const plain = decodePlain(select(parts))
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
