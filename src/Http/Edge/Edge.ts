/**
 * Serves an `HttpApi` on `node:http`: its endpoints are compiled once into a router, in place of the platform's
 * machinery. A direct answer needs no fiber, unless tracing is on.
 */

import { ServerResponse } from "node:http"
import * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import type * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import { Effect, Either, FiberRef, LogLevel, Option, ParseResult, Runtime, type Schema, SchemaAST } from "effect"
import { BadRequest } from "../ApiError.ts"
import { describe, HistoryBody, isDecodedAsGiven, JsonBody, ObjectBody } from "../Contract.ts"
import type { AnyHandlers, Guard, Handlers, Incoming } from "../Endpoints.ts"
import { requestIds } from "../HeaderFields.ts"
import * as Body from "../RequestBody.ts"
import { label, pathOf, problemOfTarget, Router } from "../Router.ts"
import type { Listeners } from "../Server/Gate.ts"
import { type Endpoint, Exchange, type Parts, ResponseBatcher, type Serving } from "./Exchange.ts"

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
  const known = new Set([
    JsonBody.key,
    ObjectBody.key,
    HistoryBody.key,
    ...guards.map(({ middleware }) => middleware.key)
  ])
  const unknown = [...keys].find(key => !known.has(key))
  if (unknown !== undefined)
    throw new Error(`The endpoint ${endpoint} wants a middleware unknown to the edge: ${unknown}`)
  return guards.filter(({ middleware }) => keys.has(middleware.key))
}

/**
 * Makes a router from an api's endpoints. `groups` has the handlers of each group, by its name, and `keptFormat` is that
 * of bodies that keep members as text.
 *
 * Throws if an endpoint has no handler or a middleware has no guard: both are mistakes in the composition of the
 * service.
 */
export const compile = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>,
  groups: Readonly<Record<string, AnyHandlers>>,
  guards: ReadonlyArray<Guard>,
  keptFormat?: Body.Format
): Router<Endpoint> => {
  const formats = new Map([
    [JsonBody.key, keptFormat],
    [ObjectBody.key, Body.objectFormat],
    [HistoryBody.key, Body.historyFormat]
  ])
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
        bodyFormat: [...before].map(key => formats.get(key)).find(format => format !== undefined),
        decode: decodeWith(decodersOf(endpoint)),
        handler
      })
    }
  })
  return router
}

const noop = (): void => {}

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

export type MiddlewareOf<Groups, R> = Exclude<
  HttpApiMiddleware.HttpApiMiddleware.Only<R | MiddlewareOfGroup<Groups>>,
  JsonBody | ObjectBody | HistoryBody
>

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
    const admitting = guards as Effect.Effect<ReadonlyArray<Known>, never, R2>
    const router = compile(api, yield* handlers, yield* admitting, Body.keptFormat(yield* Body.BodyFormat))
    // A failure of a handler is an ordinary answer; defects are logged separately.
    const runtime = yield* Effect.locally(Effect.runtime<never>(), FiberRef.unhandledErrorLogLevel, Option.none())
    const serving: Serving = {
      router,
      batcher: new ResponseBatcher(),
      runFork: Runtime.runFork(runtime),
      nextId: yield* requestIds,
      // Read once, so that in production a request pays nothing for lines that are not logged.
      isDetailed: LogLevel.lessThanEqual(yield* FiberRef.get(FiberRef.currentMinimumLogLevel), LogLevel.Debug),
      isTraced: yield* FiberRef.get(FiberRef.currentTracerEnabled)
    }
    return {
      request: (request, response) =>
        new Exchange(
          serving,
          request,
          () => response,
          undefined,
          leave => {
            response.once("close", () => response.writableEnded || leave())
            return noop
          }
        ).serve(),
      upgrade: (request, socket, head) => {
        // An answer other than the handshake is written as an ordinary response on the connection.
        const response = () => {
          const response = new ServerResponse(request)
          response.assignSocket(socket as never)
          response.shouldKeepAlive = false
          response.once("finish", () => socket.end())
          return response
        }
        const exchange = new Exchange(serving, request, response, { request, socket, head }, leave => {
          socket.once("close", leave)
          // A long-lived WebSocket must not keep the request of its handshake in memory.
          return () => socket.off("close", leave)
        })
        exchange.serve()
      },
      upgradable: target =>
        problemOfTarget(target) === undefined && router.find("GET", pathOf(target))?.value.isSocket === true
    }
  })
